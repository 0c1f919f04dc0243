"""RemotingCommand: one frame as a value, and how it becomes bytes and back.

A request and its answer have the same shape; bit 0 of `flag` tells them apart, and `opaque` ties
them together. The typed form of `ext_fields` lives in the headers package; this module only calls
it. No I/O, no limits on the body but those of the frame.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from ledgermq.protocol.codes import ONE_WAY_FLAG, RESPONSE_FLAG, VERSION_4_9_3
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.framing import FRAME_BYTES_MAX
from ledgermq.protocol.header_codec import (
    HEADER_BYTES_MAX,
    HeaderParts,
    decode_binary_header,
    decode_json_header,
    encode_binary_header,
    encode_json_header,
)

_JSON: Final = 0
_ROCKETMQ: Final = 1
# 4 length of all that follows, 4 serialize type and header length
_PREFIX: Final = Struct(">II")
# 4 serialize type and header length
_HEADER_WORD: Final = Struct(">I")
_HEADER_LENGTH_MASK: Final = 0x00FF_FFFF
_TYPE_SHIFT: Final = 24


class _FieldsOut(Protocol):
    """What this module needs of a typed header that is sent."""

    def to_ext_fields(self) -> dict[str, str]: ...


class _FieldsIn(Protocol):
    """What this module needs of a typed header that is received."""

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str]) -> Self: ...


class _BodyIn(Protocol):
    """What this module needs of a typed body that is received."""

    @classmethod
    def decode(cls, body: bytes) -> Self: ...


_Header = TypeVar("_Header", bound=_FieldsIn)
_Body = TypeVar("_Body", bound=_BodyIn)


class RemotingCommand(msgspec.Struct, kw_only=True, gc=False):
    """One request or answer."""

    # A request code, or in an answer a response code. Any 32-bit number.
    code: int
    # Number of the sender's language, a LanguageCode when it is known.
    language: int = 0
    # Ordinal of the sender's version in MQVersion.
    version: int = VERSION_4_9_3
    # Number of the request; the answer repeats it. Each direction of a connection counts for
    # itself.
    opaque: int = 0
    # Bit 0: answer. Bit 1: one-way.
    flag: int = 0
    # Text for people, mostly why a request failed.
    remark: str | None = None
    # Typed fields as text, by their names on the wire; None when the command has none.
    ext_fields: dict[str, str] | None = None
    # What the code says it is.
    body: bytes = b""
    # How the header came or is to be written; an answer repeats that of its request.
    serialize_type: int = _JSON
    # What fields and body were read as last: class, what was read, the value. Whoever judges a
    # request and whoever carries it out get the same object. Nothing of it is sent.
    read_fields: tuple[Any, Any, Any] | None = None
    read_body: tuple[Any, Any, Any] | None = None

    @property
    def is_response(self) -> bool:
        """True for an answer, also for one that has the one-way bit as well."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_one_way(self) -> bool:
        """True for a request that must not be answered."""
        return self.flag & (RESPONSE_FLAG | ONE_WAY_FLAG) == ONE_WAY_FLAG

    @classmethod
    def request(
        cls,
        code: int,
        header: _FieldsOut | None = None,
        body: bytes = b"",
        *,
        one_way: bool = False,
    ) -> Self:
        """Makes a request; `opaque` is given by the connection that sends it."""
        return cls(
            code=int(code),
            flag=ONE_WAY_FLAG if one_way else 0,
            ext_fields=None if header is None else header.to_ext_fields(),
            body=body,
        )

    def response(
        self,
        code: int,
        remark: str | None = None,
        header: _FieldsOut | None = None,
        body: bytes = b"",
    ) -> "RemotingCommand":
        """Makes the answer to this request: same opaque, same form of the header, answer bit."""
        return RemotingCommand(
            code=int(code),
            opaque=self.opaque,
            flag=RESPONSE_FLAG,
            remark=remark,
            ext_fields=None if header is None else header.to_ext_fields(),
            body=body,
            serialize_type=self.serialize_type,
        )

    def header(self, header_class: type[_Header]) -> _Header:
        """Reads the ext fields as `header_class`, once.

        Raises:
            RemoteProtocolError: a required field is missing or a value does not fit; the error
                names the field.
        """
        read = self.read_fields
        if read is not None and read[0] is header_class and read[1] is self.ext_fields:
            known: _Header = read[2]
            return known
        header = header_class.from_ext_fields(self.ext_fields or {})
        self.read_fields = (header_class, self.ext_fields, header)
        return header

    def body_as(self, body_class: type[_Body]) -> _Body:
        """Reads the body as `body_class`, once.

        Raises:
            RemoteProtocolError: it is no such body.
        """
        read = self.read_body
        if read is not None and read[0] is body_class and read[1] is self.body:
            known: _Body = read[2]
            return known
        body = body_class.decode(self.body)
        self.read_body = (body_class, self.body, body)
        return body


