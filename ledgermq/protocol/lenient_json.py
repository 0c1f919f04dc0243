"""JSON as fastjson writes it: what the standard allows, and maps whose keys are numbers or objects.

    {0:"10.0.0.1:10911",1:"10.0.0.2:10911"}
    {{"brokerName":"broker-a","queueId":0,"topic":"TopicA"}:{"maxOffset":7}}

`read` takes both dialects. A key becomes text: of a number its digits, of an object its JSON as it
stood there, which is what fastjson itself writes when it quotes such a key. `write` gives the
unquoted dialect, or the standard one with quoted number keys. Members of objects are written in
alphabetical order and without those that are null.

Standard JSON is read by msgspec; only what it refuses meets the slow reader here, which is bounded
in size and depth.
"""

import math
import re
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import msgspec

from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError

# Deepest nesting of a document in fastjson's dialect; the deepest real one has six.
DEPTH_MAX: Final = 32
# Largest document for the slow reader, which may take a second for one of a million bytes.
DIALECT_BYTES_MAX: Final = 4 * 1024 * 1024
# A 64-bit number has at most 19 digits and a sign.
_NUMBER_CHARS_MAX: Final = 40
_INTEGER_CHARS_MAX: Final = 20

# What msgspec raises on bad bytes; the last one for nesting deeper than the interpreter's stack.
DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)

_SPACE: Final = re.compile(r"[ \t\r\n]*+")
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NUMBER: Final = re.compile(
    r"-?(?:0|[1-9][0-9]*+)(?P<fraction>(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)"
)
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+", re.ASCII)
_WORDS: Final = {"true": True, "false": False, "null": None}

# Exactly these: an Enum may be one of them, too.
_PLAIN: Final = frozenset((int, str, bool))

_decode_plain = msgspec.json.Decoder().decode
_decode_text = msgspec.json.Decoder(str).decode
_encode_plain = msgspec.json.Encoder().encode


def read(data: bytes, dialect_bytes_max: int = DIALECT_BYTES_MAX) -> Any:
    """Reads a document of either dialect into dicts, lists and plain values.

    Args:
        data: the document.
        dialect_bytes_max: it may have so many where it is no standard JSON.

    Raises:
        RemoteProtocolError: it is not one document, or too deep, or in the dialect and too large.
    """
    try:
        return _decode_plain(data)
    except DECODE_ERRORS:
        if len(data) > dialect_bytes_max:
            raise RemoteProtocolError("size of a JSON body", len(data), dialect_bytes_max) from None
        return _Reader(data).document()


def write(value: object, *, has_quoted_keys: bool = False) -> bytes:
    """Writes a value.

    Args:
        value: structs of msgspec, dicts, lists, tuples, sets and plain values. Keys of a dict may
            be text, numbers or structs; sets are sorted.
        has_quoted_keys: True writes keys that are numbers or objects as text, as the standard wants
            it.

    Raises:
        LocalProtocolError: a text has a lone surrogate, or a number is not finite.
    """
    out: list[bytes] = []
    try:
        _write(value, out, has_quoted_keys)
    except (UnicodeError, OverflowError, TypeError) as error:
        raise LocalProtocolError(
            "JSON body", str(error), "UTF-8 text and 64-bit numbers"
        ) from error
    return b"".join(out)


def write_plain(value: object) -> bytes:
    """Writes dicts with text for keys, lists and plain values as `write` does, ten times as fast,
    but for members that are null or not finite.

    Raises:
        LocalProtocolError: a text has a lone surrogate, or a number has more than 64 bits.
    """
    try:
        return _encode_plain(value)
    except (UnicodeError, OverflowError) as error:
        raise LocalProtocolError(
            "JSON body", str(error), "UTF-8 text and 64-bit numbers"
        ) from error


def is_deep(value: object) -> bool:
    """Tells whether dicts and lists are nested deeper than any real document.

    How deep the standard library reads depends on the interpreter, and on the stack that is left;
    this does not.
    """
    level: list[Any] = [[value]]
    for _ in range(DEPTH_MAX + 1):
        level = [
            member
            for container in level
            for member in (container.values() if isinstance(container, dict) else container)
            if isinstance(member, (dict, list))
        ]
        if not level:
            return False
    return True


