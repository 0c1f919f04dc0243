"""Java properties text: reading and writing, as `java.util.Properties` does it.

Used for `broker.conf`, `namesrv.conf` and the bodies of the configuration requests. One logical
line is one entry; a line that ends in an odd number of backslashes goes on in the next one; `#` and
`!` begin a comment line; the first unescaped `=`, `:` or blank ends the key. A later entry replaces
an earlier one with the same key. Files are ISO-8859-1 with `\\uXXXX` for all else; since editors of
today write UTF-8, a file that is valid UTF-8 is read as that.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS: Final = " \t\f"
# Java's ends of a line; str.splitlines knows more, among them bytes of ISO-8859-1.
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_HEXADECIMAL: Final = re.compile(r"[0-9a-fA-F]{4}")


def parse_properties_file(data: bytes) -> dict[str, str]:
    """Returns the entries of a properties file.

    Raises:
        ValueError: as parse_properties.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """Returns the entries of a properties text in their order.

    Args:
        text: the whole file; any line ends; a byte order mark is skipped.

    Raises:
        ValueError: for a `\\u` escape without four hexadecimal digits.
    """
    entries: dict[str, str] = {}
    for line in _logical_lines(text.removeprefix("\ufeff")):
        key, value = _split_entry(line)
        entries[_unescape(key)] = _unescape(value).rstrip()
    return entries


def format_properties(entries: Mapping[str, str]) -> str:
    """Returns a line `key=value` for each entry, in the order given."""
    return "".join(f"{key}={value}\n" for key, value in entries.items())


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []
    for raw in _LINE_END.split(text):
        line = raw.lstrip(_BLANKS)
        if not parts and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield "".join(parts) + line
        parts = []
    if parts:
        yield "".join(parts)


def _split_entry(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 2
            continue
        if line[position] in "=:" + _BLANKS:
            break
        position += 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position >= len(text):
            parts.append(char)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if not _HEXADECIMAL.fullmatch(digits):
                raise ValueError(
                    f"\\u{digits} in a properties text: \\u needs four hexadecimal digits"
                )
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    return "".join(parts)
