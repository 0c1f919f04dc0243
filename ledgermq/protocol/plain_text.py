"""Text of others made fit for a log or a terminal: no character of it acts.

A name, an address or a remark that a peer sent may hold ends of lines, which would forge lines of a
log, and sequences that a terminal carries out. Each such character is shown as its number.
"""

import re
from typing import Final

# Controls, ends of lines of Unicode, what changes the direction of writing, halves of characters.
_ACTING: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def escaped(text: str) -> str:
    r"""Returns a text with \n, \x1b and the like in place of each character that acts."""
    return _ACTING.sub(_shown, text)


def escaped_lines(text: str) -> str:
    """As `escaped`, but lines stay lines: for text that was made here of several lines."""
    return "\n".join(map(escaped, text.split("\n")))


def _shown(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
