"""The parser of SQL92 filter expressions.

    or       := and ( OR and )*
    and      := equal ( AND equal )*
    equal    := compare ( ( = | <> ) compare | IS NULL | IS NOT NULL )*
    compare  := unary ( ( > | >= | < | <= ) unary | [NOT] BETWEEN unary AND unary
                      | [NOT] IN ( string, ... ) )*
    unary    := + unary | - unary | NOT unary | primary
    primary  := string | integer | float | TRUE | FALSE | NULL | name | ( or )

What can never be evaluated is refused here: an order between texts or truths, a comparison with
NULL, an empty BETWEEN, a number as a truth. Text after a complete expression is not read. Length,
depth and comparisons are limited, so that no expression exhausts the stack or takes long. Source:
`SelectorParser.jj`, `ComparisonExpression.java`, `UnaryExpression.java` of 4.9.3.
"""

from math import inf
from typing import Final

from ledgermq.broker.selectors.sql_nodes import (
    TRUTHS,
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
    is_higher,
)
from ledgermq.broker.selectors.sql_tokens import (
    END,
    MEANINGS,
    WRONG,
    SqlSyntaxError,
    position_of,
    words_of,
)
from ledgermq.state.errors import SubscriptionParseError

# An integer of the language is an i64 of Java.
_INTEGER_MAX: Final = 2**63 - 1
EXPRESSION_BYTES_MAX: Final = 4096
# Of parentheses, signs before an operand, and links of a chain of comparisons.
DEPTH_MAX: Final = 64
# Of the tree: a chain inside of a chain is less deep in the text than in the tree.
_HEIGHT_MAX: Final = 2 * DEPTH_MAX
# Joined by AND or OR, no more have room in the text; only chains of them would.
COMPARISONS_MAX: Final = 600
# How strongly what follows an operand binds it.
_OR, _AND, _EQUAL, _COMPARE = range(1, 5)
_LEVELS: Final = (
    {"OR": _OR, "AND": _AND}
    | dict.fromkeys(("=", "<>", "IS"), _EQUAL)
    | dict.fromkeys((">", ">=", "<", "<=", "BETWEEN", "IN", "NOT"), _COMPARE)
)
_UNARY: Final = frozenset(("+", "-", "NOT"))
_NUMBER_BEGINS: Final = frozenset("0123456789.")
_VALUES: Final[dict[str, Value]] = {"TRUE": True, "FALSE": False, "NULL": None}


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
    """One pass over one expression, whose words are known by their numbers.

    What follows an operand is asked for only where there is something, and a run of parentheses is
    opened at once: each level of the grammar that is a call takes its time of whoever waits.
    """

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._words = words_of(expression)
        self._meanings = [MEANINGS[word] for word in self._words]
        # The number of the word at hand, and what that is to the grammar.
        self._at = 0
        self._sign = self._meanings[0]
        self._depth = 0
        self._comparisons_left = COMPARISONS_MAX

    def parse(self) -> Node:
        root = self._truth(self._expression_from(_OR), 0)
        if self._sign == WRONG:
            raise self._error(self._at, "")
        if is_higher(root, _HEIGHT_MAX):
            raise self._error(0, f"its parts are nested deeper than {_HEIGHT_MAX} levels")
        return root

    # Words.

    def _advance(self) -> int:
        """Leaves the word at hand and returns its number."""
        at = self._at
        self._at = at + 1
        self._sign = self._meanings[at + 1]
        return at

    def _expect(self, sign: str) -> None:
        if self._sign != sign:
            raise self._error(self._at, f"{sign} is expected here")
        self._advance()

    def _error(self, at: int, reason: str) -> SqlSyntaxError:
        """What is wrong at a word; that the next one is none comes first."""
        if self._sign == WRONG:
            at, reason = self._at, "no word of the language begins here"
        return SqlSyntaxError(self._expression, position_of(self._expression, at), reason)

    def _deeper(self, at: int) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(at, f"it is nested deeper than {DEPTH_MAX} levels")

    def _link(self, at: int) -> None:
        self._comparisons_left -= 1
        if self._comparisons_left < 0:
            raise self._error(at, f"it has more than {COMPARISONS_MAX} comparisons")
        self._deeper(at)

    # The grammar.

    def _expression_from(self, least: int) -> Node:
        """An operand with all that binds to it at least so strongly."""
        start = self._at
        node = self._unary()
        if _LEVELS.get(self._sign, 0) < least:
            return node
        return self._chain(node, start, least)

    def _chain(self, node: Node, start: int, least: int) -> Node:
        """What follows an operand that began at a word, from the strongest to the weakest."""
        depth = self._depth
        if _LEVELS.get(self._sign) == _COMPARE:
            node = self._comparisons(node)
            self._depth = depth
        if least <= _EQUAL == _LEVELS.get(self._sign):
            node = self._equalities(node)
            self._depth = depth
        if least <= _AND and self._sign == "AND":
            node = And(self._joined(node, start, "AND"))
        if least == _OR and self._sign == "OR":
            node = Or(self._joined(node, start, "OR"))
        return node

    def _joined(self, node: Node, start: int, word: str) -> tuple[Node, ...]:
        operands = [self._truth(node, start)]
        while self._sign == word:
            start = self._advance() + 1
            operands.append(self._truth(self._expression_from(_LEVELS[word] + 1), start))
        return tuple(operands)

    def _equalities(self, node: Node) -> Node:
        while True:
            sign = self._sign
            if _LEVELS.get(sign) != _EQUAL:
                return node
            at = self._advance()
            self._link(at)
            if sign == "IS":
                is_not = self._sign == "NOT"
                if is_not:
                    self._advance()
                self._expect("NULL")
                node = Not(IsNull(node)) if is_not else IsNull(node)
            else:
                equal = self._equality(node, self._expression_from(_COMPARE), at)
                node = Not(equal) if sign == "<>" else equal

    def _equality(self, left: Node, right: Node, at: int) -> Node:
        if (isinstance(left, Literal) and left.value is None) or (
            isinstance(right, Literal) and right.value is None
        ):
            raise self._error(at, "nothing is equal to NULL; IS NULL asks for it")
        if (
            isinstance(right, Literal)
            and isinstance(left, Literal)
            and isinstance(left.value, bool)
            and not isinstance(right.value, bool)
        ):
            raise self._error(at, "a truth cannot be compared with another value")
        return Comparison("=", left, right)

    def _comparisons(self, node: Node) -> Node:
        while True:
            sign = self._sign
            if _LEVELS.get(sign) != _COMPARE:
                return node
            if sign in ("BETWEEN", "IN"):
                self._link(self._at)
                node = self._range_or_list(node)
                continue
            at = self._advance()
            self._link(at)
            if sign == "NOT":
                node = self._range_or_list(node, is_not=True)
            else:
                node = self._order(sign, node, self._unary(), at)

    def _range_or_list(self, node: Node, *, is_not: bool = False) -> Node:
        sign = self._sign
        if sign not in ("BETWEEN", "IN"):
            raise self._error(self._at, "BETWEEN or IN is expected here")
        at = self._advance()
        if sign == "IN":
            found = self._one_of(node, at)
            return Not(found) if is_not else found
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if not is_not and isinstance(low, Literal) and isinstance(high, Literal):
            self._check_range(low.value, high.value, at)
        if is_not:
            below, above = self._order("<", node, low, at), self._order(">", node, high, at)
            return Or((below, above))
        return And((self._order(">=", node, low, at), self._order("<=", node, high, at)))

    def _check_range(self, low: Value, high: Value, at: int) -> None:
        if not _is_number(low) or not _is_number(high):
            raise self._error(at, "the bounds of BETWEEN must be numbers")
        assert isinstance(low, int | float) and isinstance(high, int | float)
        if low > high:
            raise self._error(at, f"BETWEEN {low} AND {high} is empty: the bounds are reversed")

    def _one_of(self, node: Node, at: int) -> IsOneOf:
        if not isinstance(node, Property):
            raise self._error(at, "only a property can be looked up with IN")
        self._expect("(")
        texts = [self._text()]
        while self._sign == ",":
            self._advance()
            texts.append(self._text())
        self._expect(")")
        return IsOneOf(node, frozenset(texts))

    def _text(self) -> str:
        word = self._words[self._at]
        if not word.startswith("'"):
            raise self._error(self._at, "IN takes texts in single quotes")
        self._advance()
        return _unquoted(word)

    def _order(self, sign: str, left: Node, right: Node, at: int) -> Node:
        for operand in (left, right):
            is_value = isinstance(operand, Literal) and not _is_number(operand.value)
            if is_value or isinstance(operand, TRUTHS):
                raise self._error(at, "only numbers and properties have an order")
        return Comparison(sign, left, right)

    def _unary(self) -> Node:
        if self._sign == "(":
            return self._parenthesized()
        if self._sign not in _UNARY:
            return self._primary()
        signs = []
        depth = self._depth
        while self._sign in _UNARY:
            signs.append(self._sign)
            self._deeper(self._advance())
        start = self._at
        operand = self._parenthesized() if self._sign == "(" else self._primary()
        self._depth = depth
        for sign in reversed(signs):
            start -= 1
            if sign == "-":
                operand = _negative(operand)
            elif sign == "NOT":
                operand = _opposite(self._truth(operand, start + 1))
        return operand

    def _parenthesized(self) -> Node:
        """A run of parentheses, opened all at once and closed one after the other."""
        first = last = self._at
        while self._meanings[last + 1] == "(":
            last += 1
        first_too_deep = first + DEPTH_MAX - self._depth
        self._at = min(last, first_too_deep)
        self._depth += self._at - first
        self._deeper(self._advance())
        node = self._unary()
        for at in range(last, first - 1, -1):
            if self._sign != ")":
                node = self._chain(node, at + 1, _OR)
                self._expect(")")
            else:
                self._advance()
            self._depth -= 1
        return node

    def _primary(self) -> Node:
        sign, word = self._sign, self._words[self._at]
        if sign == END and word != END:
            at = self._advance()
            first = word[0]
            if first == "'":
                return Literal(_unquoted(word))
            if first in _NUMBER_BEGINS:
                return Literal(self._number(word, at))
            return Property(word)
        if sign in _VALUES:
            self._advance()
            return Literal(_VALUES[sign])
        raise self._error(self._at, "a property, a value or a parenthesis is expected here")

    def _number(self, word: str, at: int) -> int | float:
        digits = word.rstrip("lL")
        if digits.isdigit():
            integer = int(digits)
            if integer > _INTEGER_MAX:
                raise self._error(at, f"the integer is greater than {_INTEGER_MAX}")
            return integer
        number = float(word)
        if number == 0.0:
            raise self._error(at, "the number is less than 4.9E-324; write 0 without a point")
        if number == inf:
            raise self._error(at, "the number is greater than 1.7976931348623157E308")
        return number

    def _truth(self, node: Node, at: int) -> Node:
        """The node as a truth: a property becomes one, other values are refused."""
        if isinstance(node, TRUTHS):
            return node
        if isinstance(node, Property):
            return Truth(node)
        if isinstance(node, Literal) and (node.value is None or isinstance(node.value, bool)):
            return node
        raise self._error(at, "a condition is expected here")


def _negative(operand: Node) -> Node:
    """The number with the other sign; two more of them change nothing."""
    if isinstance(operand, Negative) and isinstance(operand.operand, Negative):
        return operand.operand
    return Negative(operand)


def _opposite(truth: Node) -> Node:
    return truth.operand if isinstance(truth, Not) else Not(truth)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
