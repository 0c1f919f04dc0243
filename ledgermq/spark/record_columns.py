"""Records as columns: a run of message records becomes Arrow arrays without a loop over rows.

    records   |head|body|topic|properties|head|body|...      layout: protocol/record.py
    starts    ^                           ^                  one number for each record
    fields    numbers, and where body, topic and properties lie: record_fields.py
    Arrow     body, topic, properties: parts of the same bytes, copied side by side

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

from ledgermq.protocol import column_loops
from ledgermq.protocol import properties as names
from ledgermq.protocol.checksum import CRC32_MASK
from ledgermq.protocol.compression import decompress
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.message_id import encode_offset_id
from ledgermq.protocol.record import RECORD_FIXED_BYTES, decode_record
from ledgermq.protocol.sysflag import COMPRESSED, INNER_BATCH_MASK
from ledgermq.spark.errors import CorruptDataError
from ledgermq.spark.property_columns import Int64s, PropertyColumns, gather
from ledgermq.spark.record_fields import (
    HEAD,
    Booleans,
    Int32s,
    as_text,
    checked_fields,
    named_places,
    pairs_of,
    parts_of,
    quick_fields,
    texts_of,
)

_INT32: Final = Struct(">i")
# Largest body after decompression.
_BODY_BYTES_MAX: Final = 256 * 1024 * 1024
_SIZE: Final = np.dtype(">i4")
# After so many records of one size the next ones are looked at together. Where that finds fewer
# than are worth it, twice as many have to come before the next look.
_ALIKE_FIRST: Final = 8
_ALIKE_WORTH: Final = 64
_ALIKE_MAX: Final = 4096


def record_starts(data: bytes | memoryview, place: Callable[[int], str]) -> Int64s:
    """Returns where each record of a run begins.

    Args:
        data: whole records, back to back.
        place: names a byte of `data` in an error.

    Raises:
        CorruptDataError: a size does not lead to the next record.
    """
    if column_loops.COMPILED:
        found = np.empty(len(data) // RECORD_FIXED_BYTES, np.int64)
        count, last_end = column_loops.find_records(data, found)
        if last_end == len(data):
            return found[:count]
    return _checked_starts(data, place)


def _checked_starts(data: bytes | memoryview, place: Callable[[int], str]) -> Int64s:
    """Returns where each record of a run begins, or raises."""
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
        self.starts = starts
        self._fields = quick_fields(data, starts) or checked_fields(data, starts, self._check)

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def head(self) -> npt.NDArray[Any]:
        """The fields at the beginning of each record, by their names; most have a property."""
        return gather(np.frombuffer(self._data, np.uint8), self.starts, HEAD)

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
        packed = (self.sys_flags & COMPRESSED) != 0
        if not packed.any():
            yield self
            return
        first, size = 0, 0
        bodies: list[bytes] = []
        for i, body in enumerate(self._stored_bodies().to_pylist()):
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

    def _stored_bodies(self) -> Any:
        return parts_of(self._data, self._fields.body_at, self._fields.body_end)

    @property
    def queue_ids(self) -> Int32s:
        """Numbers of the queues."""
        return self._fields.queue_ids

    @property
    def sys_flags(self) -> Int32s:
        """Bits of sysflag.py."""
        return self._fields.sys_flags

    @property
    def reconsume_times(self) -> Int32s:
        """How often the messages were consumed again."""
        return self._fields.reconsume_times

    @property
    def store_ms(self) -> Int64s:
        """Store times, ms since 1970."""
        return self._fields.store_ms

    @property
    def born_ms(self) -> Int64s:
        """Born times, ms since 1970."""
        return self._fields.born_ms

    @property
    def queue_offsets(self) -> Int64s:
        """Numbers of the messages in their queues."""
        return self._fields.queue_offsets

    @cached_property
    def topics(self) -> Any:
        """Topics, as Arrow text."""
        return as_text(parts_of(self._data, self._fields.topic_at, self._fields.topic_end))

    @cached_property
    def _properties(self) -> PropertyColumns:
        fields = self._fields
        blocks = parts_of(self._data, fields.properties_at, fields.properties_end)
        return PropertyColumns(as_text(blocks))

    @cached_property
    def _named_places(self) -> dict[str, tuple[Int64s, Int64s]]:
        fields = self._fields
        return named_places(self._data, fields.properties_at, fields.properties_end)

    def find_property(self, name: str) -> Any:
        """Returns the values of one property as Arrow text, null where a message has it not."""
        places = self._named_places.get(name)
        found = None if places is None else texts_of(self._data, *places)
        return self._properties.find(name) if found is None else found

    def property_maps(self, kind: Any) -> Any:
        """Returns all properties as an Arrow array of maps.

        Args:
            kind: the Arrow type of the column.
        """
        fields = self._fields
        pairs = pairs_of(self._data, fields.properties_at, fields.properties_end)
        if pairs is None:
            return self._properties.maps(kind)
        borders, keys, values = pairs
        return pa.MapArray.from_arrays(pa.array(borders), keys, values, type=kind)

    def body_bounds(self) -> tuple[memoryview, list[int], list[int]]:
        """Returns the bytes, and where in them each body begins and ends, as it is stored."""
        fields = self._fields
        return memoryview(self._data), fields.body_at.tolist(), fields.body_end.tolist()

    @cached_property
    def bodies(self) -> Any:
        """Bodies as they were sent, as Arrow bytes.

        Raises:
            CorruptDataError: a compressed body is not the one that was stored.
        """
        found = self._stored_bodies()
        packed = np.flatnonzero(self.sys_flags & COMPRESSED)
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
        flags = int(self.sys_flags[i])
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
        flags = self.sys_flags & INNER_BATCH_MASK
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
            counts = self.find_property(names.INNER_NUM).take(pa.array(inner))
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
        given = self.find_property(names.UNIQUE_KEY)
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


def is_one_of(values: Any, wanted: frozenset[str]) -> Booleans:
    """Tells which texts of an Arrow array are one of some; a null is none."""
    found = pc.is_in(values, value_set=pa.array(sorted(wanted), pa.string()))
    mask: Booleans = found.to_numpy(zero_copy_only=False)
    return mask
