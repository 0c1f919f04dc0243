"""The statements about messages, as a watcher of what is committed, answered, read and dispatched.

I16  an acknowledged message is committed     I21  queues are dense and in order
I17  and can be read at its offset            I22  a queue offset names one message for ever
I18  nothing is read that nobody sent         I23  order in a queue is order in time
I19  a record knows its own place             I24  a reader sees each offset once, unchanged
I20  no queue is ahead of the commit          I28  one answer for each request
I12  nothing uncommitted is shown             I38  store times never fall along the log
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ledgermq.commitlog import STATE_TOPIC, GetMessageStatus, MessageStore
from ledgermq.dledger.entry import HEAD_BYTES
from ledgermq.protocol.group_keys import group_key
from ledgermq.protocol.record import Record, decode_record
from ledgermq.protocol.sysflag import TRANSACTION_MASK
from ledgermq.testing.simulation.deliveries import DELIVERED_TOPIC
from ledgermq.testing.simulation.invariants import Placed, demand
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.tables import TableWatch

_COMMIT_FLAG: Final = 0x8
_PULLED_MAX: Final = 32


class Message(NamedTuple):
    """A committed message in its queue."""

    physical_offset: int
    size_bytes: int
    body: bytes


class Ack(NamedTuple):
    """A send that was answered with success."""

    queue: tuple[str, int]
    queue_offset: int
    body: bytes


class BrokerWatch:
    """What clients did and what the log says about it."""

    def __init__(self, tables: TableWatch, plan: Plan) -> None:
        """Nothing was sent; `tables` is told of committed records of the broker's state.

        Args:
            plan: of the run.
        """
        self._tables = tables
        # A leader may be a member of Java, whose store times follow its clock back.
        self._has_java = bool(plan.java_ids)
        # Store times may fall by more than this; 0: never.
        self._clock_skew_max_ms = plan.clock_skew_max_ms
        # Latest store time of the committed log.
        self._latest_ms = 0
        # Committed messages of each queue, by queue offset.
        self.queues: dict[tuple[str, int], list[Message]] = {}
        self.sent: set[bytes] = set()
        # Sends that were refused before anything was appended.
        self.refused: set[bytes] = set()
        self.acks: list[Ack] = []
        # Highest acknowledged offset of each queue.
        self.acked_ends: dict[tuple[str, int], int] = {}
        # Highest offset of each queue of which a consumer was told that it is stored.
        self.stored_offsets: dict[tuple[str, int], int] = {}
        self._answers: set[tuple[str, int]] = set()
        # Requests that a member took.
        self.taken: set[tuple[str, int]] = set()

    def on_committed(self, index: int, placed: Placed) -> None:
        """An entry is committed for the first time: I18, I19, I21, I22, I38."""
        record = decode_record(placed.body)
        place = placed.position + HEAD_BYTES
        demand(record.physical_offset == place, "I19 record does not know its place", index)
        stored_ms, latest_ms = record.store_timestamp, self._latest_ms
        has_stepped = 0 < self._clock_skew_max_ms < latest_ms - stored_ms
        is_in_time = stored_ms >= latest_ms or self._has_java or has_stepped
        demand(is_in_time, "I38 store time falls", index, record.topic, stored_ms, latest_ms)
        self._latest_ms = stored_ms if has_stepped else max(stored_ms, latest_ms)
        kind = record.sys_flag & TRANSACTION_MASK
        if kind in (0, _COMMIT_FLAG):
            self._take_message(index, record)
        elif record.topic == STATE_TOPIC:
            self._tables.on_record(index, record.body)
        elif record.topic == DELIVERED_TOPIC:
            self._tables.deliveries.on_delivered(index, record.body)

    def _take_message(self, index: int, record: Record) -> None:
        queue = self.queues.setdefault((record.topic, record.queue_id), [])
        offset = record.queue_offset
        demand(offset >= len(queue), "I22 queue offset given twice", index, record.topic, offset)
        demand(offset == len(queue), "I21 gap in a queue", index, record.topic, offset)
        demand(record.body in self.sent, "I18 message that nobody sent", index, record.body[:20])
        demand(record.body not in self.refused, "I18 refused and stored", index, record.body[:20])
        queue.append(Message(record.physical_offset, record.size_bytes, record.body))

    def on_answer(self, client_id: str, opaque: int) -> None:
        """A member answers a request: I28."""
        key = (client_id, opaque)
        demand(key not in self._answers, "I28 answered twice", key)
        self._answers.add(key)

    def on_ack(self, ack: Ack, floor: int) -> None:
        """A client hears of success: I16, I23.

        Args:
            ack: what it was told.
            floor: highest acknowledged offset of the queue when the send began.
        """
        queue = self.queues.get(ack.queue, [])
        is_known = ack.queue_offset < len(queue)
        demand(is_known, "I16 acknowledged and not committed", ack.queue, ack.queue_offset)
        found = queue[ack.queue_offset].body
        demand(found == ack.body, "I16 another message is committed", ack.queue, ack.queue_offset)
        demand(ack.queue_offset > floor, "I23 order in time", ack.queue, ack.queue_offset, floor)
        self.acks.append(ack)
        end = self.acked_ends.get(ack.queue, -1)
        self.acked_ends[ack.queue] = max(end, ack.queue_offset)

    def on_read(self, queue: tuple[str, int], offset: int, parts: Sequence[bytes]) -> None:
        """A consumer got records from an offset on: I12, I24."""
        known = self.queues.get(queue, [])
        for number, part in enumerate(parts, offset):
            demand(number < len(known), "I12 uncommitted message shown", queue, number)
            record, expected = decode_record(part), known[number]
            demand(record.queue_offset == number, "I24 offset skipped", queue, number)
            is_same = record.body == expected.body
            is_same &= record.physical_offset == expected.physical_offset
            demand(is_same, "I24 other bytes at an offset", queue, number)

    def on_offset_acked(self, group: str, queue: tuple[str, int], offset: int) -> None:
        """A consumer that waited for it was told that its offset is stored: I39."""
        self._tables.on_offset_acked(group_key(queue[0], group), queue[1], offset)
        self.stored_offsets[queue] = max(offset, self.stored_offsets.get(queue, -1))

    def on_dispatched(self, member_id: str, queue: tuple[str, int], end_offset: int) -> None:
        """A member dispatched a message: I20."""
        known = len(self.queues.get(queue, ()))
        demand(end_offset <= known, "I20 queue ahead of the commit", member_id, queue, end_offset)

    def check_store(self, member_id: str, store: MessageStore) -> None:
        """I20, I21 on one member: its queues are what the committed log says."""
        for (topic, queue_id), messages in self.queues.items():
            low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            demand(high <= len(messages), "I20 queue ahead", member_id, topic, queue_id, high)
            self._check_units(member_id, store, (topic, queue_id), low, high)

    def _check_units(
        self, member_id: str, store: MessageStore, queue: tuple[str, int], low: int, high: int
    ) -> None:
        """Reads a whole queue as consumers do: I24."""
        offset = low
        while offset < high:
            result = store.get_message(*queue, offset, _PULLED_MAX, None)
            is_found = result.status is GetMessageStatus.FOUND
            demand(is_found, "I17 not readable", member_id, queue, offset, result.status.name)
            self.on_read(queue, offset, result.parts)
            offset += len(result.parts)

    def check_end(self, member_id: str, store: MessageStore) -> None:
        """I17: all that was acknowledged is there, but for what retention removed."""
        self.check_store(member_id, store)
        for (topic, queue_id), messages in self.queues.items():
            high = store.max_offset(topic, queue_id)
            demand(high == len(messages), "I17 queue ends early", member_id, topic, queue_id, high)
        for ack in self.acks:
            found = self.queues[ack.queue][ack.queue_offset].body
            demand(found == ack.body, "I17 acknowledged message replaced", ack.queue, ack)
