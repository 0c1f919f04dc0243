"""SQL92 filter expressions as trees: the nodes, and the parser that makes them.

    or       := and ( OR and )*
    and      := equal ( AND equal )*
    equal    := compare ( ( = | <> ) compare | IS NULL | IS NOT NULL )*
    compare  := unary ( ( > | >= | < | <= ) unary | [NOT] BETWEEN unary AND unary
                      | [NOT] IN ( string, ... ) )*
    unary    := + unary | - unary | NOT unary | primary
    primary  := string | integer | float | TRUE | FALSE | NULL | name | ( or )

What can never be evaluated is refused here: an order between texts or truths, a comparison with
NULL, an empty BETWEEN, a number as a truth. Text after a complete expression is not read. Length
and depth are limited, so that no expression exhausts the stack. Source: `SelectorParser.jj`,
`ComparisonExpression.java`, `UnaryExpression.java` of 4.9.3.
"""

from dataclasses import dataclass
from math import inf
from typing import Final, assert_never

from ledgermq.broker.selectors.sql_tokens import (
    SqlSyntaxError,
    Token,
    TokenKind,
    next_token,
)
from ledgermq.state.errors import SubscriptionParseError

# An integer of the language is an i64 of Java.
_INTEGER_MAX: Final = 2**63 - 1
EXPRESSION_BYTES_MAX: Final = 4096
# Of parentheses, signs before an operand, and links of a chain of comparisons.
DEPTH_MAX: Final = 64
# Of the tree: a chain inside of a chain is less deep in the text than in the tree.
_HEIGHT_MAX: Final = 2 * DEPTH_MAX
_ORDERS: Final = (">", ">=", "<", "<=")
_SIGN: Final = TokenKind.SIGN
_EQUALITIES: Final = ("=", "<>")
_UNARY: Final = frozenset(("+", "-", "NOT"))
# Behind an operand these begin no comparison: most operands stand in parentheses or chains.
_ENDS: Final = frozenset((")", "AND", "OR", ",", ""))

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands in the expression."""

    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """The text of a property of the message, null when it has none."""

    name: str


@dataclass(frozen=True, slots=True)
class Truth:
    """A property where a truth is needed: null stays null, any text is false."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a truth; null stays null."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Negative:
    """A number with the other sign; null for anything else."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values and one of = > >= < <=."""

    sign: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class IsNull:
    """True when the operand is null, else false."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class IsOneOf:
    """True when a property is one of some texts."""

    operand: Property
    texts: frozenset[str]


@dataclass(frozen=True, slots=True)
class And:
    """From left to right, up to the first false."""

    operands: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """From left to right, up to the first true."""

    operands: "tuple[Node, ...]"


Node = Literal | Property | Truth | Not | Negative | Comparison | IsNull | IsOneOf | And | Or
_TRUTHS: Final = (Truth, Not, Comparison, IsNull, IsOneOf, And, Or)


def parse_sql(expression: str) -> Node:
    """Returns the tree of an expression; its value is a truth or null.

    Raises:
        SqlSyntaxError: it does not parse; the error has the position.
        SubscriptionParseError: it is longer than EXPRESSION_BYTES_MAX.
    """
    size_bytes = len(expression.encode("utf-8", "surrogatepass"))
    if size_bytes > EXPRESSION_BYTES_MAX:
        raise SubscriptionParseError(
            f"the SQL92 expression has {size_bytes} bytes, allowed are {EXPRESSION_BYTES_MAX}"
        )
    return _Parser(expression).parse()


class _Parser:
    """One pass over one expression."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._depth = 0
        self._end = 0
        self._token = next_token(expression, 0)
        # Of the token at hand, when it is a sign or a word of the language; "" otherwise.
        self._sign = ""
        self._note()

    def parse(self) -> Node:
        start = self._token
        root = self._truth(self._or(), start)
        level: list[Node] = [root]
        for _ in range(_HEIGHT_MAX):
            level = [operand for node in level for operand in _operands(node)]
        if level:
            raise self._error(start, f"its parts are nested deeper than {_HEIGHT_MAX} levels")
        return root

    # Tokens.

    def _advance(self) -> Token:
        """Leaves the token at hand and returns it."""
        token = self._token
        self._token = next_token(self._expression, self._end)
        self._note()
        return token

    def _note(self) -> None:
        kind, text, position = self._token
        self._end = position + len(text)
        self._sign = text if kind is _SIGN else ""

    def _at(self, *signs: str) -> bool:
        return self._sign in signs

    def _expect(self, sign: str) -> None:
        if self._sign != sign:
            raise self._error(self._token, f"{sign} is expected here")
        self._advance()

    def _error(self, token: Token, reason: str) -> SqlSyntaxError:
        return SqlSyntaxError(self._expression, token.position, reason)

    def _deeper(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(token, f"it is nested deeper than {DEPTH_MAX} levels")

    # The grammar, from the weakest to the strongest binding.

    def _or(self) -> Node:
        start = self._token
        node = self._and()
        if self._sign != "OR":
            return node
        operands = [self._truth(node, start)]
        while self._sign == "OR":
            self._advance()
            start = self._token
            operands.append(self._truth(self._and(), start))
        return Or(tuple(operands))

    def _and(self) -> Node:
        start = self._token
        node = self._equal()
        if self._sign != "AND":
            return node
        operands = [self._truth(node, start)]
        while self._sign == "AND":
            self._advance()
            start = self._token
            operands.append(self._truth(self._equal(), start))
        return And(tuple(operands))

    def _equal(self) -> Node:
        depth = self._depth
        node = self._compare()
        while True:
            if self._sign in _ENDS:
                self._depth = depth
                return node
            sign = self._token
            if self._at(*_EQUALITIES):
                self._deeper(self._advance())
                equal = self._equality(node, self._compare(), sign)
                node = Not(equal) if sign.text == "<>" else equal
            elif self._sign == "IS":
                self._deeper(self._advance())
                is_not = self._at("NOT")
                if is_not:
                    self._advance()
                self._expect("NULL")
                node = Not(IsNull(node)) if is_not else IsNull(node)
            else:
                self._depth = depth
                return node

    def _equality(self, left: Node, right: Node, sign: Token) -> Node:
        for operand in (left, right):
            if isinstance(operand, Literal) and operand.value is None:
                raise self._error(sign, "nothing is equal to NULL; IS NULL asks for it")
        if (
            isinstance(left, Literal)
            and isinstance(right, Literal)
            and isinstance(left.value, bool)
            and not isinstance(right.value, bool)
        ):
            raise self._error(sign, "a truth cannot be compared with another value")
        return Comparison("=", left, right)

    def _compare(self) -> Node:
        depth = self._depth
        node = self._unary()
        while True:
            if self._sign in _ENDS:
                self._depth = depth
                return node
            sign = self._token
            if self._at(*_ORDERS):
                self._deeper(self._advance())
                node = self._order(sign.text, node, self._unary(), sign)
            elif self._at("BETWEEN", "IN"):
                self._deeper(sign)
                node = self._range_or_list(node)
            elif self._sign == "NOT":
                self._deeper(self._advance())
                node = self._range_or_list(node, is_not=True)
            else:
                self._depth = depth
                return node

    def _range_or_list(self, node: Node, *, is_not: bool = False) -> Node:
        sign = self._token
        if not self._at("BETWEEN", "IN"):
            raise self._error(sign, "BETWEEN or IN is expected here")
        self._advance()
        if sign.text == "IN":
            found = self._one_of(node, sign)
            return Not(found) if is_not else found
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if not is_not and isinstance(low, Literal) and isinstance(high, Literal):
            self._check_range(low.value, high.value, sign)
        if is_not:
            below, above = self._order("<", node, low, sign), self._order(">", node, high, sign)
            return Or((below, above))
        return And((self._order(">=", node, low, sign), self._order("<=", node, high, sign)))

    def _check_range(self, low: Value, high: Value, sign: Token) -> None:
        if not _is_number(low) or not _is_number(high):
            raise self._error(sign, "the bounds of BETWEEN must be numbers")
        assert isinstance(low, int | float) and isinstance(high, int | float)
        if low > high:
            raise self._error(sign, f"BETWEEN {low} AND {high} is empty: the bounds are reversed")

    def _one_of(self, node: Node, sign: Token) -> IsOneOf:
        if not isinstance(node, Property):
            raise self._error(sign, "only a property can be looked up with IN")
        self._expect("(")
        texts = [self._text()]
        while self._sign == ",":
            self._advance()
            texts.append(self._text())
        self._expect(")")
        return IsOneOf(node, frozenset(texts))

    def _text(self) -> str:
        if self._token.kind is not TokenKind.STRING:
            raise self._error(self._token, "IN takes texts in single quotes")
        return _unquoted(self._advance().text)

    def _order(self, sign: str, left: Node, right: Node, token: Token) -> Node:
        for operand in (left, right):
            is_value = isinstance(operand, Literal) and not _is_number(operand.value)
            if is_value or isinstance(operand, _TRUTHS):
                raise self._error(token, "only numbers and properties have an order")
        return Comparison(sign, left, right)

    def _unary(self) -> Node:
        sign = self._token
        if self._sign not in _UNARY:
            return self._primary()
        self._deeper(self._advance())
        start = self._token
        operand = self._unary()
        self._depth -= 1
        if sign.text == "+":
            return operand
        if sign.text == "-":
            return Negative(operand)
        return Not(self._truth(operand, start))

    def _primary(self) -> Node:
        token = self._token
        if self._sign == "(":
            self._deeper(self._advance())
            node = self._or()
            self._expect(")")
            self._depth -= 1
            return node
        if token.kind is TokenKind.NAME:
            return Property(self._advance().text)
        if token.kind is TokenKind.STRING:
            return Literal(_unquoted(self._advance().text))
        if token.kind is TokenKind.INTEGER:
            return Literal(self._integer(self._advance()))
        if token.kind is TokenKind.FLOAT:
            return Literal(self._float(self._advance()))
        if self._at("TRUE", "FALSE", "NULL"):
            return Literal({"TRUE": True, "FALSE": False, "NULL": None}[self._advance().text])
        raise self._error(token, "a property, a value or a parenthesis is expected here")

    def _integer(self, token: Token) -> int:
        number = int(token.text.rstrip("lL"))
        if number > _INTEGER_MAX:
            raise self._error(token, f"the integer is greater than {_INTEGER_MAX}")
        return number

    def _float(self, token: Token) -> float:
        number = float(token.text)
        if number == 0.0:
            raise self._error(token, "the number is less than 4.9E-324; write 0 without a point")
        if number == inf:
            raise self._error(token, "the number is greater than 1.7976931348623157E308")
        return number

    def _truth(self, node: Node, token: Token) -> Node:
        """The node as a truth: a property becomes one, other values are refused."""
        if isinstance(node, Property):
            return Truth(node)
        if isinstance(node, _TRUTHS):
            return node
        if isinstance(node, Literal) and (node.value is None or isinstance(node.value, bool)):
            return node
        raise self._error(token, "a condition is expected here")


def _operands(node: Node) -> "tuple[Node, ...]":
    match node:
        case And(operands) | Or(operands):
            return operands
        case Comparison(_, left, right):
            return (left, right)
        case Truth(operand) | Not(operand) | Negative(operand) | IsNull(operand):
            return (operand,)
        case IsOneOf(operand, _):
            return (operand,)
        case Literal() | Property():
            return ()
    assert_never(node)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
