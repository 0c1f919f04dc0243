"""What can go wrong between a program and its brokers, as the caller sees it.

Every error says whether trying again may help (`retriable`) and names broker, topic, queue and
response code as far as they are known. Errors of sockets and of the wire are mapped to these where
they enter; the original is the `__cause__`.
"""

from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.plain_text import escaped

_NAMES = {int(code): code.name for code in ResponseCode}
# Characters of an ordering key that an error shows.
_KEY_CHARS_SHOWN = 64


class ClientError(Exception):
    """Base class of all errors of this room."""

    def __init__(
        self,
        what: str,
        *,
        retriable: bool = False,
        broker: str | None = None,
        topic: str | None = None,
        queue_id: int | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(what)
        # What happened, without the fields below.
        self.what = what
        # True when the same call may succeed a little later.
        self.retriable = retriable
        # Name or address of the broker or name server, whichever is known.
        self.broker = broker
        self.topic = topic
        self.queue_id = queue_id
        # Response code of the other side, None when it did not answer.
        self.code = code

    def __str__(self) -> str:
        fields = {
            "broker": self.broker,
            "topic": self.topic,
            "queue": self.queue_id,
            "code": None if self.code is None else code_name(self.code),
        }
        shown = ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
        return f"{self.what} ({shown})" if shown else self.what


class ConfigError(ClientError):
    """A value of the configuration or an argument is not allowed; nothing was done."""


class ClosedError(ClientError):
    """The producer or consumer is closed, or not yet open."""


class MessageError(ClientError):
    """A message cannot be sent as it is: too large, or a text that the protocol cannot carry."""


class NameServerError(ClientError):
    """No name server answered."""


class NoRouteError(ClientError):
    """No name server knows a broker for the topic, or its broker has no leader now."""


class NotFoundError(ClientError):
    """What a tool was told to look at is not there: a cluster, topic, group or message."""


class NoReplyError(ClientError):
    """A request was stored, but no reply came in time; it may have been worked on all the same."""


class UnreachableError(ClientError):
    """A broker could not be connected, closed the connection, or did not answer in time.

    The request may or may not have been carried out.
    """


class RefusedError(ClientError):
    """A broker answered with an error; `code` is its response code, `remark` its explanation."""

    def __init__(
        self,
        code: int,
        remark: str | None,
        *,
        retriable: bool = False,
        broker: str | None = None,
        topic: str | None = None,
        queue_id: int | None = None,
    ) -> None:
        super().__init__(
            # It goes to logs and terminals, and repeats names of others.
            f"refused: {escaped(remark) if remark else 'no reason given'}",
            retriable=retriable,
            broker=broker,
            topic=topic,
            queue_id=queue_id,
            code=code,
        )
        self.remark = remark


class SendError(ClientError):
    """A message was not acknowledged; `attempts` counts the tries, `__cause__` is the last failure.

    It may still have been stored: an answer can get lost.
    """

    def __init__(
        self,
        what: str,
        *,
        attempts: int,
        retriable: bool,
        broker: str | None,
        topic: str | None,
        queue_id: int | None,
        code: int | None,
    ) -> None:
        super().__init__(
            what,
            retriable=retriable,
            broker=broker,
            topic=topic,
            queue_id=queue_id,
            code=code,
        )
        self.attempts = attempts


class LaneFullError(SendError):
    """Too many sends of one ordering key wait already; this one was not sent, and is not stored.

    A key takes one round trip for each message: send less of it, or spread it over more keys.
    """

    def __init__(
        self,
        ordering_key: str,
        topic: str,
        *,
        in_lane: int,
        outside: int,
        pace_s: float,
        timeout_s: float,
    ) -> None:
        super().__init__(
            f"ordering key {ordering_key[:_KEY_CHARS_SHOWN]!r} takes a message every {pace_s:.3f} s"
            f" and has {in_lane + outside} already: this one could not be sent within timeout_s,"
            f" {timeout_s:g} s",
            attempts=0,
            retriable=True,
            broker=None,
            topic=topic,
            queue_id=None,
            code=None,
        )
        self.ordering_key = ordering_key


def code_name(code: int) -> str:
    """Returns a response code with its name, when it has one."""
    return f"{code} {_NAMES[code]}" if code in _NAMES else str(code)
