"""What can go wrong between bytes and values.

Two sides, two classes: LocalProtocolError means that this program tried something the protocol does
not allow (a bug, or a value from the user that does not fit on the wire); RemoteProtocolError means
that the bytes of a peer are not what the protocol says. Decoders raise RemoteProtocolError and
nothing else, whatever the bytes. RequestTimeoutError and ConnectionClosedError are the two ways in
which a request ends without an answer.

The text of an error is built from its fields and never longer than a remark may be.
"""

from typing import Final

# A value from a peer is quoted in logs and remarks up to this many characters.
_SHOWN_VALUE_CHARS_MAX: Final = 120
# And of what quoting makes of it: one byte may become four characters.
_SHOWN_TEXT_CHARS_MAX: Final = 480


class ProtocolError(Exception):
    """Base class of all errors of this room."""


class _FieldError(ProtocolError):
    """An error about one field: which, what it was, and what it may be."""

    _side = ""

    def __init__(self, field: str, value: object, limit: object | None = None) -> None:
        super().__init__(field, value, limit)
        # Name of the field as it stands on the wire, or of the part of the frame.
        self.field = field
        # What was found there; None when the field was missing.
        self.value = value
        # The greatest number or the form that is allowed; None when that says nothing.
        self.limit = limit

    def __str__(self) -> str:
        shown = "missing" if self.value is None else _shortened(self.value)
        allowed = "" if self.limit is None else f", allowed: {_shortened(self.limit)}"
        return f"{self._side}{self.field} is {shown}{allowed}"


class LocalProtocolError(_FieldError):
    """This program asked for something that the protocol cannot carry; nothing was sent."""

    _side = "cannot send: "


class RemoteProtocolError(_FieldError):
    """A peer sent bytes that the protocol does not allow."""

    _side = ""


class RequestTimeoutError(ProtocolError):
    """No answer came in time; the request may or may not have been carried out."""

    def __init__(self, peer: str, code: int, timeout_ms: int) -> None:
        super().__init__(peer, code, timeout_ms)
        # Address of the peer, "ip:port".
        self.peer = peer
        # Request code of the unanswered request.
        self.code = code
        # How long was waited.
        self.timeout_ms = timeout_ms

    def __str__(self) -> str:
        return f"no answer from {self.peer} to request {self.code} in {self.timeout_ms} ms"


class ConnectionClosedError(ProtocolError):
    """There is no connection, or it went away before the answer came."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        # Address of the peer, "ip:port".
        self.peer = peer
        # Why the connection ended or could not be made.
        self.reason = reason

    def __str__(self) -> str:
        return f"no connection to {self.peer}: {self.reason}"


def _shortened(value: object) -> str:
    """Quotes a value up to the limit, without spelling out all of a large one."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_VALUE_CHARS_MAX:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str | bytes) and len(value) > _SHOWN_VALUE_CHARS_MAX:
        return f"{value[:_SHOWN_VALUE_CHARS_MAX]!r}... (length {len(value)})"
    text = repr(value)
    if len(text) > _SHOWN_TEXT_CHARS_MAX:
        return f"{text[:_SHOWN_TEXT_CHARS_MAX]}..."
    return text
