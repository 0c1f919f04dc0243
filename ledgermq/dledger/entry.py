"""One entry of the ledger as bytes: its head, runs of entries, and where an entry is placed.

An entry on disk, on the wire between LedgerMQ members and in memory is the same bytes, big-endian
(DLedgerEntry.java, DLedgerEntryCoder.java):

    offset  type  field       meaning
         0  i32   magic       1
         4  i32   size        48 + body_bytes
         8  i64   index       number of the entry; the first ever is 0, no gaps
        16  i64   term        term of the leader that proposed it; never falls along the log
        24  i64   position    absolute byte offset of this head in the data log
        32  i32   channel     reserved, 0
        36  u32   chain_crc   CRC-32C over: 4 chain_crc of the entry before,
                              36 first bytes of this head, 4 body_crc
        40  u32   body_crc    CRC-32C of the body
        44  i32   body_bytes
        48        body

Java writes both checksums as 0 and never looks at them. A pair 0/0 therefore means "not filled": it
is skipped and counted, and stands as 0 in the chain of the entry after it.

An EntrySlice is the unit of work: what one reactor turn gathered, one push carries and one write
puts on disk. This module holds values and their checks; it reads no file. Where its promises end: a
slice checked by `parse` is a run of whole entries that continues the given one; that it is the
leader's is for the core to know.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple, cast

from ledgermq.dledger import entry_loops
from ledgermq.dledger.errors import CorruptEntryError, EntryTooLargeError

ENTRY_MAGIC: Final = 1
HEAD_BYTES: Final = 48
# magic, size, index, term, position, channel, chain_crc, body_crc, body_bytes
HEAD: Final = Struct(">iiqqqiIIi")
assert HEAD.size == HEAD_BYTES

# One unit of the index log, at byte index * 32: magic, position, size, index, term (all as in the
# head).
INDEX_UNIT_BYTES: Final = 32
INDEX_UNIT: Final = Struct(">iqiqq")
assert INDEX_UNIT.size == INDEX_UNIT_BYTES

# The blank closes a data segment: i32 -1, i32 bytes left (these 8 included), zeros up to the end.
# Each entry leaves room for the smallest one.
BLANK_MAGIC: Final = -1
BLANK: Final = Struct(">ii")
BLANK_BYTES_MIN: Final = 8
assert BLANK.size == BLANK_BYTES_MIN

# What the chain checksum covers: the chain checksum before, the first 36 bytes of the head, the
# body checksum.
CHAINED: Final = Struct(">IiiqqqiI")
_STAMP = Struct(">q")
_STAMP_BYTES = 8
_TERM = Struct(">q")
_TERM_AT = 16
_CHAIN_CRC = Struct(">I")
_CHAIN_CRC_AT = 36
# Up to here two heads are compared as Java compares entries: the checksums do not count.
_COMPARED_HEAD_BYTES = 36

# What a run takes in memory besides its bytes, rounded up: its objects, each entry's offset.
RUN_BYTES: Final = 512
OFFSET_BYTES: Final = 40

# Where the loops in C take over: their sums stay far from the end of 64 bits.
_LOOP_MAX: Final = 1 << 62

Crc32c = Callable[[bytes | bytearray | memoryview, int], int]


class EntryId(NamedTuple):
    """Term and index of an entry; they are ordered as Raft's "up to date" (Raft paper, 5.4.1)."""

    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls


class EntryHead(NamedTuple):
    """The 48 bytes before a body, as they are drawn above."""

    magic: int
    size: int
    index: int  # type: ignore[assignment]  # as in EntryId
    term: int
    position: int
    channel: int
    chain_crc: int
    body_crc: int
    body_bytes: int


def read_head(data: bytes | memoryview, offset: int = 0) -> EntryHead:
    """Returns the head at `offset`, unchecked.

    Raises:
        struct.error: fewer than 48 bytes are left there.
    """
    return EntryHead._make(HEAD.unpack_from(data, offset))


def place(position: int, entry_bytes: int, segment_bytes: int) -> int:
    """Returns where an entry goes that is to be written at `position`.

    It stays when it leaves at least 8 bytes of its segment free; else the rest of the segment
    becomes a blank and the entry opens the next one. An entry that fits in no segment is refused by
    the encoder, not here.

    Args:
        position: absolute end of the data log.
        entry_bytes: head and body.
        segment_bytes: size of a data segment; the same on all members.

    Source: MmapFileList.preAppend.
    """
    rest = segment_bytes - position % segment_bytes
    if entry_bytes + BLANK_BYTES_MIN <= rest:
        return position
    return position + rest


