"""Values of programs as bytes, and back."""

from typing import Any

import pytest

from ledgermq.client.errors import MessageError
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.serializers import body_of, json_serializer, text_serializer, value_of
from ledgermq.protocol.record import decode_record, encode_record
from tests.unit.client.parts import HOST, QUEUE


@pytest.mark.parametrize(
    ("serializer", "value", "body"),
    [
        (json_serializer, {"a": [1, None, "ä"]}, '{"a":[1,null,"ä"]}'.encode()),
        (json_serializer, None, b"null"),
        (text_serializer, "ж", "ж".encode()),
    ],
)
def test_values_come_back(serializer: Any, value: Any, body: bytes) -> None:
    assert body_of(value, serializer, "T") == body
    assert value_of(body, serializer, "T") == value


def test_without_a_serializer_a_body_is_bytes_of_any_kind() -> None:
    for body in (b"x", bytearray(b"x"), memoryview(b"x")):
        assert body_of(body, None, "T") == b"x"
    with pytest.raises(MessageError, match="body is dict, not bytes; other values need a seri"):
        body_of({}, None, "T")


def test_what_a_serializer_cannot_do_is_a_message_error() -> None:
    with pytest.raises(MessageError, match="cannot be serialized") as caught:
        body_of({1, 2}, json_serializer, "T")
    assert (caught.value.topic, caught.value.retriable) == ("T", False)
    with pytest.raises(MessageError, match="cannot be read"):
        value_of(b"{", json_serializer, "T")


def received(body: bytes, serializer: Any) -> ReceivedMessage:
    data = encode_record(b"T", 0, 0, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, body, b"")
    return ReceivedMessage(decode_record(data), QUEUE, 1000, "", serializer)


def test_value_of_a_message_is_read_once_and_is_the_body_without_a_serializer() -> None:
    message = received(b'{"a":1}', json_serializer)
    assert message.value == {"a": 1}
    assert message.value is message.value
    assert received(b"null", json_serializer).value is None
    assert received(b"x", None).value == b"x"
    with pytest.raises(MessageError):
        _ = received(b"x", json_serializer).value
