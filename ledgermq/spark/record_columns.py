"""Records as columns: a run of message records becomes Arrow arrays without a loop over rows.

    records   |head|body|topic|properties|head|body|...      layout: protocol/record.py
    starts    ^                           ^                  one number for each record
    numpy     fixed fields: gathered from `starts`, big-endian, all rows at once
    Arrow     body, topic, properties: slices of the same buffer, copied by one `take`

Each column is made when it is asked for. Every length is checked against the record's size before
anything is sliced; what does not fit raises CorruptDataError, which names the record.
"""

import zlib
from collections.abc import Callable, Iterator
from functools import cached_property
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.protocol import properties as names
from ledgermq.protocol.checksum import CRC32_MASK
from ledgermq.protocol.compression import decompress
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.message_id import encode_offset_id
from ledgermq.protocol.record import (
    RECORD_FIXED_BYTES,
    RECORD_MAGIC,
    RECORD_MAGIC_V2,
    decode_record,
)
from ledgermq.protocol.sysflag import BORN_HOST_V6, COMPRESSED, INNER_BATCH_MASK, STORE_HOST_V6
from ledgermq.spark.errors import CorruptDataError
from ledgermq.spark.property_columns import Int64s, PropertyColumns, gather, slices

Booleans = npt.NDArray[np.bool_]

