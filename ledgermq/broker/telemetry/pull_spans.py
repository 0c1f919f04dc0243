"""PullSpans: answers to pulls that hold messages whose sender is traced.

Asked for each pull that found something. What is given are bytes of the log; they are searched for
the mark of a context, and only the record around a find is decoded: a body may hold the mark, too.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from ledgermq.broker.telemetry.budget import Budget
from ledgermq.broker.telemetry.contexts import MARK, Carried, find_sampled
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import decode_record

# Of one answer: what is searched, records that are decoded, and messages that are told of.
_SEARCHED_BYTES_MAX: Final = 1 << 20
_DECODED_MAX: Final = 64
_TOLD_MAX: Final = 32


class GivenMessage(NamedTuple):
    """A traced message that somebody got."""

    carried: Carried
    queue_offset: int
    store_timestamp: int


class Given(NamedTuple):
    """An answer with traced messages; times are monotonic, in ms."""

    topic: str
    group: str
    queue_id: int
    message_count: int
    messages: tuple[GivenMessage, ...]
    begun_ms: float
    ended_ms: float


class PullSpans:
    """Looks through answers."""

    def __init__(
        self, tell: Callable[[Given], None], budget: Budget, clock_ms: Callable[[], float]
    ) -> None:
        """Binds the parts.

        Args:
            tell: makes the span.
            budget: of all spans of this broker.
            clock_ms: monotonic time.
        """
        self._tell, self._budget, self.clock_ms = tell, budget, clock_ms

    def gave(
        self,
        topic: str,
        group: str,
        queue_id: int,
        count: int,
        parts: Sequence[bytes | memoryview],
        begun_ms: float,
    ) -> None:
        """Tells of an answer when a traced message is in it.

        Args:
            count: of all messages in it.
            parts: of whole records, one behind the other.
            begun_ms: when the pull began to be answered.
        """
        found = tuple(_traced(parts))
        if not found:
            return
        now_ms = self.clock_ms()
        if self._budget.take(now_ms):
            self._tell(Given(topic, group, queue_id, count, found, begun_ms, now_ms))


def _traced(parts: Sequence[bytes | memoryview]) -> Iterator[GivenMessage]:
    left, decoded, told = _SEARCHED_BYTES_MAX, 0, 0
    for part in parts:
        data = bytes(part[:left])
        left -= len(data)
        at = 0
        place = data.find(MARK)
        while place >= 0 and decoded < _DECODED_MAX and told < _TOLD_MAX:
            start, at = _record_around(data, at, place)
            if at <= place:
                # Not whole, or no record: what follows cannot be told apart.
                break
            decoded += 1
            message = _message_of(data[start:at])
            if message is not None:
                told += 1
                yield message
            place = data.find(MARK, at)
        if left <= 0:
            return


def _record_around(data: bytes, start: int, place: int) -> tuple[int, int]:
    """Returns where the record that holds a place begins and ends; the end is not behind the place
    when there is none.
    """
    end = start
    while end <= place:
        start = end
        size = int.from_bytes(data[start : start + 4], "big")
        if size <= 4 or start + size > len(data):
            return start, start
        end = start + size
    return start, end


def _message_of(data: bytes) -> GivenMessage | None:
    try:
        record = decode_record(data)
    except RemoteProtocolError:
        return None
    carried = find_sampled(record.properties)
    if carried is None:
        return None
    return GivenMessage(carried, record.queue_offset, record.store_timestamp)
