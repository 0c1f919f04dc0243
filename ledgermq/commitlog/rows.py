"""What dispatch needs to know of each committed record, prepared as early as it is known.

A row is made once for each record: on the leader when the record was just encoded, so that nothing
is decoded there; elsewhere from the bytes of the log. Both ways give the same row, which a test
compares. Rows of leader and follower then take the same road.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from ledgermq.commitlog import row_loops
from ledgermq.commitlog.key_index import KeyRow
from ledgermq.commitlog.layout import QUEUE_UNIT
from ledgermq.commitlog.light_queues import LIGHT_QUEUE_ID, MULTI_MARK, light_places
from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.commitlog.row import Row, TopicQueue
from ledgermq.dledger.entry import HEAD_BYTES, EntrySlice
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.java_hash import java_string_hash
from ledgermq.protocol.properties import find_property
from ledgermq.protocol.record import RECORD_MAGIC, decode_record_head
from ledgermq.protocol.sysflag import (
    HOST_V6_MASK,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

_TAGS_MARK: Final = b"\x02TAGS\x01"
_UNIQUE_KEY_MARK: Final = b"\x02UNIQ_KEY\x01"
_KEYS_MARK: Final = b"\x02KEYS\x01"
_TAGS_CODES_MAX: Final = 10_000
# Each is a word as a rule; ten thousand of 32 KB were 330 MB.
_KNOWN_TAGS_BYTES_MAX: Final = 128
_UNKNOWN_DELAY_MS: Final = 1000
# What messageDelayLevel may say at most: 999,999,999 days.
_DELAY_MS_MAX: Final = 999_999_999 * 86_400_000
# Of a record with two IPv4 hosts, from its magic on: 4 magic, 4 crc, 4 queue_id, 4 flag,
# 8 queue_offset, 8 physical_offset, 4 sys_flag, 8 -, 8 -, 8 store_timestamp, 8 -, 4 -, 8 -,
# 4 body_length
_HEAD_V4: Final = Struct(">iI4xi4xqqi8x8xq8x4x8xi")
_HEAD_V4_BYTES: Final = 88
assert _HEAD_V4.size == _HEAD_V4_BYTES


class RowMaker:
    """Makes rows from fields (leader) or from the bytes of the log (everybody else)."""

    def __init__(
        self, queues: ConsumeQueues, *, delays_ms: tuple[int, ...], index_enabled: bool
    ) -> None:
        self._queues = queues
        self._delays_ms = delays_ms
        self.index_enabled = index_enabled
        self.topic_queues: dict[tuple[int, bytes], TopicQueue] = {}
        self._watched: set[str] = set()
        # Tags to their code: there are few, and they come again and again.
        self.tags_codes: dict[bytes, int] = {b"": 0}

    def without_keys(self) -> "RowMaker":
        """Return one that leaves keys and watched bodies out, for making queues again."""
        return RowMaker(self._queues, delays_ms=self._delays_ms, index_enabled=False)

    def only_watching(self, topic: str) -> "RowMaker":
        """Return one that leaves keys out and watches one topic, for replaying its records."""
        row_maker = self.without_keys()
        row_maker.watch(topic)
        return row_maker

    def watch(self, topic: str) -> None:
        """Keep the bodies of this topic's records in their rows from now on."""
        self._watched.add(topic)
        for topic_queue in self.topic_queues.values():
            topic_queue.watched = topic_queue.topic in self._watched

    def topic_queue(self, topic: bytes, queue_id: int) -> TopicQueue:
        """Return what the records of a topic and queue share."""
        found = self.topic_queues.get((queue_id, topic))
        if found is None:
            found = TopicQueue(topic, queue_id, self._queues)
            found.watched = found.topic in self._watched
            self.topic_queues[(queue_id, topic)] = found
        return found

    def row(
        self,
        topic_queue: TopicQueue,
        sys_flag: int,
        queue_offset: int,
        physical_offset: int,
        size_bytes: int,
        store_timestamp: int,
        properties: bytes,
        body: bytes | None,
    ) -> Row:
        """Return the row of a record given by its fields; `body` matters for watched topics.

        Light queues are left out: see `with_light`.
        """
        tags_code = 0
        keys: tuple[KeyRow, ...] = ()
        if properties:
            marked = b"\x02" + properties
            at = marked.rfind(_TAGS_MARK)
            if at >= 0:
                end = marked.find(b"\x02", at + 6)
                tags = marked[at + 6 :] if end < 0 else marked[at + 6 : end]
                known = self.tags_codes.get(tags) if tags else None
                tags_code = (
                    known
                    if known is not None
                    else self.tags_code(find_property(properties, b"TAGS"))
                )
            if topic_queue.is_schedule:
                tags_code = self._deliver_time(properties, store_timestamp, tags_code)
            if self.index_enabled:
                at = marked.rfind(_UNIQUE_KEY_MARK)
                if at >= 0:
                    end = marked.find(b"\x02", at + 10)
                    unique = marked[at + 10 :] if end < 0 else marked[at + 10 : end]
                    keys = ((topic_queue.topic_hash, unique, physical_offset, store_timestamp),)
                if _KEYS_MARK in marked or (keys and not keys[0][1]):
                    keys = _all_keys(topic_queue, properties, physical_offset, store_timestamp)
        queue = topic_queue.queue
        watched = (topic_queue.topic, body) if topic_queue.watched and body is not None else None
        if sys_flag & TRANSACTION_PREPARED:
            # Prepared or rollback: no place in a queue; a rollback is not even indexed.
            if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
                keys = ()
            queue = None
        if queue is None:
            return Row(None, 0, b"", 0, keys, watched, store_timestamp)
        return _new_tuple(
            Row,
            (
                queue,
                queue_offset,
                _pack_unit(physical_offset, size_bytes, tags_code),
                tags_code,
                keys,
                watched,
                store_timestamp,
                (),
            ),
        )

    def with_light(self, row: Row, topic_queue: TopicQueue, properties: bytes) -> Row:
        """Return a row with the light queues that its record says it stands in."""
        if row.queue is None:
            return row
        places = light_places(topic_queue.topic, topic_queue.queue_id, properties)
        light = [(self._queues.get(name, LIGHT_QUEUE_ID), offset) for name, offset in places]
        return row._replace(light=tuple(light))

    def rows_of(self, entries: EntrySlice, first_index: int, end_index: int) -> list[Row]:
        """Return the rows of the entries [first_index, end_index) of a slice.

        Raises:
            RemoteProtocolError: a body is no record.
        """
        data = entries.data if isinstance(entries.data, bytes) else bytes(entries.data)
        low, count = first_index - entries.first_index, end_index - entries.first_index
        starts = entries.starts[low:count]
        stops = entries.starts[low + 1 : count + 1]
        if len(stops) < len(starts):
            stops.append(len(data))
        return self.rows_between(data, starts, stops, HEAD_BYTES)

    def rows_between(
        self, data: bytes, starts: Sequence[int], stops: Sequence[int], head_bytes: int
    ) -> list[Row]:
        """Return the rows of records, each of which fills a part of `data` behind a head.

        Raises:
            RemoteProtocolError: such a part is no record.
        """
        if row_loops.COMPILED:
            return row_loops.rows_between(data, starts, stops, head_bytes, self)
        rows: list[Row] = []
        unpack, make = _HEAD_V4.unpack_from, self.row
        topic_queues = self.topic_queues
        for start, stop in zip(starts, stops, strict=True):
            at = start + head_bytes
            body_at = at + _HEAD_V4_BYTES
            if body_at + 3 <= stop:
                fields = unpack(data, at)
                size, magic, queue_id, queue_offset, physical, sys_flag, stored, body_bytes = fields
                topic_at = body_at + body_bytes + 1
                if (
                    not sys_flag & HOST_V6_MASK
                    and magic == RECORD_MAGIC
                    and (body_at < topic_at <= stop - 2 and at + size == stop)
                ):
                    properties_at = topic_at + data[topic_at - 1] + 2
                    properties = data[properties_at:stop]
                    length = data[properties_at - 2 : properties_at]
                    is_whole = properties_at <= stop and int.from_bytes(
                        length, "big", signed=True
                    ) == len(properties)
                    if is_whole and MULTI_MARK not in properties:
                        topic = data[topic_at : properties_at - 2]
                        shared = topic_queues.get((queue_id, topic))
                        if shared is None:
                            shared = self.topic_queue(topic, queue_id)
                        body = data[body_at : topic_at - 1] if shared.watched else None
                        rows.append(
                            make(
                                shared,
                                sys_flag,
                                queue_offset,
                                physical,
                                size,
                                stored,
                                properties,
                                body,
                            )
                        )
                        continue
            rows.append(self.rare_row(data, at, stop))
        return rows

    def rare_row(self, data: bytes, at: int, stop: int) -> Row:
        """Return the row of a record with an IPv6 host, the second magic, or light queues; raise
        what is wrong.
        """
        head = decode_record_head(data, at)
        if at + head.size_bytes != stop:
            raise RemoteProtocolError("record bytes of an entry", head.size_bytes, stop - at)
        shared = self.topic_queue(head.topic, head.queue_id)
        tail_bytes = len(head.topic) + len(head.properties)
        # Body and its neighbors end where topic and properties begin; only watched bodies matter,
        # and those are written by this program with the first magic.
        body_end = at + head.size_bytes - tail_bytes - 3
        body_at = at + _HEAD_V4_BYTES + (12 if head.sys_flag & 0x10 else 0)
        body_at += 12 if head.sys_flag & 0x20 else 0
        row = self.row(
            shared,
            head.sys_flag,
            head.queue_offset,
            head.physical_offset,
            head.size_bytes,
            head.store_timestamp,
            head.properties,
            data[body_at:body_end],
        )
        return self.with_light(row, shared, head.properties)

    def tags_code(self, tags: bytes) -> int:
        """Return the code of some tags, and know it from now on, unless they are long."""
        code = self.tags_codes.get(tags)
        if code is None and len(tags) > _KNOWN_TAGS_BYTES_MAX:
            return java_string_hash(tags.decode("utf-8", "replace"))
        if code is None:
            if len(self.tags_codes) >= _TAGS_CODES_MAX:
                self.tags_codes.clear()
                self.tags_codes[b""] = 0
            code = java_string_hash(tags.decode("utf-8", "replace"))
            self.tags_codes[tags] = code
        return code

    def _deliver_time(self, properties: bytes, store_timestamp: int, tags_code: int) -> int:
        """Return the tags code of a delayed record: when it is to be delivered, ms.

        Source: CommitLog.checkMessageAndReturnSize of 4.9.3.
        """
        level = delay_level(properties)
        if level <= 0:
            return tags_code
        if not self._delays_ms:
            return store_timestamp + _UNKNOWN_DELAY_MS
        return store_timestamp + self._delays_ms[min(level, len(self._delays_ms)) - 1]


def delay_level(properties: bytes) -> int:
    """Return the delay level that a record of SCHEDULE_TOPIC asks for, 0 or less for none."""
    try:
        return int(find_property(properties, b"DELAY") or b"0")
    except ValueError:
        return 0


def may_be_delivery_time(tags_code: int, store_timestamp: int) -> bool:
    """Tell whether a tags code may be the time at which a delayed record is delivered.

    It was made with the delay that its level had then; messageDelayLevel may say another one now.
    """
    return 0 <= tags_code - store_timestamp <= _DELAY_MS_MAX


_pack_unit = QUEUE_UNIT.pack


_new_tuple = tuple.__new__


def _all_keys(
    topic_queue: TopicQueue, properties: bytes, physical_offset: int, store_timestamp: int
) -> tuple[KeyRow, ...]:
    """Return the unique id and each blank-separated key, as upstream enters them; but one that is
    named again, as upstream does not, is entered once: a second entry finds nothing more.
    """
    unique = find_property(properties, b"UNIQ_KEY")
    keys = dict.fromkeys((unique, *find_property(properties, b"KEYS").split(b" ")))
    prefix_hash = topic_queue.topic_hash
    return tuple((prefix_hash, key, physical_offset, store_timestamp) for key in keys if key)