def count_in_segment(bodies: Sequence[bytes], position: int, segment_bytes: int) -> int:
    """Returns how many of the first bodies still fit in the segment of `position`, as entries."""
    room = segment_bytes - position % segment_bytes - BLANK_BYTES_MIN
    if sum(map(len, bodies)) + len(bodies) * HEAD_BYTES <= room:
        return len(bodies)
    for count, body in enumerate(bodies):
        room -= HEAD_BYTES + len(body)
        if room < 0:
            return count
    return len(bodies)


class EntrySlice:
    """A run of encoded entries, contiguous in one data segment; never empty, never changed.

    Guarantees, which its makers check and its readers may rely on:
    1. `data` holds exactly the entries first_index..last_index, back to back, as they stand in the
    file.
    2. Indexes rise by one; terms never fall; each head's position is `position` plus its offset in
    `data`.
    """

    __slots__ = (
        "data",
        "first_index",
        "first_term",
        "last_chain_crc",
        "last_index",
        "last_term",
        "position",
        "starts",
    )

    def __init__(
        self,
        data: bytes | memoryview,
        starts: list[int],
        *,
        first_index: int,
        first_term: int,
        last_term: int,
        position: int,
        last_chain_crc: int,
    ) -> None:
        # Heads and bodies back to back. A memoryview is a part of another slice's bytes, never of a
        # mapping.
        self.data = data
        # Offset of each head inside `data`; not to be changed.
        self.starts = starts
        self.first_index = first_index
        self.last_index = first_index + len(starts) - 1
        self.first_term = first_term
        self.last_term = last_term
        # Absolute offset of data[0] in the data log.
        self.position = position
        # Chain checksum of the last entry; 0 = not filled.
        self.last_chain_crc = last_chain_crc

    @property
    def count(self) -> int:
        return len(self.starts)

    @property
    def end_position(self) -> int:
        """Absolute offset of the byte after the last entry."""
        return self.position + len(self.data)

    @property
    def memory_bytes(self) -> int:
        """About what it takes in memory; a view keeps all of what it is a part of."""
        data = self.data
        whole = data if isinstance(data, bytes) else cast(bytes, data.obj)
        return RUN_BYTES + len(whole) + OFFSET_BYTES * len(self.starts)

    @property
    def last_id(self) -> EntryId:
        return EntryId(self.last_term, self.last_index)

    def __repr__(self) -> str:
        return (
            f"EntrySlice({self.first_index}..{self.last_index} at {self.position},"
            f" terms {self.first_term}..{self.last_term}, {len(self.data)} bytes)"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EntrySlice):
            return NotImplemented
        return self.position == other.position and self.data == other.data

    __hash__ = None  # type: ignore[assignment]  # compared by content, so not a key

    def entry_id(self, i: int) -> EntryId:
        """Returns the id of the i-th entry of this slice, counted from 0."""
        return EntryId(self.term_at(self.first_index + i), self.first_index + i)

    def term_at(self, index: int) -> int:
        """Returns the term of the entry `index`, which is in this slice."""
        if self.first_term == self.last_term:
            return self.first_term
        start = self.starts[index - self.first_index]
        term: int = _TERM.unpack_from(self.data, start + _TERM_AT)[0]
        return term

    def head_at(self, index: int) -> EntryHead:
        """Returns the head of the entry `index`, which is in this slice."""
        return read_head(self.data, self.starts[index - self.first_index])

    def bodies(self) -> Iterator[memoryview]:
        """Yields each body, in order, as a view of `data`."""
        view = memoryview(self.data)
        start = self.starts[0]
        for end in islice(self.starts, 1, None):
            yield view[start + HEAD_BYTES : end]
            start = end
        yield view[start + HEAD_BYTES :]

    def slice_from(self, index: int) -> "EntrySlice":
        """Returns the part from the entry `index` on, which is in this slice; nothing is copied."""
        return self._part(index - self.first_index, len(self.starts))

    def take(self, count_max: int, bytes_max: int) -> "EntrySlice":
        """Returns the front part within both limits, but at least one entry; nothing is copied."""
        starts = self.starts
        stop = min(len(starts), max(count_max, 1))
        if stop == len(starts) and len(self.data) <= bytes_max:
            return self
        while stop > 1 and self._offset(stop) > bytes_max:
            stop -= 1
        return self._part(0, stop)

    def same_as(self, other: "EntrySlice") -> bool:
        """Tells whether both hold the same entries as Java compares them: all but the checksums.

        Source: DLedgerEntry.equals.
        """
        if self.starts != other.starts or len(self.data) != len(other.data):
            return False
        mine, others = memoryview(self.data), memoryview(other.data)
        for i, start in enumerate(self.starts):
            for part in (
                slice(start, start + _COMPARED_HEAD_BYTES),
                slice(start + HEAD_BYTES, self._offset(i + 1)),
            ):
                if mine[part] != others[part]:
                    return False
        return True

    def _offset(self, i: int) -> int:
        return self.starts[i] if i < len(self.starts) else len(self.data)

    def _part(self, lo: int, hi: int) -> "EntrySlice":
        assert 0 <= lo < hi <= len(self.starts), (lo, hi, len(self.starts))
        if lo == 0 and hi == len(self.starts):
            return self
        begin = self.starts[lo]
        last = self.starts[hi - 1]
        return EntrySlice(
            memoryview(self.data)[begin : self._offset(hi)],
            [start - begin for start in self.starts[lo:hi]],
            first_index=self.first_index + lo,
            first_term=self.term_at(self.first_index + lo),
            last_term=self.term_at(self.first_index + hi - 1),
            position=self.position + begin,
            last_chain_crc=_CHAIN_CRC.unpack_from(self.data, last + _CHAIN_CRC_AT)[0],
        )


