"""The header of a command, in its two forms on the wire.

JSON (type 0) is one object:

    {"code":105,"extFields":{"topic":"TopicA"},"flag":0,"language":"JAVA","opaque":0,
     "serializeTypeCurrentRPC":"JSON","version":399}

ROCKETMQ (type 1) is, big endian:

    2 code, 1 language, 2 version, 4 opaque, 4 flag, 4 remark length, remark,
    4 ext fields length, then for each field: 2 key length, key, 4 value length, value

Both decoders take any bytes and give HeaderParts or raise RemoteProtocolError. Both encoders raise
LocalProtocolError for what the form cannot carry. Ext fields are text: a JSON number or boolean
keeps the very characters it was sent with, because a signature is computed over them; a null counts
as absent.

Source: RemotingCommand.java, RocketMQSerializable.java, LanguageCode.java.
"""

import struct
from struct import Struct
from typing import Annotated, Final

import msgspec

from ledgermq.protocol.codes import LanguageCode
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError

# A header carries the properties of a message as JSON text, where one byte may take six; a message
# with properties over the limit of 32,767 bytes must still reach the processor that refuses it.
HEADER_BYTES_MAX: Final = 262_144
# Ext fields of one command; the largest real header has about twenty.
EXT_FIELDS_COUNT_MAX: Final = 1024

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
_INT16_MAX: Final = 2**15 - 1

# code, language, version, opaque, flag, remark, ext_fields: the order of HeaderParts everywhere in
# this room.
HeaderParts = tuple[int, int, int, int, int, str | None, dict[str, str] | None]

_Int32 = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]

_LANGUAGE_OF_NAME: Final[dict[str, int]] = {code.name: int(code) for code in LanguageCode}
_NAME_OF_LANGUAGE: Final[dict[int, str]] = {int(code): code.name for code in LanguageCode}
_LANGUAGE_MAX: Final = 127
_JAVA: Final = int(LanguageCode.JAVA)
_OTHER: Final = int(LanguageCode.OTHER)


class _JsonHeader(msgspec.Struct, gc=False):
    """What a JSON header says; members that nobody reads are skipped."""

    code: _Int32 = 0
    language: str | int | None = "JAVA"
    version: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None


class _LooseJsonHeader(msgspec.Struct, gc=False):
    """The same, for peers that do not quote numbers and booleans in extFields, or quote the numbers
    beside them.
    """

    code: _Int32 = 0
    language: str | int | None = "JAVA"
    version: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    extFields: dict[str, msgspec.Raw] | None = None


class _JsonHeaderOut(msgspec.Struct, omit_defaults=True, gc=False):
    """What is written; the members stand in the order of Java's writer."""

    code: int
    extFields: dict[str, str] | None = None
    flag: int | None = None
    language: str | None = None
    opaque: int | None = None
    remark: str | None = None
    serializeTypeCurrentRPC: str | None = None
    version: int | None = None


_decode_strict = msgspec.json.Decoder(_JsonHeader).decode
_decode_loose = msgspec.json.Decoder(_LooseJsonHeader, strict=False).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode_json = msgspec.json.Encoder().encode

# 2 code, 1 language, 2 version, 4 opaque, 4 flag, 4 remark length
_FIXED: Final = Struct(">hbhiii")
# 4 length of a text or of all ext fields
_INT32: Final = Struct(">i")
# 2 length of a key
_INT16: Final = Struct(">h")
# What msgspec raises on bad bytes; the last one for nesting deeper than the interpreter's stack.
_DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def decode_json_header(data: bytes) -> HeaderParts:
    """Reads a JSON header.

    Raises:
        RemoteProtocolError: the bytes are not one JSON object with fields of the right types and
            ranges, or there are too many ext fields.
    """
    try:
        header = _decode_strict(data)
    except _DECODE_ERRORS:
        return _decode_loose_header(data)
    ext_fields = header.extFields
    if ext_fields is not None and len(ext_fields) > EXT_FIELDS_COUNT_MAX:
        raise RemoteProtocolError("count of extFields", len(ext_fields), EXT_FIELDS_COUNT_MAX)
    language = header.language
    return (
        header.code,
        _LANGUAGE_OF_NAME.get(language, _OTHER)
        if isinstance(language, str)
        else _language_number(language),
        header.version,
        header.opaque,
        header.flag,
        header.remark,
        ext_fields,
    )


def encode_json_header(parts: HeaderParts) -> bytes:
    """Writes a JSON header as Java does: members in alphabetical order, no blanks, absent ones left
    out.

    Raises:
        LocalProtocolError: a text has a lone surrogate, or a number does not fit in 32 bits.
    """
    code, language, version, opaque, flag, remark, ext_fields = parts
    if not (
        INT32_MIN <= code <= INT32_MAX
        and INT32_MIN <= version <= INT32_MAX
        and INT32_MIN <= opaque <= INT32_MAX
        and INT32_MIN <= flag <= INT32_MAX
    ):
        raise LocalProtocolError("number in a header", max(code, version, opaque, flag), INT32_MAX)
    header = _JsonHeaderOut(
        code,
        ext_fields,
        flag,
        _NAME_OF_LANGUAGE.get(language, "OTHER"),
        opaque,
        remark,
        "JSON",
        version,
    )
    try:
        return _encode_json(header)
    except (UnicodeError, TypeError) as error:
        raise LocalProtocolError("header", str(error), "text that UTF-8 can carry") from error


