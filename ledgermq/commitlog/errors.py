"""What this package raises. The texts hold the numbers that decide; the fields are for programs."""

from ledgermq.dledger.errors import ApplierBehindError


class CommitLogError(Exception):
    """Base class of all errors of this package."""


class MessageIllegalError(CommitLogError):
    """A message breaks a limit; nothing of its batch was appended. The sender is to blame."""

    def __init__(self, field: str, value: object, limit: object, position: int = 0) -> None:
        super().__init__(field, value, limit, position)
        # What is wrong: "topic", "body bytes", "properties bytes", "record bytes", ...
        self.field = field
        self.value = value
        self.limit = limit
        # Which message of the batch that was to be appended, from 0.
        self.position = position

    def __str__(self) -> str:
        return f"the message is illegal: {self.field} is {self.value}, allowed: {self.limit}"


class UnreadRecordError(CommitLogError):
    """A committed record of a watched topic is in a form that this program does not read.

    Nothing is wrong with the log: dispatch has ended before the record, and a program that reads it
    goes on there.
    """

    def __init__(
        self, what: str, *, index: int | None, found: str, reads: str, remedy: str
    ) -> None:
        super().__init__(what, index, found, reads, remedy)
        # What the record is of.
        self.what = what
        # Ledger index of the entry; None when it is the whole of what was applied before.
        self.index = index
        # Its form, and the forms that are read.
        self.found = found
        self.reads = reads
        self.remedy = remedy

    def __str__(self) -> str:
        place = "" if self.index is None else f" at index {self.index}"
        return (
            f"{self.what}{place} has {self.found}, this program reads {self.reads}: {self.remedy}"
        )


class DispatchError(CommitLogError):
    """A committed entry does not continue its queue, so nothing may be dispatched any more.

    Either the log holds something that no leader writes, or a derived file is damaged; it stays as
    it is for a person to look at. Removing the folder of the queue makes the next start rebuild it.
    """

    def __init__(self, what: str, *, index: int, expected: object, found: object) -> None:
        super().__init__(what, index, expected, found)
        self.what = what
        # Ledger index of the entry, -1 when it is about no single one.
        self.index = index
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"{self.what} at index {self.index}: expected {self.expected}, found {self.found}"


class LogOffsetError(CommitLogError):
    """Bytes do not continue a plain log, or one was asked for an offset that it does not hold."""

    def __init__(self, what: str, expected: object, found: object) -> None:
        super().__init__(what, expected, found)
        self.what = what
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"plain log: {self.what} is {self.found}, expected {self.expected}"


class SegmentLackingError(CommitLogError):
    """A plain log has no file yet for what is to be written; it can be when one is made."""

    def __init__(self, directory: str, end_offset: int) -> None:
        super().__init__(directory, end_offset)
        self.directory = directory
        # Where the bytes would have ended.
        self.end_offset = end_offset

    def __str__(self) -> str:
        return f"{self.directory}: the file for bytes up to {self.end_offset} is being made"


class PlainLogThereError(CommitLogError):
    """A ledger is to be opened beside a plain log, whose messages nobody would see."""

    def __init__(self, directory: str, root: str) -> None:
        super().__init__(directory, root)
        self.directory = directory
        self.root = root

    def __str__(self) -> str:
        return (
            f"{self.directory} holds a plain commit log: make a ledger of it first, with"
            f" ledgermq store convert {self.root} NEW_DIRECTORY --to ledger"
        )


class DamagedFileError(CommitLogError):
    """Bytes of a file are not what was written; they are not served.

    The log is repaired from the other members, all else is made again from the log.
    """

    def __init__(self, file: str, what: str, expected: object, found: object) -> None:
        super().__init__(file, what, expected, found)
        # "log", "consume queue", "key index".
        self.file = file
        self.what = what
        self.expected = expected
        self.found = found

    @property
    def is_derived(self) -> bool:
        """Whether the file can be made again from the log."""
        return self.file != "log"

    def __str__(self) -> str:
        return f"{self.file} is damaged, {self.what}: expected {self.expected}, found {self.found}"


class KeyChainTooLongError(CommitLogError):
    """A query by key would look at more entries of the key index than one may."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"the newest {self.limit} entries of the key index that share a place with this key are"
            " not of this key and time, and a query looks at no more: ask for a later time"
        )


class StoreInUseError(CommitLogError):
    """Another broker holds the lock of the store directory."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"another broker uses this store: {self.path} is locked"


class StoreUnsafeError(CommitLogError):
    """Somebody else has put a link into the store directory."""

    def __init__(self, path: str, user_id: int) -> None:
        super().__init__(path, user_id)
        self.path = path
        self.user_id = user_id

    def __str__(self) -> str:
        return (
            f"{self.path} is a link that the user with the id {self.user_id} has made: it could"
            " lead anywhere; remove it, and close the directory to others (chmod 0700)"
        )


class StoreLostError(CommitLogError):
    """The store directory is not the one that this broker locked: what it writes is lost, and
    another broker may use the directory that is there now.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (
            f"{self.path} is not the file that this broker locked: it, or the store directory, was"
            " removed, moved, replaced or mounted over while the broker ran"
        )


class FilesBehindError(CommitLogError, ApplierBehindError):
    """Queues and key index are written too slowly for what is stored; nothing was appended, or
    dispatched.
    """

    def __init__(self, held_count: int, held_max: int) -> None:
        super().__init__(held_count, held_max)
        self.held_count = held_count
        self.held_max = held_max

    def __str__(self) -> str:
        return (
            f"{self.held_count} units of queues and key index wait for the disk, more than"
            f" {self.held_max}: a flush of theirs does not end"
        )


class LeaderNotReadyError(CommitLogError):
    """This member does not lead, or has not yet dispatched all that its log held when it began."""

    def __str__(self) -> str:
        return "this broker is not ready to lead: its log is not yet committed and dispatched"
