"""Everything the replicated ledger raises, with the numbers as fields.

One base class, `LedgerError`. Expected outcomes (a vote refused, a push answered 406) are values,
not errors; what stands here is misuse by the caller, a limit that was reached, damage found on a
disk, and the one that must never happen: `BrokenInvariantError`. After that one the replica stops
before another message leaves it.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol


class LedgerError(Exception):
    """The base of all errors of the replicated ledger."""


class NotLeaderError(LedgerError):
    """A proposal reached a member that does not lead; nothing was appended."""

    def __init__(self, leader_id: str | None, term: int) -> None:
        # The leader this member knows of, or None.
        self.leader_id = leader_id
        self.term = term
        known = f"{leader_id!r} leads" if leader_id is not None else "no leader is known"
        super().__init__(f"this member does not lead term {term}: {known}")


class ApplierBehindError(LedgerError):
    """What stands on the ledger takes no more for now, as its files are written too slowly; nothing
    was applied, and the same range comes again later.
    """


class DropReason(Enum):
    """Why a leader refused a proposal."""

    PENDING_FULL = "too many proposals wait for a majority"
    BYTES_PENDING = "too many proposed bytes wait for a majority"
    TRANSFERRING = "the leadership is being handed over"


class UnconfirmedReason(Enum):
    """Why it is not known whether a leader still leads."""

    TOO_MANY = "too many wait to know it"
    TOO_LATE = "no majority has answered in time, in ms"


class UncertainReason(Enum):
    """Why a follower cannot tell whether it knows all that its group has granted."""

    TOO_MANY = "too many wait to know it"
    TOO_LATE = "no leader has answered in time, or what it told is not applied yet, in ms"
    NO_WAY = "who leads cannot be asked"


class TransferRefusal(Enum):
    """Why a leader does not begin to hand over."""

    UNKNOWN_MEMBER = "it is no other member of the group"
    UNDER_WAY = "the leadership is being handed over already, since so many ms"
    SILENT = "it was not heard of for so many ms"
    RECOVERING = "it has lost state and counts for nothing"
    BEHIND = "it lacks so many entries"


class ProposalDroppedError(LedgerError):
    """A leader refuses a proposal for now; nothing was appended and a later attempt may pass.

    Source: DLedger answers LEADER_PENDING_FULL (503) and LEADER_TRANSFERRING (506).
    """

    def __init__(self, reason: DropReason, value: int, limit: int) -> None:
        self.reason = reason
        # What was measured, and the limit, in the unit of the reason (entries, bytes, or ms since
        # the transfer began).
        self.value = value
        self.limit = limit
        super().__init__(f"proposal refused: {reason.value} ({value}, limit {limit})")


class LeadUnconfirmedError(LedgerError):
    """A leader cannot tell now whether it leads; it may be that another member does."""

    def __init__(self, reason: UnconfirmedReason, term: int, value: int, limit: int) -> None:
        self.reason = reason
        self.term = term
        # What was measured, and the limit, in the unit of the reason (a count, or ms).
        self.value = value
        self.limit = limit
        super().__init__(
            f"it is not certain that this member still leads term {term}:"
            f" {reason.value} ({value}, limit {limit})"
        )


class ReadUncertainError(LedgerError):
    """A follower cannot tell now whether it knows all that was granted; it may be behind."""

    def __init__(self, reason: UncertainReason, value: int, limit: int) -> None:
        self.reason = reason
        # What was measured, and the limit, in the unit of the reason (a count, or ms).
        self.value = value
        self.limit = limit
        super().__init__(
            f"this member may be behind its leader: {reason.value} ({value}, limit {limit})"
        )


class TransferRefusedError(LedgerError):
    """A leader does not begin to hand over; it leads on as before."""

    def __init__(self, reason: TransferRefusal, target_id: str, value: int, limit: int) -> None:
        self.reason = reason
        self.target_id = target_id
        # What was measured, and the limit, in the unit of the reason (entries or ms).
        self.value = value
        self.limit = limit
        super().__init__(
            f"not handing the leadership to {target_id!r}: {reason.value} ({value}, limit {limit})"
        )


class EntryTooLargeError(LedgerError):
    """An entry does not fit a segment or the configured maximum; nothing was appended."""

    def __init__(self, entry_bytes: int, bytes_max: int) -> None:
        self.entry_bytes = entry_bytes
        self.bytes_max = bytes_max
        super().__init__(f"an entry of {entry_bytes} bytes exceeds the limit of {bytes_max} bytes")


class CompactedError(LedgerError):
    """An index lies before the log: retention has removed it."""

    def __init__(self, index: int, first_index: int) -> None:
        self.index = index
        self.first_index = first_index
        super().__init__(f"index {index} was removed; the log begins at {first_index}")


class OutOfRangeError(LedgerError):
    """An index lies behind the end of the log."""

    def __init__(self, index: int, first_index: int, last_index: int) -> None:
        self.index = index
        self.first_index = first_index
        self.last_index = last_index
        super().__init__(f"index {index} is outside the log [{first_index}, {last_index}]")


class LedgerPositionError(LedgerError):
    """Entries do not continue the log where its own rules place them; not a byte was written."""

    def __init__(self, field: str, expected: int, found: int) -> None:
        # "index" or "position".
        self.field = field
        self.expected = expected
        self.found = found
        super().__init__(
            f"entries do not continue the log: {field} is {found}, expected {expected}"
        )


class CorruptEntryError(LedgerError):
    """Bytes that should be an entry are not, or fail a check sum."""

    def __init__(self, field: str, index: int, position: int, expected: int, found: int) -> None:
        # The field of the 48-byte head that disagrees.
        self.field = field
        # Index the entry should have, or -1 when it is not known.
        self.index = index
        self.position = position
        self.expected = expected
        self.found = found
        super().__init__(
            f"entry {index} at position {position}: {field} is {found}, expected {expected}"
        )


class BrokenInvariantError(LedgerError):
    """Something happened that Raft rules out; the replica must stop at once and a person must look.

    Args of the text name the invariant and both numbers that disagree.
    """

    def __init__(self, invariant: str, expected: int, found: int) -> None:
        self.invariant = invariant
        self.expected = expected
        self.found = found
        super().__init__(f"broken invariant: {invariant} (expected {expected}, found {found})")


class ContradictionError(BrokenInvariantError):
    """A leader says of a committed entry, or of one verified against it, what is known otherwise.

    Nothing of its message was taken; one of the two is damaged, or the sender is no member.
    """


class AppliedEntriesCutError(LedgerError):
    """The group went on without entries that this member had applied: a power cut took them.

    Under ASYNC_FLUSH only. The log is cut; whatever was made of those entries is made again from it
    by the next start.
    """

    def __init__(self, from_index: int, applied_index: int) -> None:
        super().__init__(from_index, applied_index)
        self.from_index = from_index
        self.applied_index = applied_index

    def __str__(self) -> str:
        return (
            f"entries {self.from_index} to {self.applied_index} were lost by a majority: cut here,"
            " too; start this member again"
        )


class Readable(Protocol):
    """A file of which parts can be read ahead of their use."""

    path: str

    def load(self, offset: int, size_bytes: int) -> None:
        """Brings bytes into the page cache; waits for the disk.

        Raises:
            LedgerError: the disk does not give them.
        """


class ColdDataError(LedgerError):
    """Bytes are not in the page cache, and the reader must not wait for the disk."""

    def __init__(self, parts: Sequence[tuple[Readable, int, int]]) -> None:
        super().__init__(parts)
        # File, offset and size of each part that the reader is about to read.
        self.parts = parts

    def __str__(self) -> str:
        file, offset, size_bytes = self.parts[0]
        return f"{file.path}: {size_bytes} bytes at offset {offset} are not in memory"