def decode_binary_header(data: bytes) -> HeaderParts:
    """Reads a ROCKETMQ header.

    Raises:
        RemoteProtocolError: a length is negative or passes the end, bytes are left over, a text is
            not UTF-8, or there are too many ext fields.
    """
    size = len(data)
    if size < _FIXED.size + _INT32.size:
        raise RemoteProtocolError("binary header length", size, f"at least {_FIXED.size + 4}")
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(data, 0)
    start = _FIXED.size
    if not 0 <= remark_length <= size - start - _INT32.size:
        raise RemoteProtocolError("remark length", remark_length, size - start - _INT32.size)
    ext_start = start + remark_length + _INT32.size
    (ext_length,) = _INT32.unpack_from(data, start + remark_length)
    if ext_length != size - ext_start:
        raise RemoteProtocolError("extFields length", ext_length, size - ext_start)
    try:
        remark = data[start : start + remark_length].decode() if remark_length else None
        ext_fields = _decode_binary_fields(data, ext_start) if ext_length else None
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("text in binary header", str(error), "UTF-8") from error
    return (code, language, version, opaque, flag, remark, ext_fields)


def encode_binary_header(parts: HeaderParts) -> bytes:
    """Writes a ROCKETMQ header.

    Raises:
        LocalProtocolError: code or version does not fit in 16 bits, a key is longer than 32,767
            bytes, or a text has a lone surrogate.
    """
    code, language, version, opaque, flag, remark, ext_fields = parts
    for field, number in (("code", code), ("version", version)):
        if not -_INT16_MAX - 1 <= number <= _INT16_MAX:
            raise LocalProtocolError(f"{field} in a binary header", number, _INT16_MAX)
    try:
        remark_bytes = remark.encode() if remark else b""
        fields: list[bytes] = []
        for key, value in (ext_fields or {}).items():
            key_bytes = key.encode()
            value_bytes = value.encode()
            if len(key_bytes) > _INT16_MAX:
                raise LocalProtocolError("length of a key", len(key_bytes), _INT16_MAX)
            fields.append(_INT16.pack(len(key_bytes)) + key_bytes)
            fields.append(_INT32.pack(len(value_bytes)) + value_bytes)
    except UnicodeEncodeError as error:
        raise LocalProtocolError("header", str(error), "text that UTF-8 can carry") from error
    ext_bytes = b"".join(fields)
    try:
        fixed = _FIXED.pack(code, language, version, opaque, flag, len(remark_bytes))
    except struct.error as error:
        raise LocalProtocolError("binary header", str(error), "32-bit numbers") from error
    return b"".join((fixed, remark_bytes, _INT32.pack(len(ext_bytes)), ext_bytes))


def _decode_loose_header(data: bytes) -> HeaderParts:
    try:
        header = _decode_loose(data)
        raw_fields = header.extFields
        ext_fields: dict[str, str] | None = None
        if raw_fields is not None:
            if len(raw_fields) > EXT_FIELDS_COUNT_MAX:
                raise RemoteProtocolError(
                    "count of extFields", len(raw_fields), EXT_FIELDS_COUNT_MAX
                )
            ext_fields = {}
            for key, raw in raw_fields.items():
                text = _text_of(key, bytes(raw))
                if text is not None:
                    ext_fields[key] = text
    except _DECODE_ERRORS as error:
        raise RemoteProtocolError("JSON header", _quote(data), str(error)) from error
    language = (
        _LANGUAGE_OF_NAME.get(header.language, _OTHER)
        if isinstance(header.language, str)
        else _language_number(header.language)
    )
    return (
        header.code,
        language,
        header.version,
        header.opaque,
        header.flag,
        header.remark,
        ext_fields,
    )


def _text_of(key: str, raw: bytes) -> str | None:
    """Turns the JSON text of one ext field into the text that Java would have sent."""
    raw = raw.strip()
    first = raw[:1]
    if first == b'"':
        return _decode_text(raw)
    if first in (b"{", b"["):
        raise RemoteProtocolError(f"ext field {key[:80]}", _quote(raw), "text, number or boolean")
    return None if raw == b"null" else raw.decode()


def _decode_binary_fields(data: bytes, start: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    size = len(data)
    count = 0
    while start < size:
        count += 1
        if count > EXT_FIELDS_COUNT_MAX:
            raise RemoteProtocolError("count of extFields", count, EXT_FIELDS_COUNT_MAX)
        if size - start < _INT16.size:
            raise RemoteProtocolError("key length", f"cut after {size - start} bytes", 2)
        (key_length,) = _INT16.unpack_from(data, start)
        start += _INT16.size
        if not 0 <= key_length <= size - start - _INT32.size:
            raise RemoteProtocolError("key length", key_length, size - start - _INT32.size)
        key = data[start : start + key_length].decode()
        start += key_length
        (value_length,) = _INT32.unpack_from(data, start)
        start += _INT32.size
        if not 0 <= value_length <= size - start:
            raise RemoteProtocolError("value length", value_length, size - start)
        fields[key] = data[start : start + value_length].decode()
        start += value_length
    return fields


def _language_number(language: int | None) -> int:
    """Keeps a number that the binary header could carry; null is Java, as when the member is
    missing.
    """
    if language is None:
        return _JAVA
    return language if 0 <= language <= _LANGUAGE_MAX else _OTHER


def _quote(data: bytes) -> str:
    return data[:80].decode("ascii", "backslashreplace")
