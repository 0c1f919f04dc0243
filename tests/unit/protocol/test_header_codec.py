"""The two forms of a header against bytes written by hand, and against bytes that lie."""

import pytest

from ledgermq.protocol.codes import LanguageCode
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.header_codec import (
    EXT_FIELDS_COUNT_MAX,
    HeaderParts,
    decode_binary_header,
    decode_json_header,
    encode_binary_header,
    encode_json_header,
)

ROUTE_JSON = (
    b'{"code":105,"extFields":{"topic":"TopicA"},"flag":0,"language":"JAVA","opaque":0,'
    b'"serializeTypeCurrentRPC":"JSON","version":399}'
)
ROUTE_BINARY = bytes.fromhex(
    "0069 00 018f 00000011 00000000 00000000 00000011 0005 746f706963 00000006 546f70696341"
)
ANSWER_JSON = (
    b'{"code":3,"flag":1,"language":"JAVA","opaque":2,"remark":" request type 999 not supported",'
    b'"serializeTypeCurrentRPC":"JSON","version":399}'
)
ROUTE: HeaderParts = (105, 0, 399, 0, 0, None, {"topic": "TopicA"})
ANSWER: HeaderParts = (3, 0, 399, 2, 1, " request type 999 not supported", None)


def test_json_header_is_java_s_byte_for_byte() -> None:
    assert len(ROUTE_JSON) == 0x80
    assert encode_json_header(ROUTE) == ROUTE_JSON
    assert encode_json_header(ANSWER) == ANSWER_JSON
    assert decode_json_header(ROUTE_JSON) == ROUTE
    assert decode_json_header(ANSWER_JSON) == ANSWER


def test_binary_header_is_java_s_byte_for_byte() -> None:
    parts: HeaderParts = (105, 0, 399, 17, 0, None, {"topic": "TopicA"})
    assert len(ROUTE_BINARY) == 0x26
    assert encode_binary_header(parts) == ROUTE_BINARY
    assert decode_binary_header(ROUTE_BINARY) == parts


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("12", "12"),
        ("-0", "-0"),
        ("1.50", "1.50"),
        ("1e3", "1e3"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("true", "true"),
        ("false", "false"),
        ('"a\\u00e9\\n"', "aé\n"),
    ],
)
def test_unquoted_ext_field_keeps_its_characters(sent: str, read: str) -> None:
    """A signature is computed over the very text that the client used."""
    header = b'{"code":310,"extFields":{"e": %b ,"a":"pg"}}' % sent.encode()
    assert decode_json_header(header)[6] == {"e": read, "a": "pg"}


def test_null_ext_field_counts_as_absent() -> None:
    assert decode_json_header(b'{"extFields":{"a":null,"b":"x"}}')[6] == {"b": "x"}
    assert decode_json_header(b'{"extFields":null}')[6] is None
    assert decode_json_header(b'{"extFields":{}}')[6] == {}


@pytest.mark.parametrize(
    ("language", "number"),
    [
        (b'"GO"', LanguageCode.GO),
        (b"9", LanguageCode.GO),
        (b"55", 55),
        (b'"COBOL"', LanguageCode.OTHER),
        (b"-1", LanguageCode.OTHER),
        (b"128", LanguageCode.OTHER),
        (b"null", LanguageCode.JAVA),
    ],
)
def test_language_is_a_name_or_a_number(language: bytes, number: int) -> None:
    assert decode_json_header(b'{"code":1,"language":%b}' % language)[1] == number


def test_members_left_out_have_java_s_defaults() -> None:
    assert decode_json_header(b"{}") == (0, 0, 0, 0, 0, None, None)


def test_last_of_doubled_keys_wins() -> None:
    assert decode_json_header(b'{"code":1,"code":2,"extFields":{"a":"1","a":"2"}}') == (
        (2, 0, 0, 0, 0, None, {"a": "2"})
    )


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b" ",
        b"[]",
        b"null",
        b'"code"',
        b'{"code":1',
        b'{"code":1}x',
        b'{"code":2147483648}',
        b'{"opaque":-2147483649}',
        b'{"code":' + b"9" * 10_000 + b"}",
        b'{"code":true}',
        b'{"code":1.5}',
        b'{"flag":NaN}',
        b'{"remark":5}',
        b'{"remark":"\xff"}',
        b'{"remark":"\\ud800 alone"}',
        b'{"extFields":[]}',
        b'{"extFields":{"a":{}}}',
        b'{"extFields":{"a":["b"]}}',
        b'{"extFields":{"a":5,"b":"\xff"}}',
        b'{"extFields":{"a":5,"\xff":"b"}}',
        b'{"x":' * 5_000,
        b'{"extFields":{"a":' + b"[" * 100_000,
    ],
)
def test_bad_json_header_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_json_header(header)


