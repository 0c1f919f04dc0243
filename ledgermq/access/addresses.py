"""Patterns of client addresses, as plain_acl.yml writes them.

    *                    every address, also *.*.*.*
    192.168.1.10         this one
    192.168.*.*          stars at the end
    192.168.1-5.*        a range in the last part that is no star
    192.168.1.{1,2,3}    a set there
    a,b                  either

IPv6 alike, with colons and hexadecimal digits; `::` stands for parts of zero. An empty text matches
nothing. Source: `RemoteAddressStrategyFactory.java`.
"""

import re
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

Address = IPv4Address | IPv6Address
_Matches = Callable[[Address], bool]

_EVERYTHING: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_COMMAS_OUTSIDE_SETS: Final = re.compile(r",(?![^{]*\})")
_TEXT_CHARS_MAX: Final = 4096


class AddressPattern:
    """One text of plain_acl.yml, ready to be matched."""

    __slots__ = ("_alternatives", "text")

    def __init__(self, text: str) -> None:
        """Parses a pattern.

        Raises:
            ValueError: the text is no pattern; says what is wrong.
        """
        self.text = text.strip()
        if len(self.text) > _TEXT_CHARS_MAX:
            raise ValueError(f"a pattern of {len(text)} characters, allowed are {_TEXT_CHARS_MAX}")
        parts = [part.strip() for part in _COMMAS_OUTSIDE_SETS.split(self.text)]
        self._alternatives = [_parse(part) for part in parts if part]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AddressPattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, host: str) -> bool:
        """Tells whether a client address, in the form the socket gives it, fits."""
        if not self._alternatives:
            return False
        try:
            address: Address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(matches(address) for matches in self._alternatives)


def _parse(text: str) -> _Matches:
    if text in _EVERYTHING:
        return _is_any
    if not any(mark in text for mark in "*{-"):
        try:
            return partial(_is_same, ip_address(text))
        except ValueError:
            raise ValueError(f"{text!r} is no address") from None
    if ":" in text:
        return _parse_parts(text, _expanded(text), 16, 0xFFFF, 8)
    return _parse_parts(text, text.split("."), 10, 0xFF, 4)


def _is_any(address: Address) -> bool:
    return True


def _is_same(wanted: Address, address: Address) -> bool:
    return address == wanted


def _expanded(text: str) -> list[str]:
    """The eight parts of an IPv6 pattern."""
    head, gap, tail = text.partition("::")
    before = head.split(":") if head else []
    after = tail.split(":") if tail else []
    missing = 8 - len(before) - len(after)
    if not gap or missing < 1 or "::" in tail:
        return text.split(":")
    return [*before, *["0"] * missing, *after]


def _parse_parts(text: str, parts: list[str], base: int, part_max: int, count: int) -> _Matches:
    """Patterns part by part: numbers, then at most one range or set, then only stars."""
    if len(parts) != count:
        raise ValueError(f"{text!r} has {len(parts)} parts, an address has {count}")
    while parts and parts[-1] == "*":
        parts.pop()
    allowed: list[frozenset[int] | range] = []
    for place, part in enumerate(parts):
        low, dash, high = part.partition("-")
        if part.startswith("{") and part.endswith("}"):
            numbers = frozenset(_number(text, n, base, part_max) for n in part[1:-1].split(","))
            allowed.append(numbers)
        elif dash:
            first, last = _number(text, low, base, part_max), _number(text, high, base, part_max)
            if first > last:
                raise ValueError(f"{text!r} has a range that begins after its end")
            allowed.append(range(first, last + 1))
        else:
            allowed.append(frozenset((_number(text, part, base, part_max),)))
            continue
        if place != len(parts) - 1:
            raise ValueError(f"{text!r} has more than stars behind a range or set")
    return partial(_fits, allowed, count)


def _number(text: str, part: str, base: int, part_max: int) -> int:
    part = part.strip()
    pattern = r"[0-9]{1,3}" if base == 10 else r"[0-9a-fA-F]{1,4}"
    if not re.fullmatch(pattern, part) or int(part, base) > part_max:
        raise ValueError(f"{text!r} has the part {part!r}; stars stand at the end only")
    return int(part, base)


def _fits(allowed: list[frozenset[int] | range], count: int, address: Address) -> bool:
    packed = address.packed
    size = 1 if count == 4 else 2
    if len(packed) != count * size:
        return False
    numbers = [
        int.from_bytes(packed[start : start + size], "big") for start in range(0, len(packed), size)
    ]
    return all(number in wanted for number, wanted in zip(numbers, allowed, strict=False))
