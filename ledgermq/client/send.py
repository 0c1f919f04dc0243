"""Send: what one send on its way remembers from try to try."""

import asyncio
import functools
from typing import Protocol

from ledgermq.client.connection import Late
from ledgermq.client.errors import ClientError, UnreachableError
from ledgermq.client.lanes import Lane
from ledgermq.client.messages import SendResult
from ledgermq.client.send_frame import FrameTemplate, SendBody
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ProtocolError, RequestTimeoutError
from ledgermq.protocol.tls.engine import is_distrust


class Road(Protocol):
    """Who decides what becomes of a send; see sends.py."""

    loop: asyncio.AbstractEventLoop

    def answered(self, send: "Send", answer: RemotingCommand) -> None:
        """Takes the answer to the last try."""

    def answered_late(self, send: "Send", queue: MessageQueue, answer: RemotingCommand) -> None:
        """Takes the answer to a try whose time was over."""

    def lost(self, send: "Send", error: ClientError) -> None:
        """Takes the news that the last try got no answer in time, or will get none."""


class Send:
    """One send on its way: a message or a batch. It is also the sink of its answer."""

    __slots__ = (
        "attempts", "avoided_broker", "body", "deadline_s", "failure", "future", "held_up_by",
        "is_out", "key", "lane", "message_id", "opaque", "queue", "road", "template", "timeouts",
        "topic",
    )  # fmt: skip

    def __init__(
        self,
        road: Road,
        template: FrameTemplate,
        topic: str,
        message_id: str,
        body: SendBody,
        deadline_s: float,
        key: str | None,
        lane: "Lane[Send] | None",
    ) -> None:
        self.road = road
        self.template = template
        self.topic = topic
        self.message_id = message_id
        self.body = body
        # On the loop's clock.
        self.deadline_s = deadline_s
        # Ordering key, and its lane.
        self.key = key
        self.lane = lane
        self.future: asyncio.Future[SendResult] = road.loop.create_future()
        self.attempts = 0
        # Tries that got no answer in time.
        self.timeouts = 0
        # True while the answer to a try may come in time.
        self.is_out = False
        # Of the last try, on the connection over which it went.
        self.opaque = 0
        # Of the last try.
        self.failure: ClientError | None = None
        # Of the send of its ordering key before it.
        self.held_up_by: ClientError | None = None
        self.queue: MessageQueue | None = None
        self.avoided_broker: str | None = None

    def answered(self, answer: RemotingCommand) -> None:
        """The broker has answered the last try."""
        self.is_out = False
        self.road.answered(self, answer)

    def failed(self, error: ProtocolError) -> Late | None:
        """The last try got no answer; one that comes late counts all the same."""
        self.is_out = False
        queue = self.queue
        assert queue is not None
        name = queue.broker_name
        retriable = not is_distrust(error.__cause__)
        late = None
        if isinstance(error, RequestTimeoutError):
            self.timeouts += 1
            late = self.opaque, functools.partial(self.road.answered_late, self, queue)
        self.road.lost(
            self, UnreachableError(str(error), retriable=retriable, broker=name, topic=self.topic)
        )
        return late