class EntryCodec:
    """Makes entries out of bodies, and checks entries that came from elsewhere."""

    def __init__(self, crc32c: Crc32c, stamp_offset: int | None = None) -> None:
        """Binds the checksum and the stamp.

        Args:
            crc32c: CRC-32C of some bytes, continued from a former value (0 at first).
            stamp_offset: where in a body the leader writes, as i64, the position of that body in
                the log (the record's physical offset: 28 in a broker; Java: the append hook of
                DLedgerCommitLog). None: bodies are taken as they are. A body too short for the
                stamp is not stamped.
        """
        # Given at creation; the stores check with it what they find on disk.
        self.crc32c = crc32c
        self._stamp_offset = stamp_offset
        # Entries whose two checksums were 0, seen by `parse` since the codec was made.
        self.unfilled_count = 0

    def encode(
        self,
        bodies: Sequence[bytes],
        *,
        first_index: int,
        term: int,
        position: int,
        previous_chain_crc: int,
    ) -> EntrySlice:
        """Returns the bodies as one run of entries, stamped and with both checksums.

        Args:
            bodies: at least one.
            first_index: index of the first of them.
            term: the leader's term, of all of them.
            position: where the first goes; all of them must fit in its segment (`place`,
                `count_in_segment`).
            previous_chain_crc: chain checksum of the entry before the first; 0 when there is none.
        """
        assert bodies, "a run of entries is never empty"
        data = bytearray(HEAD_BYTES).join((b"", *bodies))
        if entry_loops.COMPILED:
            stamp_offset = -1 if self._stamp_offset is None else self._stamp_offset
            starts, chain_crc = entry_loops.fill_heads(
                data,
                bodies,
                first_index,
                term,
                position,
                previous_chain_crc,
                stamp_offset,
                self.crc32c,
            )
        else:
            starts, chain_crc = self._fill_heads(
                data, bodies, first_index, term, position, previous_chain_crc
            )
        return EntrySlice(
            bytes(data),
            starts,
            first_index=first_index,
            first_term=term,
            last_term=term,
            position=position,
            last_chain_crc=chain_crc,
        )

    def _fill_heads(
        self,
        data: bytearray,
        bodies: Sequence[bytes],
        index: int,
        term: int,
        position: int,
        chain_crc: int,
    ) -> tuple[list[int], int]:
        """Does uncompiled what `entry_loops.fill_heads` does."""
        if self._stamp_offset is not None:
            _stamp(data, bodies, position, self._stamp_offset)
        crc32c, view = self.crc32c, memoryview(data)
        pack_head, pack_chained = HEAD.pack_into, CHAINED.pack
        start, starts = 0, list[int]()
        for body in bodies:
            body_bytes = len(body)
            size = body_bytes + 48
            end = start + size
            at = position + start
            body_crc = crc32c(view[start + 48 : end], 0)
            chained = pack_chained(chain_crc, 1, size, index, term, at, 0, body_crc)
            chain_crc = crc32c(chained, 0)
            pack_head(data, start, 1, size, index, term, at, 0, chain_crc, body_crc, body_bytes)
            starts.append(start)
            start = end
            index += 1
        return starts, chain_crc

    def parse(
        self,
        data: bytes | memoryview,
        *,
        position: int,
        previous: EntryId | None,
        previous_chain_crc: int,
        verify: bool = True,
    ) -> EntrySlice:
        """Returns the entries that `data` holds, checked one by one.

        Args:
            data: whole entries; kept by the result.
            position: where the first one must stand in the log.
            previous: the entry before the first, whose index and term the first must continue. None
                when it is not
                known: then the first index is taken as it is, and unless it is 0 the first chain
                    checksum is too.
            previous_chain_crc: chain checksum of that entry; 0 = not filled, or no such entry.
            verify: False leaves the checksums unchecked (bytes that were checked before).

        Raises:
            CorruptEntryError: with the first field that is wrong.
        """
        index = self._first_index(data, position, previous)
        term, chain_known = (previous.term, True) if previous is not None else (0, index == 0)
        walked = None
        if entry_loops.COMPILED and 0 <= index < _LOOP_MAX and 0 <= position < _LOOP_MAX:
            crc = self.crc32c if verify else None
            walked = entry_loops.walk_entries(
                data, index, term, position, previous_chain_crc, chain_known, crc
            )
        if walked is None:
            walked = self._walk(
                data, index, term, position, previous_chain_crc, chain_known, verify
            )
        starts, last_term, chain_crc, unfilled = walked
        self.unfilled_count += unfilled
        return EntrySlice(
            data,
            starts,
            first_index=index,
            first_term=_TERM.unpack_from(data, _TERM_AT)[0],
            last_term=last_term,
            position=position,
            last_chain_crc=chain_crc,
        )

    def _walk(
        self,
        data: bytes | memoryview,
        index: int,
        term: int,
        position: int,
        chain_crc: int,
        chain_known: bool,
        verify: bool,
    ) -> tuple[list[int], int, int, int]:
        """Does what `walk_entries` does, and raises what is wrong."""
        crc32c, unfilled = self.crc32c, 0
        unpack_head, pack_chained = HEAD.unpack_from, CHAINED.pack
        view, total, start, starts = memoryview(data), len(data), 0, list[int]()
        while start < total:
            if start + 48 > total:
                raise CorruptEntryError("data", index, position + start, 48, total - start)
            head = unpack_head(data, start)
            magic, size, at_index, at_term, at, channel, chain, body_crc, body_bytes = head
            end = start + size
            if (
                magic != 1
                or channel
                or at_index != index
                or at != position + start
                or at_term < term
                or not 0 <= body_bytes == size - 48
                or end > total
            ):
                raise _wrong_field(head, index, term, position + start, total - start)
            if not verify:
                pass
            elif chain == 0 and body_crc == 0:
                unfilled += 1
            else:
                found = crc32c(view[start + 48 : end], 0)
                if found != body_crc:
                    raise CorruptEntryError("body_crc", index, at, body_crc, found)
                found = crc32c(pack_chained(chain_crc, 1, size, index, at_term, at, 0, body_crc), 0)
                if chain_known and found != chain:
                    raise CorruptEntryError("chain_crc", index, at, chain, found)
            chain_known = True
            chain_crc, term = chain, at_term
            starts.append(start)
            start = end
            index += 1
        return starts, term, chain_crc, unfilled

    def _first_index(
        self, data: bytes | memoryview, position: int, previous: EntryId | None
    ) -> int:
        if len(data) < HEAD_BYTES:
            index = -1 if previous is None else previous.index + 1
            raise CorruptEntryError("data", index, position, HEAD_BYTES, len(data))
        if previous is not None:
            return previous.index + 1
        index = read_head(data).index
        if index < 0:
            raise CorruptEntryError("index", index, position, 0, index)
        return index


