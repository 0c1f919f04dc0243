"""SQL92 filters: an expression compiled once into closures over the properties of a message.

Three-valued logic: an order beside null is null, `null AND FALSE` is false, `null OR TRUE` is true,
and only TRUE matches. Equality looks at its left side first: null on the left alone is null, on the
right alone false, on both sides true. A text that cannot be read as the number it is compared with
ends the evaluation, and the message does not match; operands behind a false of AND or a true of OR
are not looked at. Source: `LogicExpression.java`, `UnaryExpression.java`,
`ComparisonExpression.java` of 4.9.3.
"""

from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Final, assert_never

from ledgermq.broker.selectors.sql_nodes import (
    And,
    Comparison,
    IsNull,
    IsOneOf,
    Literal,
    Negative,
    Node,
    Not,
    Or,
    Property,
    Truth,
    Value,
)
from ledgermq.broker.selectors.sql_syntax import parse_sql
from ledgermq.broker.selectors.sql_values import (
    SqlValueError,
    are_equal,
    compare_doubles,
    order_of,
    read_double,
    read_integer,
)

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]
PropertyMatcher = Callable[[Properties], bool]
Compare = Callable[[float, float], bool]

# Characters of the expressions that are kept compiled: heart beats bring the same ones again and
# again. Compiled, a character takes about 25 bytes of memory.
COMPILED_CHARS_MAX: Final = 262_144
_SIGNS: Final[dict[str, Compare]] = {">": gt, ">=": ge, "<": lt, "<=": le}
_MIRRORED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


class CompiledExpressions:
    """The expressions that were asked for last, up to so many characters together."""

    def __init__(self, chars_max: int = COMPILED_CHARS_MAX) -> None:
        """Begins empty."""
        self._chars_max = chars_max
        # The one that was asked for last stands last.
        self._kept: dict[str, PropertyMatcher] = {}
        self.char_count = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, expression: str) -> PropertyMatcher:
        """Returns what tells whether properties match an expression.

        Raises:
            SubscriptionParseError: the expression is too long or does not parse.
        """
        matches = self._kept.pop(expression, None)
        if matches is None:
            matches = _compiled(expression)
            self.char_count += len(expression)
        self._kept[expression] = matches
        while self.char_count > self._chars_max:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self.char_count -= len(oldest)
        return matches


_expressions: Final = CompiledExpressions()
compile_sql: Final = _expressions.find


def _compiled(expression: str) -> PropertyMatcher:
    evaluate = compile_node(parse_sql(expression))

    def matches(properties: Properties) -> bool:
        try:
            return evaluate(properties) is True
        except SqlValueError:
            return False

    return matches


def compile_node(node: Node) -> Evaluate:
    """Returns the function that evaluates a tree; it may raise SqlValueError."""
    match node:
        case Property(name):
            return lambda properties: properties.get(name)
        case Comparison():
            return _comparison(node)
        case Literal(value):
            return lambda properties: value
        case Truth(operand):
            return _truth(compile_node(operand))
        case Not(operand):
            return _not(compile_node(operand))
        case Negative(operand):
            return _negative(compile_node(operand))
        case IsNull(operand):
            is_null_of = compile_node(operand)
            return lambda properties: is_null_of(properties) is None
        case IsOneOf(operand, texts):
            return _one_of(operand.name, texts)
        case And(operands):
            return _all(tuple(compile_node(operand) for operand in operands))
        case Or(operands):
            return _any(tuple(compile_node(operand) for operand in operands))
    assert_never(node)


def _truth(inner: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else value is True

    return evaluate


def _not(inner: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else not value

    return evaluate


def _negative(inner: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return -value

    return evaluate


def _one_of(name: str, texts: frozenset[str]) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else value in texts

    return evaluate


def _all(operands: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        result: Value = True
        for operand in operands:
            value = operand(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return evaluate


def _any(operands: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        result: Value = False
        for operand in operands:
            value = operand(properties)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return evaluate


def _comparison(node: Comparison) -> Evaluate:
    sign, left, right = node.sign, node.left, node.right
    if isinstance(left, Property) and isinstance(right, Literal):
        return _property_and_literal(sign, left.name, right.value)
    if isinstance(left, Literal) and isinstance(right, Property) and sign in _MIRRORED:
        return _property_and_literal(_MIRRORED[sign], right.name, left.value)
    left_of, right_of = compile_node(left), compile_node(right)
    compare = _SIGNS.get(sign)
    return _equality(left_of, right_of) if compare is None else _order(compare, left_of, right_of)


def _equality(left_of: Evaluate, right_of: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        left, right = left_of(properties), right_of(properties)
        if right is None:
            return left is None
        return None if left is None else are_equal(left, right)

    return evaluate


def _order(compare: Compare, left_of: Evaluate, right_of: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        left = left_of(properties)
        if left is None:
            return None
        right = right_of(properties)
        return None if right is None else compare(order_of(left, right), 0)

    return evaluate


def _property_and_literal(sign: str, name: str, literal: Value) -> Evaluate:
    """The usual comparison: how the text is read is known when it is compiled."""
    compare = _SIGNS.get(sign)
    if isinstance(literal, bool) or compare is None:
        return lambda properties: (
            None if (text := properties.get(name)) is None else are_equal(text, literal)
        )
    if isinstance(literal, float):
        return lambda properties: (
            None
            if (text := properties.get(name)) is None
            else compare(compare_doubles(read_double(text), literal), 0)
        )
    assert isinstance(literal, int)
    return lambda properties: (
        None
        if (text := properties.get(name)) is None
        else compare(read_integer(text, literal), literal)
    )
