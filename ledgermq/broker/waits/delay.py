"""Delayed messages: where they wait, and their delivery when they are due.

A message with a delay level is stored in the topic SCHEDULE_TOPIC_XXXX, in the queue of its level,
with its real topic and queue as properties and its deliver time as the tags code of its unit. All
messages of a level wait equally long, so the queue of a level is in the order of delivery, and the
head of each queue tells the next deadline. The leader looks at the heads that are due, appends the
messages again in their real topics, with a plan before them (`queue_progress.py`), and goes on when
that is committed: one bounded append at a time, however much is due.

A deliver time is the store time and the delay. One that lies further ahead than the delay comes
from a clock that was ahead of this one, or of a log whose times are (they never fall): such a
message waits for its delay from when this leader first saw it (`delay_arrivals.py`).

No I/O and no timer of its own: `run` is called from time to time, and looks at no queue whose head
it knows to lie ahead.
Source: `ScheduleMessageService.java`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from twisted.logger import Logger

from ledgermq.broker.config.delay_levels import DelayLevels
from ledgermq.broker.records.delayed_messages import delivered_message
from ledgermq.broker.waits.delay_arrivals import NOTES_APART_MS, Arrivals
from ledgermq.broker.waits.deliveries import Delivered
from ledgermq.commitlog import (
    SCHEDULE_TOPIC,
    AppendMessage,
    AppendResult,
    MessageIllegalError,
    check_message,
)
from ledgermq.measures.histogram import Histogram
from ledgermq.state.errors import BrokerError, is_refused
from ledgermq.state.queue_progress import QueueProgress, Run

# What is appended at once: enough for tens of thousands of deliveries a second, little beside the
# sends of a turn.
DELIVERIES_MAX: Final = 128
_BYTES_MAX: Final = 1 << 20
# Wait after an append that failed.
_PAUSE_MS: Final = 1000
# As RocketMQ 5 has them for its metric.
_WAIT_BOUNDS_S: Final = (60.0, 600.0, 3600.0, 43_200.0, 86_400.0, 259_200.0)

_log = Logger()


class DelayQueues(Protocol):
    """What is needed of a message store."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def queue_units(
        self, topic: str, queue_id: int, offset: int, count_max: int
    ) -> Sequence[tuple[int, int, int]]: ...

    def record_at(self, physical_offset: int) -> bytes | None: ...


class Appends(Protocol):
    """What is needed to append deliveries."""

    def append(
        self, runs: Sequence[Run], messages: Sequence[AppendMessage], delivered: Delivered
    ) -> None: ...