def check_fits(body_bytes: int, entry_bytes_max: int) -> None:
    """Raises EntryTooLargeError when an entry with such a body exceeds the limit."""
    if body_bytes + HEAD_BYTES > entry_bytes_max:
        raise EntryTooLargeError(body_bytes + HEAD_BYTES, entry_bytes_max)


def _stamp(data: bytearray, bodies: Sequence[bytes], position: int, stamp_offset: int) -> None:
    pack_stamp, shortest = _STAMP.pack_into, stamp_offset + _STAMP_BYTES
    at = HEAD_BYTES
    for body in bodies:
        body_bytes = len(body)
        if body_bytes >= shortest:
            pack_stamp(data, at + stamp_offset, position + at)
        at += body_bytes + HEAD_BYTES


def _wrong_field(
    fields: tuple[int, ...], index: int, term: int, position: int, left: int
) -> CorruptEntryError:
    """Names the first field of a head that is not what it must be; one of them is not."""
    head = EntryHead._make(fields)
    checks = (
        ("magic", ENTRY_MAGIC, head.magic),
        ("index", index, head.index),
        ("position", position, head.position),
        ("channel", 0, head.channel),
        ("body_bytes", head.size - HEAD_BYTES, head.body_bytes),
    )
    for field, expected, found in checks:
        if found != expected:
            return CorruptEntryError(field, index, position, expected, found)
    if head.term < term:
        return CorruptEntryError("term", index, position, term, head.term)
    return CorruptEntryError("size", index, position, left, head.size)
