"""JsonBody: what all JSON bodies share.

A body class lists its members in Python names; on the wire they are camelCase. Reading is generous
as fastjson is: unknown members are skipped, numbers may be quoted, a null counts as absent, keys of
maps may be numbers or objects. Writing is what Java 4.9.3 writes, byte for byte but for the order
of maps.
"""

from functools import lru_cache
from typing import Any, ClassVar, Final, Self, TypeVar

import msgspec

from ledgermq.protocol import lenient_json
from ledgermq.protocol.errors import RemoteProtocolError

# Of a body in fastjson's dialect that any account may send: its reader takes two microseconds a
# byte. Stock clients write standard JSON here.
REQUEST_DIALECT_BYTES_MAX: Final = 4096

_T = TypeVar("_T")


class JsonBody(msgspec.Struct, frozen=True, rename="camel"):
    """A JSON object as a value."""

    # True when no member is ever None and no map below has keys other than text: msgspec writes
    # such a body itself.
    is_plain: ClassVar[bool] = False
    # Up to this size a body may be in fastjson's dialect, or have quoted numbers for words, nulls
    # and the like; beyond it must be what msgspec reads at once, since the slow way would stop all
    # others meanwhile. Answers that only our own tools read allow more.
    generous_bytes_max: ClassVar[int] = 65_536
    # Of these such in the dialect.
    dialect_bytes_max: ClassVar[int] = lenient_json.DIALECT_BYTES_MAX

    def encode(self) -> bytes:
        """Writes the body.

        Raises:
            LocalProtocolError: a text has a lone surrogate, or a number does not fit.
        """
        if self.is_plain:
            try:
                return _encode_sorted(self)
            except (UnicodeError, OverflowError):
                # The slow writer names what is wrong.
                pass
        return lenient_json.write(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Reads a body.

        Raises:
            RemoteProtocolError: it is no JSON object, or a member is missing or of a wrong type or
                range.
        """
        try:
            body: Self = _decoder(cls).decode(data)
        except lenient_json.DECODE_ERRORS as error:
            if len(data) > cls.generous_bytes_max:
                allowed = f"standard JSON, as it has over {cls.generous_bytes_max} bytes"
                raise RemoteProtocolError(cls.__name__, str(error), allowed) from error
            return cls.from_plain(lenient_json.read(data, cls.dialect_bytes_max))
        return body

    @classmethod
    def from_plain(cls, value: Any) -> Self:
        """Makes a body of what lenient_json.read returned.

        Raises:
            RemoteProtocolError: as for decode.
        """
        if lenient_json.is_deep(value):
            raise RemoteProtocolError(cls.__name__, "too deep", f"depth {lenient_json.DEPTH_MAX}")
        return read_plain(cls.repair(_without_nulls(value)), cls)

    @classmethod
    def repair(cls, value: Any) -> Any:
        """Turns what some peers send into what all others do; few bodies need it."""
        return value


def read_plain(value: Any, target: type[_T]) -> _T:
    """Makes a value of type `target` of dicts, lists and plain values; numbers and keys may be
    text.

    Raises:
        RemoteProtocolError: it does not fit; the error names where.
    """
    try:
        return msgspec.convert(value, target, strict=False, str_keys=True)
    except lenient_json.DECODE_ERRORS as error:
        text, _, place = str(error).partition(" - at ")
        field = f"{target.__name__} {place.strip('`')}".rstrip()
        allowed = text.removeprefix("Expected ")
        raise RemoteProtocolError(field, _place_of(value, place), allowed) from error


def _place_of(value: Any, place: str) -> str:
    """Says what stands at the end of a path such as $.queueDatas[0].perm, as far as it is plain."""
    found = value
    for name in place.strip("`").removeprefix("$").replace("[", ".[").split("."):
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name[1:-1].isdecimal() and int(name[1:-1]) < len(found):
            found = found[int(name[1:-1])]
        elif name:
            return "wrong"
    return f"{found}" if isinstance(found, str | int | float | bool) else type(found).__name__


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        members = value.items()
        return {key: _without_nulls(member) for key, member in members if member is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


@lru_cache(maxsize=256)
def _decoder(body_class: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(body_class, strict=False)


_encode_sorted = msgspec.json.Encoder(order="sorted").encode