def _write(value: object, out: list[bytes], has_quoted_keys: bool) -> None:
    if isinstance(value, msgspec.Struct):
        separator = b"{"
        for key, name in _members_of(type(value)):
            member = getattr(value, name)
            if member is None:
                continue
            out += (separator, key)
            separator = b","
            # Figures of a group have tens of thousands of these.
            if type(member) in _PLAIN:
                out.append(_encode_plain(member))
            else:
                _write(member, out, has_quoted_keys)
        out.append(b"{}" if separator == b"{" else b"}")
    elif isinstance(value, dict):
        _write_members(list(value.items()), out, has_quoted_keys)
    elif isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        if _PLAIN.issuperset(map(type, items)):
            # Names, of which a name server has tens of thousands.
            out.append(_encode_plain(items))
            return
        separator = b"["
        for item in items:
            out.append(separator)
            _write(item, out, has_quoted_keys)
            separator = b","
        out.append(b"]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise LocalProtocolError("number in a JSON body", value, "a finite number")
    elif isinstance(value, Enum):
        out.append(_encode_plain(value.value))
    else:
        out.append(_encode_plain(value))


@lru_cache
def _members_of(struct: type[msgspec.Struct]) -> tuple[tuple[bytes, str], ...]:
    """Keys as they are written, a colon behind them, and names of a struct's members, in order."""
    names = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    return tuple((_encode_plain(key) + b":", name) for key, name in sorted(names))


def _write_members(members: list[tuple[Any, Any]], out: list[bytes], has_quoted_keys: bool) -> None:
    separator = b"{"
    for key, member in members:
        out.append(separator)
        separator = b","
        if isinstance(key, str):
            out.append(_encode_plain(key))
        elif type(key) is int and not has_quoted_keys:
            # Queue ids, of which offsets of groups have hundreds of thousands.
            out.append(_encode_plain(key))
        else:
            text = write(key, has_quoted_keys=has_quoted_keys)
            out.append(_encode_plain(text.decode()) if has_quoted_keys else text)
        out.append(b":")
        if type(member) in _PLAIN:
            out.append(_encode_plain(member))
        else:
            _write(member, out, has_quoted_keys)
    out.append(b"}" if members else b"{}")


class _Reader:
    """Reads one document from the left to the right."""

    def __init__(self, data: bytes) -> None:
        try:
            self._text = data.decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("JSON body", str(error), "UTF-8") from error
        self._at = 0

    def document(self) -> Any:
        """Reads the document, which must be all there is."""
        value = self._value(0)
        if self._peek():
            raise self._wrong("the end")
        return value

    def _value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise RemoteProtocolError("depth of a JSON body", depth, DEPTH_MAX)
        first = self._peek()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first == '"':
            return self._string()
        if first == "-" or first.isdecimal():
            return self._number()
        name = _NAME.match(self._text, self._at)
        if name is None or name.group() not in _WORDS:
            raise self._wrong("a value")
        self._at = name.end()
        return _WORDS[name.group()]

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._at += 1
        if self._peek() == "}":
            self._at += 1
            return members
        while True:
            key = self._key(depth)
            self._expect(":")
            members[key] = self._value(depth + 1)
            if self._peek() == ",":
                self._at += 1
                continue
            self._expect("}")
            return members

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return items
        while True:
            items.append(self._value(depth + 1))
            if self._peek() == ",":
                self._at += 1
                continue
            self._expect("]")
            return items

    def _key(self, depth: int) -> str:
        first = self._peek()
        if first == '"':
            return self._string()
        start = self._at
        if first == "{":
            self._value(depth + 1)
            return self._text[start : self._at]
        if first == "-" or first.isdecimal():
            self._number()
            return self._text[start : self._at]
        name = _NAME.match(self._text, start)
        if name is None:
            raise self._wrong("a key")
        self._at = name.end()
        return name.group()

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            raise self._wrong("the end of a text")
        self._at = found.end()
        try:
            return _decode_text(found.group())
        except DECODE_ERRORS as error:
            raise RemoteProtocolError("text in a JSON body", found.group(), str(error)) from error

    def _number(self) -> int | float:
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            raise self._wrong("a number")
        digits = found.group()
        self._at = found.end()
        is_integer = not found.group("fraction")
        limit = _INTEGER_CHARS_MAX if is_integer else _NUMBER_CHARS_MAX
        if len(digits) > limit:
            raise RemoteProtocolError("length of a number", len(digits), limit)
        if is_integer:
            return int(digits)
        number = float(digits)
        if not math.isfinite(number):
            raise RemoteProtocolError("number in a JSON body", digits, "a finite number")
        return number

    def _peek(self) -> str:
        """Skips blanks and returns the next character, an empty text at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise self._wrong(character)
        self._at += 1

    def _wrong(self, wanted: str) -> RemoteProtocolError:
        near = self._text[self._at : self._at + 40]
        return RemoteProtocolError(f"JSON body at character {self._at}", near, wanted)
