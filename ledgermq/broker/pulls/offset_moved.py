"""OFFSET_MOVED_EVENT: the leader notes each pull that asked outside of its queue.

The consumer is told where to go on (PULL_OFFSET_MOVED); for operators the broker writes a message
to a topic of its own, as upstream does, so that a group which was thrown about can be found.
A consumer that asks again and again writes no more than one a second. Source:
`PullMessageProcessor.generateOffsetMovedEvent`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from twisted.logger import Logger

from ledgermq.broker.leadership import Leadership
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.commitlog import AppendMessage, AppendResult
from ledgermq.protocol import lenient_json
from ledgermq.protocol.properties import KEYS, TAGS, format_properties
from ledgermq.protocol.rate_limit import RateLimit
from ledgermq.state import names
from ledgermq.state.errors import BrokerError

# Events of one group that are written a second, and at once.
_EVENTS_PER_SECOND: Final = 1
_EVENTS_AT_ONCE: Final = 32

_log = Logger()


class OffsetMovedEvents:
    """Writes the events."""

    def __init__(
        self,
        leadership: Leadership,
        proposals: Proposals,
        *,
        broker_name: str,
        store_host: tuple[bytes, int],
        now_ms: Callable[[], int],
        clock_ms: Callable[[], float],
    ) -> None:
        """Binds the parts; `now_ms` is the wall clock, `clock_ms` monotonic."""
        self._leadership = leadership
        self._proposals = proposals
        self._broker_name = broker_name
        self._store_host = store_host
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        self._limit = RateLimit(_EVENTS_PER_SECOND, _EVENTS_AT_ONCE)

    def note(self, group: str, topic: str, queue_id: int, asked: int, given: int) -> None:
        """Writes one event.

        Args:
            group: who pulled.
            topic: of the queue.
            queue_id: the queue.
            asked: offset that the pull asked for.
            given: offset that it was told to go on with.
        """
        if not (self._leadership.takes_messages and self._proposals.has_room):
            return
        if not self._limit.take(group, self._clock_ms() / 1000):
            return
        event = {
            "consumerGroup": group,
            "messageQueue": {
                "brokerName": self._broker_name,
                "queueId": queue_id,
                "topic": topic,
            },
            "offsetNew": given,
            "offsetRequest": asked,
        }
        body = lenient_json.write(event)
        properties = format_properties({KEYS: group, TAGS: group}).encode()
        now_ms, host = self._now_ms(), self._store_host
        message = AppendMessage(
            names.OFFSET_MOVED_TOPIC, 0, 0, 0, now_ms, host, host, 0, 0, body, properties
        )
        self._proposals.add_own([message], _ignore)
        _log.info(
            "{group} asked for offset {asked} of {topic} queue {queue}, goes on at {given}",
            group=group,
            asked=asked,
            topic=topic,
            queue=queue_id,
            given=given,
        )


def _ignore(results: Sequence[AppendResult] | None, error: BrokerError | None) -> None:
    """An event that is lost is no loss."""
