"""Words of a SQL92 filter expression.

    string      '...', a quote inside is doubled
    integer     0 or digits that do not begin with 0, with an optional L
    float       1.5  1.  .5  1e3
    name        a letter, _ or $, then letters, digits, _ and $; words of the language in any case
    sign        = <> > >= < <= ( ) , + -
    comment     -- to the end of a line that ends, or between /* and */

An expression is cut at once, up to the first place where no word begins: to ask for one at a time
takes several times as long, and a broker reads whatever expressions its clients make up. What was
cut behind a complete expression is not looked at.

Source: the grammar `SelectorParser.jj` of 4.9.3.
"""

import re
from typing import Final

from ledgermq.state.errors import SubscriptionParseError

# Stands behind the last word; and in place of all that stands where no word begins.
END: Final = ""
WRONG: Final = "?"
LANGUAGE: Final = frozenset(("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"))

# In an order in which the first alternative that fits is the longest one.
_WORD: Final = (
    r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
    r"|(?:[1-9][0-9]*|0)[lL]?"
    r"|[A-Za-z_$][A-Za-z0-9_$]*"
    r"|'(?:[^']|'')*'"
    r"|<>|>=|<=|[=<>(),+-]"
)
_FULL: Final = re.compile(_WORD)
_BLANK: Final = r"[ \t\n\r\f]|/\*.*?\*/"
_SKIPPED: Final = (rf"(?:{_BLANK}|--[^\n\r]*[\n\r])*", rf"(?:{_BLANK})*")
# Each in two forms: with comments to the end of a line, and for what stands in the last line. There
# each -- would be followed to the end of the expression, and is two signs.
_SKIP: Final = tuple(re.compile(skipped, re.DOTALL) for skipped in _SKIPPED)
_NEXT: Final = tuple(re.compile(rf"{skipped}({_WORD}|.+)?", re.DOTALL) for skipped in _SKIPPED)
_EXCERPT_CHARS: Final = 20


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


class _Meanings(dict[str, str]):
    """What a word is to the grammar: itself, in capitals; END for values, names, and the end."""

    def __missing__(self, word: str) -> str:
        # Not kept: there is no end of names.
        meaning = word.upper()
        return meaning if meaning in LANGUAGE else END


MEANINGS: Final = _Meanings(
    {word: word for word in (*LANGUAGE, *"= <> > >= < <= ( ) , + -".split(), WRONG)}
    | {word.lower(): word for word in LANGUAGE}
)


def words_of(expression: str) -> list[str]:
    """Returns the words of an expression and END; before that WRONG, where no word begins."""
    words = []
    position = 0
    last_line = _last_line(expression)
    if last_line and "--" in expression:
        for match in _NEXT[0].finditer(expression):
            words.append(match[1] or END)
            position = match.end()
            if position >= last_line:
                break
    words += _NEXT[1].findall(expression, position)
    while len(words) > 1 and words[-2] == END:
        words.pop()
    if len(words) > 1 and _FULL.fullmatch(words[-2]) is None:
        words[-2] = WRONG
    return words


def position_of(expression: str, number: int) -> int:
    """Returns where a word begins, its number being from 0, or where END stands."""
    last_line = _last_line(expression)
    position = end = 0
    for _ in range(number + 1):
        form = int(end >= last_line)
        skipped, following = _SKIP[form].match(expression, end), _NEXT[form].match(expression, end)
        assert skipped is not None and following is not None
        position, end = skipped.end(), following.end()
    return position


def _last_line(expression: str) -> int:
    """Returns where the last line begins, from 0."""
    return 1 + max(expression.rfind("\n"), expression.rfind("\r"))
