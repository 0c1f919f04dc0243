"""How deep JSON is nested, told without building it."""

import re
from typing import Final

_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def depth_of(data: bytes, enough: int) -> int:
    """Returns how deep lists and objects are nested.

    Args:
        data: JSON that was read once already: in what is none, a quote without an end would be
            looked at from every quote before it.
        enough: deeper than this is not told apart.
    """
    # A text with so few brackets cannot be deeper, whichever of them stand in strings.
    if data.count(b"[") + data.count(b"{") <= enough:
        return min(data.count(b"[") + data.count(b"{"), enough)
    depth = deepest = 0
    for token in _TOKENS.finditer(data):
        first = data[token.start()]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > enough:
                break
        elif first in b"]}":
            depth -= 1
    return deepest
