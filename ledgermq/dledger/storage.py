"""What the core may ask of a disk: two Protocols and the state that a vote leaves behind.

Promises: nothing here does I/O. `LedgerStore` is satisfied by `DLedgerMemoryStore` and
`DLedgerMmapFileStore`, `VoteStore` by `VoteFile`. The core itself only reads (terms, heads, entries
to push); all writes are made by the driver, in the order that `Ready` prescribes. What may wait for
a disk is a `DiskJob`: begun by the driver, run in the keeper's thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.entry import EntryHead, EntrySlice


@dataclass(frozen=True, slots=True)
class HardState:
    """Term, vote and birth: what must survive a crash before it is spoken of (Raft figure 2,
    persistent state).
    """

    # Latest term this member has seen; never falls.
    term: int
    # Member that got this member's vote in `term`, or None.
    voted_for: str | None = None
    # Birth of the group, as far as this member holds one.
    birth: Birth | None = None
    # Whether it has voted for another member, or was elected, while it was new: it is new no more,
    # also while its log is empty.
    has_voted: bool = False


class LedgerStore(Protocol):
    """The log of one member.

    Indexes are gap-free. An empty log has `last_index == first_index - 1` and `last_term == -1`.
    Positions are absolute byte offsets in the data log.
    """

    @property
    def first_index(self) -> int:
        """Index of the first entry that is still there; the first entry ever has index 0."""
        ...

    @property
    def last_index(self) -> int:
        """Index of the last entry."""
        ...

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        ...

    @property
    def last_chain_crc(self) -> int:
        """Chain checksum of the last entry; 0 when the log is empty or it was not filled."""
        ...

    @property
    def end_position(self) -> int:
        """Where the next entry goes, before the rule of `entry.place` rolls it to a segment."""
        ...

    @property
    def first_position(self) -> int:
        """Position of the first entry."""
        ...

    @property
    def segment_bytes(self) -> int:
        """Size of one data segment; equal on all members."""
        ...

    def term_at(self, index: int) -> int:
        """Tell the term of an entry. Raises CompactedError or OutOfRangeError."""
        ...

    def head_at(self, index: int) -> EntryHead:
        """Read the head of an entry. Raises CompactedError or OutOfRangeError."""
        ...

    def position_at(self, index: int) -> int:
        """Tell where an entry begins. Raises CompactedError or OutOfRangeError."""
        ...

    def read(self, first_index: int, bytes_max: int) -> EntrySlice:
        """Read a run of entries: at least one, at most one segment, about `bytes_max` bytes; the
        data is a copy.
        """
        ...

    def read_cached(self, first_index: int, bytes_max: int) -> EntrySlice:
        """Read as `read` does; where a ColdReader is there, the disk is not waited for.

        Raises ColdDataError when bytes are not in memory.
        """
        ...

    def read_verified(self, first_index: int, bytes_max: int) -> EntrySlice:
        """Read as `read` does, and make every check.

        Raises CorruptStoreError when something does not fit.
        """
        ...

    @property
    def wants_ahead(self) -> bool:
        """Whether `begin_ahead` has something to make."""
        ...

    def has_room(self, runs: Sequence[EntrySlice]) -> bool:
        """Tell whether an append of these runs, one after the other, has to wait for no file."""
        ...

    def begin_room(self, runs: Sequence[EntrySlice]) -> DiskJob | None:
        """Begin to make what an append of these runs needs and lacks; None when it is there.

        The run raises DiskFullError when there is no room, and may be tried again.
        """
        ...

    def begin_ahead(self) -> DiskJob | None:
        """Begin to make the next segment ahead of its need; DiskFullError means nothing here."""
        ...

    def append(self, entries: EntrySlice) -> None:
        """Write entries to the page cache.

        Raises LedgerPositionError before any byte is written when they do not continue the log.
        """
        ...

    def begin_truncate(self, from_index: int) -> DiskJob | None:
        """Begin to drop `from_index` and all after it; wiped and durable when the job has ended.

        Readers do not find what is cut from now on. Nothing is appended before the job has ended.
        """
        ...

    def begin_reset(self, first_index: int, position: int) -> DiskJob | None:
        """Begin to wipe the log; the next entry has this index and this position."""
        ...

    def begin_drop(self, position: int) -> DiskJob | None:
        """Begin to remove whole segments below a position; `first_index` rises when that is safe.

        None when there are none. The run raises DiskFullError when all is as before.
        """
        ...

    def begin_sync(self) -> DiskJob | None:
        """Begin to make durable all that was appended before this call; None when it is.

        An OSError of its run is final for this replica.
        """
        ...

    def read_checkpoint(self) -> int:
        """Tell the committed index written last, or -1."""
        ...

    def write_checkpoint(self, commit_index: int) -> None:
        """Note a committed index."""
        ...

    def close(self) -> None:
        """Release all files."""
        ...


class VoteStore(Protocol):
    """Keeps `HardState`."""

    def load(self) -> HardState | None:
        """Read the state; None when there is none or it cannot be trusted (then the member starts
        recovering).
        """
        ...

    def save(self, state: HardState) -> None:
        """Replace the state; it is durable on return."""
        ...