_INT32: Final = Struct(">i")
# Largest body after decompression.
_BODY_BYTES_MAX: Final = 256 * 1024 * 1024
# The first 48 bytes of a record; what follows moves with the sizes of the two hosts.
_HEAD: Final = np.dtype(
    [
        ("size_bytes", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
# What stands behind the two hosts.
_TAIL: Final = np.dtype(
    [("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_bytes", ">i4")]
)
_HEAD_BYTES: Final = _HEAD.itemsize
_SIZE: Final = np.dtype(">i4")
# After so many records of one size the next ones are looked at together. Where that finds fewer
# than are worth it, twice as many have to come before the next look.
_ALIKE_FIRST: Final = 8
_ALIKE_WORTH: Final = 64
_ALIKE_MAX: Final = 4096
_V6_BYTES: Final = 12
assert (_HEAD_BYTES, _TAIL.itemsize) == (48, 16)


def record_starts(data: bytes | memoryview, place: Callable[[int], str]) -> Int64s:
    """Returns where each record of a run begins.

    Args:
        data: whole records, back to back.
        place: names a byte of `data` in an error.

    Raises:
        CorruptDataError: a size does not lead to the next record.
    """
    parts: list[Int64s] = []
    starts: list[int] = []
    at, end, size_at = 0, len(data), _INT32.unpack_from
    last_size, alike, alike_wanted = 0, 0, _ALIKE_FIRST
    while at + RECORD_FIXED_BYTES <= end:
        size = size_at(data, at)[0]
        if size < RECORD_FIXED_BYTES or at + size > end:
            raise CorruptDataError(place(at), f"a record of {size} bytes, {end - at} are left")
        starts.append(at)
        at += size
        if size != last_size:
            last_size, alike = size, 0
            continue
        alike += 1
        if alike == alike_wanted:
            more = _as_large(data, at, size)
            parts += [np.array(starts, np.int64), more]
            at, starts, alike = at + len(more) * size, [], 0
            if len(more) < _ALIKE_WORTH:
                alike_wanted *= 2
    if at != end:
        raise CorruptDataError(place(at), f"{end - at} bytes are no record")
    return np.concatenate([*parts, np.array(starts, np.int64)])


def _as_large(data: bytes | memoryview, at: int, size: int) -> Int64s:
    """Returns where the next records begin, as far as they have one size; not all of very many."""
    places = np.arange(at, len(data) - size + 1, size)[:_ALIKE_MAX]
    other = np.flatnonzero(gather(np.frombuffer(data, np.uint8), places, _SIZE) != size)
    return places[: other[0]] if len(other) else places


class RecordColumns:
    """The columns of a run of records."""

    def __init__(
        self, data: bytes | memoryview, starts: Int64s, place: Callable[[int], str]
    ) -> None:
        """Reads the fixed fields and checks every length.

        Args:
            data: the records; other bytes may lie between them.
            starts: where each begins, ascending; its size is known to end within `data`.
            place: names a byte of `data` in an error.

        Raises:
            CorruptDataError: a record is not consistent in itself.
        """
        self._data = data
        self._place = place
        self._buffer = np.frombuffer(data, np.uint8)
        self._arrow = pa.py_buffer(data)
        self.starts = starts
        self.head = gather(self._buffer, starts, _HEAD)
        sys_flag = self.head["sys_flag"]
        self._store_at = starts + 56 + _V6_BYTES * ((sys_flag & BORN_HOST_V6) != 0)
        tail_at = self._store_at + 16 + _V6_BYTES * ((sys_flag & STORE_HOST_V6) != 0)
        body_at = tail_at + _TAIL.itemsize
        self._check(body_at + 3 <= starts + self.head["size_bytes"])
        self.tail = gather(self._buffer, tail_at, _TAIL)
        self._body_at = body_at
        self._body_end = body_at + self.tail["body_bytes"]
        self._find_texts()

    def __len__(self) -> int:
        return len(self.starts)

    def _find_texts(self) -> None:
        """Finds topic and properties behind the bodies, or raises."""
        ends = self.starts + self.head["size_bytes"]
        magic = self.head["magic"]
        is_long = magic == RECORD_MAGIC_V2
        topic_at = self._body_end + 1 + is_long
        self._check(
            ((magic == RECORD_MAGIC) | is_long)
            & (self.tail["body_bytes"] >= 0)
            & (topic_at + 2 <= ends)
        )
        topic_bytes = self._buffer[topic_at - 1].astype(np.int64)
        if is_long.any():
            topic_bytes += np.where(is_long, self._buffer[topic_at - 2], 0).astype(np.int64) * 256
        self._topic_at, self._topic_end = topic_at, topic_at + topic_bytes
        self._check(self._topic_end + 2 <= ends)
        lengths = gather(self._buffer, self._topic_end, np.dtype(">i2")).astype(np.int64)
        self._properties_at = self._topic_end + 2
        self._check(self._properties_at + lengths == ends)
        self._properties_end = ends

    def _check(self, is_good: Booleans) -> None:
        """Raises for the first record that is not."""
        if is_good.all():
            return
        at = int(self.starts[int(np.argmin(is_good))])
        reason = "the lengths in the record do not fit together"
        try:
            decode_record(self._data, at)
        except RemoteProtocolError as error:
            reason = str(error)
        raise CorruptDataError(self._place(at), reason)

    def select(self, mask: Booleans) -> "RecordColumns":
        """Returns the records for which the mask is true."""
        if mask.all():
            return self
        found = RecordColumns(self._data, self.starts[mask], self._place)
        if "bodies" in self.__dict__:
            # Nothing is decompressed twice.
            found.bodies = self.bodies.filter(pa.array(mask))
        return found

    def parts(self, bytes_max: int) -> Iterator["RecordColumns"]:
        """Yields the records in parts whose bodies have no more than so many bytes as they were
        sent, or which are a single record.

        What compressed bodies become is known only when they are decompressed, and may be a
        thousand times as much.

        Raises:
            CorruptDataError: as `bodies`.
        """
        packed = (self.head["sys_flag"] & COMPRESSED) != 0
        if not packed.any():
            yield self
            return
        first, size = 0, 0
        bodies: list[bytes] = []
        stored = slices(self._arrow, self._body_at, self._body_end, pa.binary())
        for i, body in enumerate(stored.to_pylist()):
            sent = self._sent(i, body)
            if bodies and size + len(sent) > bytes_max:
                yield self._part(first, i, bodies)
                first, size, bodies = i, 0, []
            bodies.append(sent)
            size += len(sent)
        yield self._part(first, len(self), bodies)

    def _part(self, first: int, end: int, bodies: list[bytes]) -> "RecordColumns":
        part = RecordColumns(self._data, self.starts[first:end], self._place)
        part.bodies = pa.array(bodies, pa.binary())
        return part

    @cached_property
    def store_ms(self) -> Int64s:
        """Store times, ms since 1970."""
        times: Int64s = gather(self._buffer, self._store_at, np.dtype(">i8")).astype(np.int64)
        return times

    @property
    def born_ms(self) -> Int64s:
        """Born times, ms since 1970."""
        times: Int64s = self.head["born_timestamp"].astype(np.int64)
        return times

    @property
    def queue_offsets(self) -> Int64s:
        """Numbers of the messages in their queues."""
        offsets: Int64s = self.head["queue_offset"].astype(np.int64)
        return offsets

    @cached_property
    def topics(self) -> Any:
        """Topics, as Arrow text."""
        return _as_text(slices(self._arrow, self._topic_at, self._topic_end, pa.binary()))

    @cached_property
    def properties(self) -> PropertyColumns:
        """Properties."""
        return PropertyColumns(
            _as_text(slices(self._arrow, self._properties_at, self._properties_end, pa.binary()))
        )

    def body_bounds(self) -> tuple[memoryview, list[int], list[int]]:
        """Returns the bytes, and where in them each body begins and ends, as it is stored."""
        return memoryview(self._data), self._body_at.tolist(), self._body_end.tolist()

    @cached_property
    def bodies(self) -> Any:
        """Bodies as they were sent, as Arrow bytes.

        Raises:
            CorruptDataError: a compressed body is not the one that was stored.
        """
        flags = self.head["sys_flag"]
        found = slices(self._arrow, self._body_at, self._body_end, pa.binary())
        packed = np.flatnonzero(flags & COMPRESSED)
        if len(packed) == 0:
            return found
        return pa.array(
            [self._sent(i, body) for i, body in enumerate(found.to_pylist())], pa.binary()
        )

    def _sent(self, i: int, body: bytes) -> bytes:
        """Returns the body of a record as it was sent.

        One that its producer called compressed and that cannot be decompressed stands as it is
        stored: whoever may send one message could end every read of a topic.
        """
        flags = int(self.head["sys_flag"][i])
        if not flags & COMPRESSED:
            return body
        try:
            return decompress(body, flags, _BODY_BYTES_MAX)
        except RemoteProtocolError as error:
            if zlib.crc32(body) & CRC32_MASK == int(self.head["body_crc"][i]):
                return body
            raise CorruptDataError(self._place(int(self.starts[i])), str(error)) from error

    @property
    def _inner_batches(self) -> Int64s:
        flags = self.head["sys_flag"] & INNER_BATCH_MASK
        return np.flatnonzero(flags == INNER_BATCH_MASK)

    @property
    def say_inner_batches(self) -> bool:
        """Whether one says that it holds several messages."""
        return len(self._inner_batches) > 0

    def refuse_inner_batches(self) -> None:
        """Refuses records that hold several messages each, as batch queues of 5.x have them.

        Who only says so tells no number, and is a message like all others.

        Raises:
            CorruptDataError: there is one.
        """
        inner = self._inner_batches
        if len(inner):
            counts = self.properties.find(names.INNER_NUM).take(pa.array(inner))
            found = np.flatnonzero(counts.is_valid().to_numpy(zero_copy_only=False))
            if len(found):
                at = int(self.starts[int(inner[int(found[0])])])
                reason = "the record holds several messages (a batch queue of 5.x), and is not read"
                raise CorruptDataError(self._place(at), reason)

    @property
    def message_ids(self) -> Any:
        """The ids that their producers gave them, else those that tell where they are stored.

        Raises:
            CorruptDataError: a record cannot be read.
        """
        given = self.properties.find(names.UNIQUE_KEY)
        if given.null_count == 0:
            return given
        ids = given.to_pylist()
        for i, text in enumerate(ids):
            if text is None:
                try:
                    record = decode_record(self._data, int(self.starts[i]))
                except RemoteProtocolError as error:
                    place = self._place(int(self.starts[i]))
                    raise CorruptDataError(place, str(error)) from error
                address, port = record.store_host
                ids[i] = encode_offset_id(address, port, record.physical_offset)
        return pa.array(ids, pa.string())


def _as_text(found: Any) -> Any:
    """Returns bytes as text; where they are no UTF-8, as Java reads them."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in found.to_pylist()])


def is_one_of(values: Any, wanted: frozenset[str]) -> Booleans:
    """Tells which texts of an Arrow array are one of some; a null is none."""
    found = pc.is_in(values, value_set=pa.array(sorted(wanted), pa.string()))
    mask: Booleans = found.to_numpy(zero_copy_only=False)
    return mask
