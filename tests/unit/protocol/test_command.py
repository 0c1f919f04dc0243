"""A frame as a value: requests, answers, and the frame around the header."""

import struct

import pytest

from ledgermq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode, encode_parts
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.framing import FRAME_BYTES_MAX
from ledgermq.protocol.header_codec import HEADER_BYTES_MAX
from ledgermq.protocol.headers import GetMaxOffsetResponseHeader, GetRouteInfoRequestHeader

ROUTE_FRAME = (
    bytes.fromhex("00000084 00000080")
    + b'{"code":105,"extFields":{"topic":"TopicA"},"flag":0,"language":"JAVA","opaque":0,'
    + b'"serializeTypeCurrentRPC":"JSON","version":399}'
)
ROUTE_FRAME_BINARY = bytes.fromhex(
    "0000002a 01000026 0069 00 018f 00000011 00000000 00000000 00000011"
    "0005 746f706963 00000006 546f70696341"
)


def route_request() -> RemotingCommand:
    header = GetRouteInfoRequestHeader(topic="TopicA")
    return RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)


def test_request_is_java_s_frame_byte_for_byte() -> None:
    command = route_request()
    assert encode(command) == ROUTE_FRAME
    assert decode(ROUTE_FRAME[4:]) == command


def test_binary_request_is_java_s_frame_byte_for_byte() -> None:
    command = route_request()
    command.serialize_type = 1
    command.opaque = 17
    assert encode(command) == ROUTE_FRAME_BINARY
    assert decode(ROUTE_FRAME_BINARY[4:]) == command


def test_answer_repeats_opaque_and_form_of_its_request() -> None:
    request = decode(ROUTE_FRAME_BINARY[4:])
    answer = request.response(
        ResponseCode.SUCCESS, "fine", GetMaxOffsetResponseHeader(offset=7), b"body"
    )
    assert (answer.opaque, answer.serialize_type, answer.flag) == (17, 1, 1)
    again = decode(encode(answer)[4:])
    assert again == answer
    assert again.header(GetMaxOffsetResponseHeader).offset == 7
    assert (again.remark, again.body, again.language) == ("fine", b"body", LanguageCode.JAVA)


@pytest.mark.parametrize(
    ("flag", "is_response", "is_one_way"),
    [(0, False, False), (1, True, False), (2, False, True), (3, True, False), (6, False, True)],
)
def test_answer_bit_is_looked_at_first(flag: int, is_response: bool, is_one_way: bool) -> None:
    """The C++ client answers with both bits set."""
    command = RemotingCommand(code=0, flag=flag)
    assert (command.is_response, command.is_one_way) == (is_response, is_one_way)


def test_one_way_request_has_its_bit() -> None:
    assert RemotingCommand.request(RequestCode.UNLOCK_BATCH_MQ, one_way=True).is_one_way


def test_parts_are_the_frame_without_a_copy_of_the_body() -> None:
    command = RemotingCommand(code=0)
    pieces: list[bytes | memoryview] = [b"abc", memoryview(bytearray(b"defg")), b""]
    parts = encode_parts(command, pieces)
    assert all(part is piece for part, piece in zip(parts[1:], pieces, strict=True))
    command.body = b"abcdefg"
    assert b"".join(parts) == encode(command)


def test_body_is_what_follows_the_header() -> None:
    header = b'{"code":7}'
    frame = struct.pack(">I", len(header)) + header + b"\x00body"
    assert decode(frame).body == b"\x00body"


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (b"", "frame length"),
        (b"\x00\x00\x00", "frame length"),
        (b"\x00\x00\x00\x05{}", "header length"),
        (b"\x00\xff\xff\xff{}", "header length"),
        (b"\x02\x00\x00\x02{}", "serialize type"),
        (b"\xff\x00\x00\x02{}", "serialize type"),
        (b"\x00\x00\x00\x00{}", "JSON header"),
        (b"\x01\x00\x00\x02{}", "binary header length"),
    ],
)
def test_frame_that_lies_is_refused_with_the_field(frame: bytes, field: str) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        decode(frame)
    assert raised.value.field == field


def test_header_beyond_its_limit_is_refused_on_both_sides() -> None:
    frame = struct.pack(">I", HEADER_BYTES_MAX + 1) + b" " * (HEADER_BYTES_MAX + 1)
    with pytest.raises(RemoteProtocolError, match="header length"):
        decode(frame)
    with pytest.raises(LocalProtocolError, match="header length"):
        encode(RemotingCommand(code=1, remark="x" * HEADER_BYTES_MAX))


def test_body_beyond_the_frame_limit_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="frame length"):
        encode_parts(RemotingCommand(code=1), [bytes(FRAME_BYTES_MAX // 2)] * 2)


def test_unknown_code_and_flag_bits_are_data() -> None:
    command = RemotingCommand(code=-77, flag=0x7FFFFFFC, opaque=-1, version=100_000)
    assert decode(encode(command)[4:]) == command
