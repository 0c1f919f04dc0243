"""Serializers: what makes bytes of a program's values, and values of bytes again.

Opt-in: without one, bodies are bytes. A producer takes values with `serializer=`, and a consumer
with the same one gives them as `message.value`.
"""

import json
from typing import Any, Final, Protocol

from ledgermq.client.errors import MessageError


class Serializer(Protocol):
    """Both directions; whatever they raise is told as a MessageError."""

    def dumps(self, value: Any, /) -> bytes:
        """Returns a value as bytes."""

    def loads(self, body: bytes, /) -> Any:
        """Returns the value that `dumps` made bytes of."""


class _Json:
    def dumps(self, value: Any, /) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def loads(self, body: bytes, /) -> Any:
        return json.loads(body)


class _Text:
    def dumps(self, value: str, /) -> bytes:
        return value.encode()

    def loads(self, body: bytes, /) -> str:
        return str(body, "utf-8")


# Values of JSON, as UTF-8 without blanks.
json_serializer: Final[Serializer] = _Json()
# Texts, as UTF-8.
text_serializer: Final[Serializer] = _Text()


def body_of(value: Any, serializer: Serializer | None, topic: str) -> bytes:
    """Returns the body of a message to send.

    Raises:
        MessageError: there is no serializer and the value is no bytes, or the serializer failed.
    """
    if serializer is not None:
        try:
            value = serializer.dumps(value)
        except Exception as error:
            raise MessageError(f"body cannot be serialized: {error}", topic=topic) from error
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    hint = "" if serializer is not None else "; other values need a serializer"
    raise MessageError(f"body is {type(value).__name__}, not bytes{hint}", topic=topic)


def value_of(body: bytes, serializer: Serializer, topic: str) -> Any:
    """Returns the value of a message that was received.

    Raises:
        MessageError: the serializer failed.
    """
    try:
        return serializer.loads(body)
    except Exception as error:
        raise MessageError(f"body cannot be read: {error}", topic=topic) from error
