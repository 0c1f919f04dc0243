"""Words of a SQL92 filter expression, cut one at a time.

The lexer is lazy: the parser stops after a complete expression and never looks at what follows, so
text behind it is neither read nor refused, as upstream does it.

    string      '...', a quote inside is doubled
    integer     0 or digits that do not begin with 0, with an optional L
    float       1.5  1.  .5  1e3
    name        a letter, _ or $, then letters, digits, _ and $; words of the language in any case
    sign        = <> > >= < <= ( ) , + -
    comment     -- to the end of a line that ends, or between /* and */

Source: the grammar `SelectorParser.jj` of 4.9.3.
"""

import re
from enum import Enum
from typing import Final, NamedTuple

from ledgermq.state.errors import SubscriptionParseError

WORDS: Final = frozenset(("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"))

_SKIPPED: Final = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*.*?\*/)+", re.DOTALL)
# What that begins with; nothing, at the end of the text.
_SKIPPED_BEGINS: Final = frozenset(("", " ", "\t", "\n", "\r", "\f", "-", "/"))
# In an order in which the first alternative that fits is the longest one.
_TOKEN: Final = re.compile(
    r"(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>(?:[1-9][0-9]*|0)[lL]?)"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<string>'(?:[^']|'')*')"
    r"|(?P<sign><>|>=|<=|[=<>(),+-])"
)
# Signs that no other token begins with.
_LONE_SIGNS: Final = frozenset("(),=+")
_EXCERPT_CHARS: Final = 20


class TokenKind(Enum):
    """What a token is."""

    FLOAT = "float"
    INTEGER = "integer"
    NAME = "name"
    STRING = "string"
    # A sign, or a word of the language in capitals.
    SIGN = "sign"
    END = "end"


_KINDS: Final[dict[str | None, TokenKind]] = {kind.value: kind for kind in TokenKind}
_NAME: Final = TokenKind.NAME
_SIGN: Final = TokenKind.SIGN
_WORD_CHARS_MAX: Final = max(map(len, WORDS))
# A token without the work of a NamedTuple's constructor, a third of its time.
_new_token: Final = tuple.__new__


class Token(NamedTuple):
    """One word of an expression."""

    kind: TokenKind
    text: str
    # Of its first character in the expression, from 0.
    position: int


class SqlSyntaxError(SubscriptionParseError):
    """An expression that does not parse or can never be evaluated.

    Attributes:
        position: of the character where it went wrong, from 0.
    """

    def __init__(self, expression: str, position: int, reason: str) -> None:
        excerpt = expression[position : position + _EXCERPT_CHARS]
        where = f"at character {position + 1}, near {excerpt!r}" if excerpt else "at its end"
        super().__init__(f"the SQL92 expression is wrong {where}: {reason}")
        self.position = position


def next_token(expression: str, position: int) -> Token:
    """Returns the token that begins at a position or after blanks and comments there.

    Raises:
        SqlSyntaxError: no token begins there.
    """
    first = expression[position : position + 1]
    if first in _LONE_SIGNS:
        return _new_token(Token, (_SIGN, first, position))
    if first in _SKIPPED_BEGINS:
        skipped = _SKIPPED.match(expression, position)
        if skipped is not None:
            position = skipped.end()
        if position >= len(expression):
            return Token(TokenKind.END, "", position)
    match = _TOKEN.match(expression, position)
    if match is None:
        raise SqlSyntaxError(expression, position, "no word of the language begins here")
    text = match[0]
    kind = _KINDS[match.lastgroup]
    if kind is _NAME and len(text) <= _WORD_CHARS_MAX:
        word = text.upper()
        if word in WORDS:
            return _new_token(Token, (_SIGN, word, position))
    return _new_token(Token, (kind, text, position))