@pytest.mark.parametrize("quote", [b'"', b""])
def test_ext_fields_are_counted(quote: bytes) -> None:
    def header(count: int) -> bytes:
        fields = b",".join(b'"k%d":%b1%b' % (i, quote, quote) for i in range(count))
        return b'{"code":1,"extFields":{%b}}' % fields

    assert len(decode_json_header(header(EXT_FIELDS_COUNT_MAX))[6] or {}) == EXT_FIELDS_COUNT_MAX
    with pytest.raises(RemoteProtocolError, match="count of extFields"):
        decode_json_header(header(EXT_FIELDS_COUNT_MAX + 1))


def binary(
    remark: bytes = b"", ext: bytes = b"", *, remark_length: int = -1, ext_length: int = -1
) -> bytes:
    remark_length = len(remark) if remark_length == -1 else remark_length
    ext_length = len(ext) if ext_length == -1 else ext_length
    return b"".join(
        (
            bytes.fromhex("0069 00 018f 00000011 00000000"),
            (remark_length & 0xFFFFFFFF).to_bytes(4, "big"),
            remark,
            (ext_length & 0xFFFFFFFF).to_bytes(4, "big"),
            ext,
        )
    )


@pytest.mark.parametrize(
    "header",
    [
        b"",
        ROUTE_BINARY[:20],
        binary(remark_length=-2),
        binary(remark_length=1),
        binary(remark_length=2**31 - 1),
        binary(ext_length=-2),
        binary(ext_length=5),
        binary(ext=b"\x00\x01k\x00\x00\x00\x01v", ext_length=4),
        binary(ext=b"\x00"),
        binary(ext=b"\x00\x05k"),
        binary(ext=b"\xff\xffk\x00\x00\x00\x01v"),
        binary(ext=b"\x00\x01k\x00\x00"),
        binary(ext=b"\x00\x01k\x00\x00\x00\x02v"),
        binary(ext=b"\x00\x01k\xff\xff\xff\xffv"),
        binary(ext=b"\x00\x01\xff\x00\x00\x00\x01v"),
        binary(ext=b"\x00\x01k\x00\x00\x00\x01\xff"),
        binary(remark=b"\xc3"),
        binary(ext=b"\x00\x01k\x00\x00\x00\x01v" * (EXT_FIELDS_COUNT_MAX + 1)),
    ],
)
def test_bad_binary_header_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_binary_header(header)


def test_binary_header_reads_what_java_skips_over() -> None:
    fields = (
        b"\x00\x00\x00\x00\x00\x01v" + b"\x00\x01k\x00\x00\x00\x00" + b"\x00\x01k\x00\x00\x00\x01w"
    )
    assert decode_binary_header(binary(remark=b"r", ext=fields))[5:] == ("r", {"": "v", "k": "w"})


def test_code_beyond_16_bits_does_not_fit_a_binary_header() -> None:
    with pytest.raises(LocalProtocolError, match="code in a binary header is 200050"):
        encode_binary_header((200050, 0, 399, 0, 0, None, None))


@pytest.mark.parametrize(
    "parts",
    [
        (1, 0, 399, 2**31, 0, None, None),
        (1, 0, 70_000, 0, 0, None, None),
        (1, 0, 399, 0, 0, "\ud800", None),
        (1, 0, 399, 0, 0, None, {"k" * 40_000: "v"}),
    ],
)
def test_what_a_binary_header_cannot_carry_is_our_error(parts: HeaderParts) -> None:
    with pytest.raises(LocalProtocolError):
        encode_binary_header(parts)


@pytest.mark.parametrize(
    "parts", [(2**70, 0, 0, 0, 0, None, None), (1, 0, 0, 0, 0, "\ud800", None)]
)
def test_what_a_json_header_cannot_carry_is_our_error(parts: HeaderParts) -> None:
    with pytest.raises(LocalProtocolError):
        encode_json_header(parts)


def test_unknown_language_is_written_as_other() -> None:
    assert b'"language":"OTHER"' in encode_json_header((1, 77, 399, 0, 0, None, None))
