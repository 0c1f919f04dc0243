"""Reply: what a view gives back; RequestError: why it does not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

JSON_TYPE: Final = "application/json"
TEXT_TYPE: Final = "text/plain; charset=utf-8"
# Of a value that was refused, so much is told.
_VALUE_CHARS_MAX: Final = 200

# What each status is called in an error, for programs.
_CODES: Final = {
    400: "bad_request",
    401: "not_signed_in",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "wrong_host",
    429: "too_many_requests",
    500: "internal_error",
    502: "bad_gateway",
    503: "unavailable",
    504: "gateway_timeout",
}


class Outlet(Protocol):
    """Where a stream writes to; reactor thread only."""

    def write(self, data: bytes) -> bool:
        """Sends, or keeps until the client reads; False when the viewer was dropped for it."""

    def close(self) -> None:
        """Ends the reply; nothing when it has ended."""


class Stream(Protocol):
    """A body without an end: it is told of its outlet, and when that is gone."""

    def opened(self, outlet: Outlet) -> None: ...

    def closed(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer.

    Attributes:
        status: HTTP status.
        body: all of it; or parts, of which one is made and written in one turn of the reactor and
            none while the client does not read; or a stream.
        content_type: of the body.
        headers: further ones; they win over those of security.py.
    """

    status: int = 200
    body: bytes | Iterator[bytes] | Stream = b""
    content_type: str = TEXT_TYPE
    headers: tuple[tuple[str, str], ...] = ()


class RequestError(Exception):
    """A request that is refused, with all that whoever asked needs to mend it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        field: str | None = None,
        value: object = None,
        limit: object = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """
        Args:
            status: HTTP status.
            message: a sentence for people.
            code: one word for programs; by the status when empty.
            field: which part of the request is meant.
            value: what was given; long ones are cut.
            limit: what would have been right: a bound, or the allowed values.
            headers: of the reply.
        """
        super().__init__(message)
        self.status, self.message = status, message
        self.code = code or _CODES.get(status, "error")
        self.field, self.value, self.limit = field, value, limit
        self.headers = headers

    def reply(self) -> Reply:
        """Returns it as JSON: {"error": {"code", "message", "field", "value", "limit"}}."""
        error: dict[str, object] = {"code": self.code, "message": self.message}
        if self.field is not None:
            error |= {"field": self.field, "value": _cut(self.value), "limit": self.limit}
        return json_reply({"error": error}, status=self.status, headers=self.headers)


def json_reply(
    value: object,
    *,
    status: int = 200,
    headers: tuple[tuple[str, str], ...] = (),
    encode: Callable[[Any], bytes] = msgspec.json.encode,
) -> Reply:
    """Returns any value that msgspec can write as JSON."""
    return Reply(status=status, body=encode(value), content_type=JSON_TYPE, headers=headers)


def text_reply(text: str, *, status: int = 200, content_type: str = TEXT_TYPE) -> Reply:
    """Returns text as UTF-8; half a pair of surrogates becomes a question mark."""
    return Reply(status=status, body=text.encode("utf-8", "replace"), content_type=content_type)


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > _VALUE_CHARS_MAX:
        return value[:_VALUE_CHARS_MAX] + f"... ({len(value)} characters)"
    return value
