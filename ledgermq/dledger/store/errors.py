"""What the stores raise beyond the errors of the ledger: bad disks and wrong files."""

from typing import Final

from ledgermq.dledger.errors import LedgerError


class StoreError(LedgerError):
    """The base of all errors about files of a store."""


class DiskFullError(StoreError):
    """There is no room for the next segment; not a byte of the entries was written."""

    def __init__(self, path: str, needed_bytes: int) -> None:
        super().__init__(path, needed_bytes)
        self.path = path
        self.needed_bytes = needed_bytes

    def __str__(self) -> str:
        return f"no room on the disk for {self.path} ({self.needed_bytes} bytes)"


class StoreFormatError(StoreError):
    """A file or directory is not as a store of this configuration has it; nothing was changed."""

    def __init__(self, path: str, field: str, expected: object, found: object) -> None:
        super().__init__(path, field, expected, found)
        self.path = path
        # What is wrong about it: "name", "size", "start", or a key of a text file.
        self.field = field
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"{self.path}: {self.field} is {self.found}, expected {self.expected}"


class MembershipError(StoreError):
    """The store is that of another group, member or member list than the configuration names.

    Nothing was changed. The member must not run: it would count votes by another majority than the
    others of its group.
    """

    def __init__(self, path: str, key: str, stored: str, configured: str) -> None:
        super().__init__(path, key, stored, configured)
        self.path = path
        # The configuration key: dLegerGroup, dLegerSelfId or dLegerPeers.
        self.key = key
        self.stored = stored
        self.configured = configured

    def __str__(self) -> str:
        subject, remedy = _MEMBERSHIP_TEXTS[self.key]
        return (
            f"cannot start: {subject} {self.stored} ({self.path}), the configuration has"
            f" {self.configured} (key {self.key}); {remedy}"
        )


_MEMBERSHIP_TEXTS: Final = {
    "dLegerGroup": (
        "the store belongs to group",
        "start this member on the directory of its own group",
    ),
    "dLegerSelfId": (
        "the store belongs to member",
        "start this member on its own directory; a member keeps its id",
    ),
    "dLegerPeers": (
        "the members of this group are",
        "name exactly these ids, the same on each member: addresses may change, members cannot be"
        " added, removed or renamed",
    ),
}


class CorruptStoreError(StoreError):
    """Bytes that were once known to be on disk are gone or changed; the files are left as they are.

    A member whose store raises this must not vote: it may have forgotten what it acknowledged.
    """

    def __init__(
        self, path: str, offset: int, field: str, expected: object, found: object, index: int
    ) -> None:
        super().__init__(path, offset, field, expected, found, index)
        self.path = path
        # Byte offset in that file.
        self.offset = offset
        # The field of the entry head or index unit that disagrees.
        self.field = field
        self.expected = expected
        self.found = found
        # The entry that is damaged.
        self.index = index

    def __str__(self) -> str:
        return (
            f"{self.path} is damaged at offset {self.offset} (entry {self.index}):"
            f" {self.field} is {self.found}, expected {self.expected}"
        )


class UnreadableError(CorruptStoreError):
    """The disk does not give bytes of a file: the read fails, or the file ends before them.

    Damage like a checksum that does not fit.
    """

    def __init__(self, path: str, offset: int, size_bytes: int, reason: str) -> None:
        super().__init__(path, offset, "content", f"{size_bytes} bytes", reason, -1)
        self.args = (path, offset, size_bytes, reason)
        self.size_bytes = size_bytes
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"cannot read {self.path}: {self.reason} ({self.size_bytes} bytes at offset"
            f" {self.offset})"
        )


class StoreFailedError(StoreError):
    """A sync or a write failed, so nobody knows what is on disk: no more writes are taken."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(directory, reason)
        self.directory = directory
        self.reason = reason

    def __str__(self) -> str:
        return f"the store in {self.directory} failed and takes no more writes: {self.reason}"


class VoteStateLostError(StoreError):
    """Term and vote are missing or unreadable in a store that had them.

    The member may have voted in a term that it no longer knows. It starts as recovering: it does
    not vote and its answers do not count until it has caught up in a later term.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"term and vote are lost, {self.path}: {self.reason}"
