"""The loops over rows: one call makes or puts the rows of a whole turn.

Part of the kernel: `row_loops.pxd` gives the types. What is made of a record here is what
`RowMaker.row` makes of it, by one walk over its properties instead of searches. Records of which
that cannot be said from here (IPv6 hosts, the second magic, light queues, delayed ones, and
whatever is no record) are left to `RowMaker`. No length is trusted: every byte that is read lies
between a start and its stop, and those inside of the data.

Only the compiled form is quick: where it is missing `RowMaker` and `DLedgerCommitLog` take loops
of their own.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from ledgermq.commitlog.key_index import KeyRow
from ledgermq.commitlog.row import Arrival, Row, TopicQueue
from ledgermq.dledger.entry import HEAD_BYTES, EntrySlice
from ledgermq.protocol.record import RECORD_MAGIC
from ledgermq.protocol.sysflag import (
    HOST_V6_MASK,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

# Which of its two forms this module is.
COMPILED: Final = not __file__.endswith(".py")

Result = TypeVar("Result", bound=tuple[Any, ...])

# In C these are numbers, not names to be looked up.
_MAGIC: Final = RECORD_MAGIC
_V6: Final = HOST_V6_MASK
_PREPARED: Final = TRANSACTION_PREPARED
_TRANSACTION: Final = TRANSACTION_MASK
_ROLLBACK: Final = TRANSACTION_ROLLBACK
# Of a record with two IPv4 hosts: where its body begins, and the least that follows it.
_BODY_AT: Final = 88
_TAIL_BYTES_MIN: Final = 3
_PROPERTIES_BYTES_MAX: Final = 0x7FFF
# What no files have; theirs is asked for again.
_NO_LEASE: Final = -2
_SIGN_32: Final = 1 << 31
_SIGN_64: Final = 1 << 63
_new_row = tuple.__new__

_SEPARATOR: Final = 2
_MULTI_BEGIN: Final = 73
_TAGS: Final = b"TAGS\x01"
_KEYS: Final = b"KEYS\x01"
_UNIQUE: Final = b"UNIQ_KEY\x01"
_MULTI: Final = b"INNER_MULTI_"


class Maker(Protocol):
    """What is needed of RowMaker."""

    @property
    def topic_queues(self) -> dict[tuple[int, bytes], TopicQueue]:
        """What the records of each queue share."""

    @property
    def tags_codes(self) -> dict[bytes, int]:
        """Known tags."""

    @property
    def index_enabled(self) -> bool:
        """Whether rows have keys."""

    def topic_queue(self, topic: bytes, queue_id: int) -> TopicQueue:
        """Returns what the records of a queue share."""

    def tags_code(self, tags: bytes) -> int:
        """Returns the code of tags."""

    def rare_row(self, data: bytes, at: int, stop: int) -> Row:
        """Returns the row of any record, or raises what is wrong with it."""


def rows_between(
    data: bytes, starts: Sequence[int], stops: Sequence[int], head_bytes: int, maker: Maker
) -> list[Row]:
    """Returns the rows of records, each of which fills a part of `data` behind a head.

    Raises:
        RemoteProtocolError: such a part is no record.
    """
    rows: list[Row] = []
    p = data
    found = _topic_queues_of(data, starts, stops, head_bytes, maker)
    for start, stop, shared in zip(starts, stops, found, strict=True):
        row: Row | None = None
        at = start + head_bytes
        if shared is not None:
            topic_at = _topic_at(p, at)
            body = data[at + _BODY_AT : topic_at - 1] if shared.watched else None
            row = _row_of(
                p,
                topic_at + p[topic_at - 1] + 2,
                stop,
                shared,
                _i32(p, at + 36),
                _i64(p, at + 20),
                _i64(p, at + 28),
                stop - at,
                _i64(p, at + 56),
                body,
                maker,
            )
        rows.append(maker.rare_row(data, at, stop) if row is None else row)
    return rows


def _topic_queues_of(
    data: bytes, starts: Sequence[int], stops: Sequence[int], head_bytes: int, maker: Maker
) -> list[TopicQueue | None]:
    """Returns what the records of each queue share, None for a record that is not a usual one.

    Of many queues few are in the processor's caches. All are asked for here, before the first is
    needed, so that they come together.
    """
    found: list[TopicQueue | None] = []
    p, total = data, len(data)
    topic_queues = maker.topic_queues
    topic = b""
    for start, stop in zip(starts, stops, strict=True):
        shared = None
        at = start + head_bytes
        if _is_usual(p, at, stop, total):
            topic_at = _topic_at(p, at)
            topic_end = topic_at + p[topic_at - 1]
            if topic_end - topic_at != len(topic) or not _has(
                p, topic_at, topic_end, topic, len(topic)
            ):
                topic = data[topic_at:topic_end]
            queue_id = _i32(p, at + 12)
            shared = topic_queues.get((queue_id, topic))
            if shared is None:
                shared = maker.topic_queue(topic, queue_id)
        found.append(shared)
    if COMPILED:
        for shared in found:
            if shared is not None:
                fetch_object(shared.queue)  # type: ignore[name-defined]  # noqa: F821
    return found


def appended_rows(
    entries: EntrySlice,
    records: list[bytes],
    messages: Sequence[tuple[Any, ...]],
    numbers: list[tuple[TopicQueue, int]],
    timestamp: int,
    maker: Maker,
    rare_row: Callable[..., Row],
    results: list[Result],
    result_type: type[Result],
) -> list[Row]:
    """Returns the rows of records that a leader has just appended.

    Args:
        entries: a run of the records, as entries; it begins where `results` end.
        records: of a whole turn.
        messages: the AppendMessage that was encoded in each.
        numbers: queue and queue offset of each.
        timestamp: store time of all.
        maker: knows the tags.
        rare_row: makes the row of each message that is left out here, as `RowMaker.row` does, from
            the message, its TopicQueue, queue offset, physical offset, bytes and store time.
        results: gets one for each: index, physical offset, bytes, queue offset, store time.
        result_type: of the results.
    """
    rows: list[Row] = []
    starts = entries.starts
    at = len(results)
    if at + len(starts) > min(len(records), len(messages), len(numbers)):
        raise ValueError(f"{len(starts)} entries from {at} on of {len(records)}")
    index = entries.first_index
    base = entries.position + HEAD_BYTES
    for start in starts:
        message = messages[at]
        shared, queue_offset = numbers[at]
        place, size = base + start, len(records[at])
        properties = message[10]
        body = message[9] if shared.watched else None
        row = _row_of(
            properties,
            0,
            len(properties),
            shared,
            message[3],
            queue_offset,
            place,
            size,
            timestamp,
            body,
            maker,
        )
        if row is None:
            row = rare_row(message, shared, queue_offset, place, size, timestamp)
        rows.append(row)
        results.append(_new_row(result_type, (index, place, size, queue_offset, timestamp)))
        index += 1
        at += 1
    return rows


def put_rows(
    rows: Sequence[Row],
    index: int,
    arrivals: list[Arrival] | None,
    put_light: Callable[[Row, int], None],
) -> tuple[list[KeyRow], int]:
    """Puts the units of rows, each into its queue.

    Args:
        rows: in the order of the log, of one store.
        index: about where they are in the log, for errors.
        arrivals: gets what long polling is told; None when nobody wants it.
        put_light: takes a row that stands in light queues, and `index`.

    Returns:
        The keys to be entered, and the latest store time.

    Raises:
        DispatchError: see `ConsumeQueue.put`; the rows before that one are put.
    """
    key_rows: list[KeyRow] = []
    latest = 0
    lease = _NO_LEASE
    if COMPILED:
        for row in rows:
            queue = row[0]
            if queue is not None:
                queue.fetch_end()
    for row in rows:
        queue, queue_offset, unit, tags_code, keys, _, stored, light = row
        if stored > latest:
            latest = stored
        if queue is not None:
            if not queue.add(queue_offset, unit, lease):
                queue.put(queue_offset, unit, index)
                lease = queue.files.lease
            if arrivals is not None:
                arrivals.append((queue.topic, queue.queue_id, queue_offset + 1, tags_code))
        if keys:
            key_rows += keys
        if light:
            put_light(row, index)
            lease = _NO_LEASE
            if arrivals is not None:
                arrivals += [
                    (other.topic, other.queue_id, at + 1, tags_code) for other, at in light
                ]
    return key_rows, latest


def _is_usual(p: bytes, at: int, stop: int, total: int) -> bool:
    """Tells whether p[at:stop] is a record of the usual form, all of whose lengths are right."""
    body_at = at + _BODY_AT
    if at < 0 or stop > total or body_at + _TAIL_BYTES_MIN > stop:
        return False
    if _i32(p, at) != stop - at or _u32(p, at + 4) != _MAGIC or _i32(p, at + 36) & _V6:
        return False
    topic_at = _topic_at(p, at)
    if not body_at < topic_at <= stop - 2:
        return False
    topic_end = topic_at + p[topic_at - 1]
    if topic_end > stop - 2:
        return False
    properties_bytes = p[topic_end] * 256 + p[topic_end + 1]
    return topic_end + 2 + properties_bytes == stop and properties_bytes <= _PROPERTIES_BYTES_MAX


def _topic_at(p: bytes, at: int) -> int:
    """Returns where the topic of a usual record begins, one byte behind its length."""
    return at + _BODY_AT + _i32(p, at + 84) + 1


def _row_of(
    p: bytes,
    at: int,
    stop: int,
    shared: TopicQueue,
    sys_flag: int,
    queue_offset: int,
    physical_offset: int,
    size_bytes: int,
    store_timestamp: int,
    body: bytes | None,
    maker: Maker,
) -> Row | None:
    """Returns the row of a record with the properties p[at:stop]; None when it is a rare one."""
    if shared.is_schedule:
        return None
    tags_at = tags_end = keys_at = keys_end = unique_at = unique_end = 0
    while at < stop:
        # At the first byte of an element: of two with one name the later wins, if it has a value.
        end = at
        while end < stop and p[end] != _SEPARATOR:
            if p[end] == _MULTI_BEGIN and _has(p, end, stop, _MULTI, len(_MULTI)):
                return None
            end += 1
        if _has(p, at, end - 1, _TAGS, len(_TAGS)):
            tags_at, tags_end = at + len(_TAGS), end
        elif _has(p, at, end - 1, _UNIQUE, len(_UNIQUE)):
            unique_at, unique_end = at + len(_UNIQUE), end
        elif _has(p, at, end - 1, _KEYS, len(_KEYS)):
            keys_at, keys_end = at + len(_KEYS), end
        at = end + 1
    keys: tuple[KeyRow, ...] = ()
    if (unique_end or keys_end) and maker.index_enabled:
        if sys_flag & _TRANSACTION != _ROLLBACK:
            topic_hash = shared.topic_hash
            unique = b""
            if unique_end:
                unique = p[unique_at:unique_end]
                keys = ((topic_hash, unique, physical_offset, store_timestamp),)
            if keys_end:
                # Each once, also where it is named again.
                keys += tuple(
                    [
                        (topic_hash, key, physical_offset, store_timestamp)
                        for key in dict.fromkeys(p[keys_at:keys_end].split(b" "))
                        if key and key != unique
                    ]
                )
    watched = (shared.topic, body) if body is not None and shared.watched else None
    queue = None if sys_flag & _PREPARED else shared.queue
    if queue is None:
        return Row(None, 0, b"", 0, keys, watched, store_timestamp)
    tags_code = 0
    if tags_end:
        tags = p[tags_at:tags_end]
        known = maker.tags_codes.get(tags)
        tags_code = maker.tags_code(tags) if known is None else known
    unit = _unit_of(physical_offset, size_bytes, tags_code)
    fields = (queue, queue_offset, unit, tags_code, keys, watched, store_timestamp, ())
    return _new_row(Row, fields)


def _unit_of(physical_offset: int, size_bytes: int, tags_code: int) -> bytes:
    """Returns the 20 bytes of a unit."""
    scratch = bytearray(20)
    u = scratch
    for i in range(8):
        u[7 - i] = (physical_offset >> (8 * i)) & 255
        u[19 - i] = (tags_code >> (8 * i)) & 255
    for i in range(4):
        u[11 - i] = (size_bytes >> (8 * i)) & 255
    return bytes(scratch)


def _has(p: bytes, at: int, end: int, text: bytes, count: int) -> bool:
    """Tells whether a text of so many bytes stands at p[at], with its end not behind `end`."""
    if at + count > end:
        return False
    t = text
    for i in range(count):
        if p[at + i] != t[i]:
            return False
    return True


def _u32(p: bytes, at: int) -> int:
    """Returns the unsigned integer of 4 bytes at p[at]."""
    value = p[at]
    value = (value << 8) | p[at + 1]
    value = (value << 8) | p[at + 2]
    return (value << 8) | p[at + 3]


def _i32(p: bytes, at: int) -> int:
    """Returns the integer of 4 bytes at p[at]."""
    return (_u32(p, at) ^ _SIGN_32) - _SIGN_32


def _i64(p: bytes, at: int) -> int:
    """Returns the integer of 8 bytes at p[at]."""
    value = _u32(p, at)
    value = (value << 32) | _u32(p, at + 4)
    return (value ^ _SIGN_64) - _SIGN_64