def encode(command: RemotingCommand) -> bytes:
    """Writes a command as one whole frame with its length bytes.

    Raises:
        LocalProtocolError: the command does not fit in a frame or in its form of the header.
    """
    return _head(command, len(command.body)) + command.body


def encode_parts(
    command: RemotingCommand, body_parts: Sequence[bytes | memoryview]
) -> list[bytes | memoryview]:
    """Writes a command whose body is given in pieces, which are not copied.

    Args:
        command: its own body is not used.
        body_parts: pieces of the body in order, views of single bytes; they stay the caller's.

    Returns:
        The head of the frame and then the pieces as they were given.

    Raises:
        LocalProtocolError: as for encode.
    """
    return [_head(command, sum(map(len, body_parts))), *body_parts]


def decode(frame: bytes) -> RemotingCommand:
    """Reads one frame.

    Args:
        frame: without its four length bytes, as FrameDecoder returns it.

    Raises:
        RemoteProtocolError: the header is not whole, of an unknown form, or not readable.
    """
    size = len(frame)
    if size < _HEADER_WORD.size:
        raise RemoteProtocolError("frame length", size, f"at least {_HEADER_WORD.size}")
    (word,) = _HEADER_WORD.unpack_from(frame, 0)
    header_length = word & _HEADER_LENGTH_MASK
    serialize_type = word >> _TYPE_SHIFT
    if header_length > size - 4 or header_length > HEADER_BYTES_MAX:
        limit = min(size - 4, HEADER_BYTES_MAX)
        raise RemoteProtocolError("header length", header_length, limit)
    end = 4 + header_length
    if serialize_type == _JSON:
        parts = decode_json_header(frame[4:end])
    elif serialize_type == _ROCKETMQ:
        parts = decode_binary_header(frame[4:end])
    else:
        raise RemoteProtocolError("serialize type", serialize_type, "0 (JSON) or 1 (ROCKETMQ)")
    code, language, version, opaque, flag, remark, ext_fields = parts
    return RemotingCommand(
        code=code,
        language=language,
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark,
        ext_fields=ext_fields,
        body=frame[end:],
        serialize_type=serialize_type,
    )


def _head(command: RemotingCommand, body_bytes: int) -> bytes:
    """Everything of a frame before its body."""
    parts: HeaderParts = (
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
        command.ext_fields,
    )
    if command.serialize_type == _ROCKETMQ:
        header = encode_binary_header(parts)
    else:
        header = encode_json_header(parts)
    if len(header) > HEADER_BYTES_MAX:
        raise LocalProtocolError("header length", len(header), HEADER_BYTES_MAX)
    length = 4 + len(header) + body_bytes
    if length + 4 > FRAME_BYTES_MAX:
        raise LocalProtocolError("frame length", length + 4, FRAME_BYTES_MAX)
    return _PREFIX.pack(length, command.serialize_type << _TYPE_SHIFT | len(header)) + header