class Batch:
    """The deliveries of one append, as they are gathered."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.messages: list[AppendMessage] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """True when no more should be appended at once."""
        return len(self.messages) >= DELIVERIES_MAX or self._bytes >= _BYTES_MAX

    def deliver(self, queue: int, next_offset: int, message: AppendMessage) -> None:
        """Adds a delivery that takes the cursor of a queue to `next_offset`."""
        last = self.runs[-1] if self.runs else None
        if (
            last is not None
            and last.queue == queue
            and last.delivery_count
            and last.next_offset + last.delivery_count == next_offset
        ):
            self.runs[-1] = last._replace(delivery_count=last.delivery_count + 1)
        else:
            self.runs.append(Run(queue, next_offset, 1))
        self.messages.append(message)
        self._bytes += len(message.body) + len(message.properties)

    def skip(self, queue: int, next_offset: int) -> None:
        """Moves the cursor of a queue without a delivery."""
        last = self.runs[-1] if self.runs else None
        if last is not None and last.queue == queue and not last.delivery_count:
            self.runs.pop()
        self.runs.append(Run(queue, next_offset, 0))


class DelayedDelivery:
    """Delivers delayed messages while this member leads.

    Invariant: at most one append is on its way.

    Attributes:
        waits: seconds from the birth of a message to its delivery, of those delivered here.
    """

    def __init__(
        self,
        levels: DelayLevels,
        store: DelayQueues,
        progress: QueueProgress,
        deliveries: Appends,
        *,
        has_room: Callable[[], bool],
        now_ms: Callable[[], int],
        clock_ms: Callable[[], float],
        soon: Callable[[Callable[[], None]], None],
        body_bytes_max: int,
    ) -> None:
        """Binds the parts.

        Args:
            has_room: False while so much waits for its commit that senders are near their limit.
            now_ms: wall clock.
            clock_ms: monotonic time.
            soon: has a function called at the end of the turn.
            body_bytes_max: what the store takes.
        """
        self._levels = levels
        self._store = store
        self._progress = progress
        self._deliveries = deliveries
        self._has_room = has_room
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        self._soon = soon
        self._body_bytes_max = body_bytes_max
        # Deliver time of the head of a level, where it is known and lies ahead; wall clock.
        self._due_ms: dict[int, int] = {}
        self._arrivals = Arrivals()
        self._noted_ms = -NOTES_APART_MS
        # Level that is looked at first: it changes, so that no level can keep the others waiting.
        self._first_level = 1
        self._is_waiting = False
        # Nothing is done before this time, after a failure.
        self._paused_until_ms = 0
        self.waits = Histogram(_WAIT_BOUNDS_S)

    def run(self) -> None:
        """Delivers what is due, as far as one append takes it."""
        now_ms = self._now_ms()
        if not self._progress.is_leading:
            self._due_ms.clear()
            self._arrivals.clear()
            self._noted_ms = -NOTES_APART_MS
            return
        self._note_ends()
        if self._is_waiting or 0 < self._paused_until_ms - now_ms <= _PAUSE_MS:
            return
        if not self._has_room():
            return
        batch = self._gather(now_ms)
        if not batch.runs:
            return
        former = self._progress.advance(batch.runs)
        self._is_waiting = True

        def done(_: Sequence[AppendResult], error: BrokerError | None) -> None:
            self._is_waiting = False
            if error is None:
                for message in batch.messages:
                    self.waits.observe(max(now_ms - message.born_timestamp, 0) / 1000)
                self._soon(self.run)
                return
            self._paused_until_ms = now_ms + _PAUSE_MS
            # After a time-out the append stands in the log, and counts as soon as it commits.
            if is_refused(error):
                self._progress.take_back(former)
                self._due_ms.clear()

        self._deliveries.append(batch.runs, batch.messages, done)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Returns for each level that was ever used what was delivered, and the queue's end."""
        cursors = self._progress.levels()
        ends = {
            level: self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            for level in range(1, self._levels.level_max + 1)
        }
        return {level: (cursors.get(level, 0), end) for level, end in ends.items() if end}

    def _note_ends(self) -> None:
        clock_ms = self._clock_ms()
        if clock_ms - self._noted_ms < NOTES_APART_MS:
            return
        self._noted_ms = clock_ms
        for level in range(1, self._levels.level_max + 1):
            end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            self._arrivals.note(level, end, clock_ms)

    def _gather(self, now_ms: int) -> Batch:
        batch = Batch()
        count = self._levels.level_max
        for step in range(count):
            level = (self._first_level - 1 + step) % count + 1
            self._gather_level(level, now_ms, batch)
            if batch.is_full:
                self._first_level = level % count + 1
                break
        return batch

    def _gather_level(self, level: int, now_ms: int, batch: Batch) -> None:
        delay_ms = self._levels.delays_ms[level - 1]
        latest_ms = now_ms + delay_ms
        # A head further ahead than its delay means that the clock was set back: look again.
        if now_ms < self._due_ms.get(level, 0) <= latest_ms:
            return
        self._due_ms.pop(level, None)
        store, queue_id = self._store, level - 1
        end = store.max_offset(SCHEDULE_TOPIC, queue_id)
        cursor = self._progress.cursor(level)
        if cursor >= end:
            return
        cursor = max(cursor, store.min_offset(SCHEDULE_TOPIC, queue_id))
        self._arrivals.forget_before(level, cursor)
        units = store.queue_units(SCHEDULE_TOPIC, queue_id, cursor, DELIVERIES_MAX)
        for physical_offset, _, due_ms in units:
            if now_ms < due_ms <= latest_ms:
                self._due_ms[level] = due_ms
                return
            if due_ms > latest_ms and not self._has_waited(level, cursor, delay_ms):
                return
            cursor += 1
            message = self._delivery(physical_offset)
            if message is None:
                batch.skip(level, cursor)
            else:
                batch.deliver(level, cursor, message)
            if batch.is_full:
                return

    def _has_waited(self, level: int, offset: int, delay_ms: int) -> bool:
        """Whether a message has waited since it was first seen: its deliver time is no possible
        one.
        """
        seen_ms = self._arrivals.find_time(level, offset)
        return seen_ms is not None and self._clock_ms() - seen_ms >= delay_ms

    def _delivery(self, physical_offset: int) -> AppendMessage | None:
        """The message as it is stored in its real topic; None when it cannot be."""
        raw = self._store.record_at(physical_offset)
        message = None if raw is None else delivered_message(raw)
        if message is not None:
            try:
                check_message(message, self._body_bytes_max)
            except MessageIllegalError as error:
                _log.warn(
                    "delayed message at {at} is left out: {error}", at=physical_offset, error=error
                )
                return None
        return message
