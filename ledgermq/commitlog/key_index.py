"""KeyIndex: from a key of a message to the places of the records that have it.

Every record is entered under `topic#UNIQ_KEY` and `topic#key` for each of its blank-separated KEYS.
The hash decides, no key is stored: a lookup may return records of other keys, which clients sort
out. A file is made with the first key, named by local time, and is never touched again when full.
Source: IndexService.java of 4.9.3.
"""

import datetime
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from ledgermq.commitlog import index_loops
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.errors import DamagedFileError, KeyChainTooLongError
from ledgermq.commitlog.index_file import IndexFile, IndexHeader, IndexRow
from ledgermq.commitlog.index_file import KeyRow as KeyRow
from ledgermq.commitlog.layout import INDEX_NAME_DIGITS, index_file_bytes
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.protocol.java_hash import (
    UINT32_MASK,
    UNIQUE_ID_CHARS,
    hash_unique_ids,
    joined_hash,
    weight_of,
)

_SIGN: Final = 0x80000000
_UNIQUE_ID_WEIGHT: Final = weight_of(UNIQUE_ID_CHARS)
_ONLY_UNIQUE_IDS: Final = {UNIQUE_ID_CHARS}
# Entries that one query looks at: a tenth of a second of work, in pieces. Of keys as they are used
# a chain has few; who makes keys that share a slot of the hash table can make one as long as the
# file, and would have every query for them walk through it.
LOOKUP_LINKS_MAX: Final = 100_000


class IndexMark(NamedTuple):
    """How far the key index is known to be durable."""

    # Names of all files, oldest first.
    names: list[str]
    # Header of the last of them.
    header: IndexHeader


def positive_hash(unsigned: int) -> int:
    """Return Java's abs of a hash, and 0 for the one number whose abs is negative there."""
    if unsigned < _SIGN:
        return unsigned
    return 0 if unsigned == _SIGN else (1 << 32) - unsigned


def topic_hash(topic: bytes) -> int:
    """Return the unsigned hash of `topic#`, the prefix of all its keys."""
    return joined_hash(joined_hash(0, topic), b"#")


def hashes_of(rows: Sequence[KeyRow]) -> list[int]:
    """Return the unsigned hash of `topic#key` of each row; unique ids are hashed together."""
    keys = [row[1] for row in rows]
    if set(map(len, keys)) == _ONLY_UNIQUE_IDS and b"".join(keys).isascii():
        together = hash_unique_ids(keys)
        return [
            (row[0] * _UNIQUE_ID_WEIGHT + key_hash) & UINT32_MASK
            for row, key_hash in zip(rows, together, strict=True)
        ]
    ids = [key for key in keys if len(key) == UNIQUE_ID_CHARS and key.isascii()]
    known = dict(zip(ids, hash_unique_ids(ids), strict=True))
    hashes = []
    for prefix_hash, key, _, _ in rows:
        found = known.get(key)
        if found is None:
            hashes.append(joined_hash(prefix_hash, key))
        else:
            hashes.append((prefix_hash * _UNIQUE_ID_WEIGHT + found) & UINT32_MASK)
    return hashes


def _next(pieces: Generator[None, None, tuple[list[int], int]]) -> tuple[list[int], int] | None:
    """Has one piece of work done; returns what it ends in when that was the last."""
    try:
        next(pieces)
    except StopIteration as end:
        ended: tuple[list[int], int] = end.value
        return ended
    return None


class KeyIndex:
    """All files of the key index."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        files: DerivedFiles,
        slot_count: int,
        entry_count: int,
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._files = files
        self._slot_count = slot_count
        self._entry_count = entry_count
        # Oldest first; only the last has room.
        self._index_files: list[IndexFile] = []
        # End timestamp of the last file that became full, for the store checkpoint.
        self.full_timestamp = 0

    @property
    def end_physical_offset(self) -> int:
        """Place of the last record that was entered, -1 when there is none."""
        for file in reversed(self._index_files):
            if file.header.next_number > 1:
                return file.header.end_physical_offset
        return -1

    @property
    def end_timestamp(self) -> int:
        """Store time of that record, 0 when there is none."""
        return self._index_files[-1].header.end_timestamp if self._index_files else 0

    def add(self, rows: Sequence[KeyRow], now_ms: int) -> None:
        """Enter keys, in the order of the log; records that are entered already are skipped.

        Args:
            rows: one for each key; all keys of a record.
            now_ms: wall clock, ms, for the name of a new file.

        Raises:
            DiskFullError: all are entered, and too much waits for room; the same rows may be given
                again.
        """
        known_end = self.end_physical_offset
        if rows and rows[0][2] <= known_end:
            rows = [row for row in rows if row[2] > known_end]
        if not rows:
            return
        count = len(rows)
        if index_loops.COMPILED:
            while rows:
                file = self._file_with_room(now_ms)
                keys = rows[: file.room]
                file.add_keys(keys)
                rows = rows[len(keys) :]
                if not file.room:
                    self.full_timestamp = file.header.end_timestamp
            self._files.made(count)
            return
        entries: list[IndexRow] = [
            (unsigned if unsigned < _SIGN else positive_hash(unsigned), row[2], row[3])
            for unsigned, row in zip(hashes_of(rows), rows, strict=True)
        ]
        while entries:
            file = self._file_with_room(now_ms)
            part = entries[: file.room]
            file.add(part)
            entries = entries[len(part) :]
            if not file.room:
                self.full_timestamp = file.header.end_timestamp
        self._files.made(count)

    def lookup(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, list[int]]:
        """Look for physical offsets for a key, from the newest file to the oldest; yields behind
        each piece of work, and entries and files may come and go meanwhile.

        Source: IndexService.queryOffset.

        Returns: the offsets, unsorted.

        Raises:
            KeyChainTooLongError: more entries than may be looked at share a chain with the key, and
                none of those that were is of this time.
        """
        key_hash = positive_hash(unsigned_hash_of(f"{topic}#{key}"))
        found: list[int] = []
        links_left = LOOKUP_LINKS_MAX
        for file in self._index_files[::-1]:
            file.forget_read()
            header = file.header
            is_inverted = header.end_timestamp < header.begin_timestamp
            if is_inverted or header.begin_timestamp <= end_ms and header.end_timestamp >= begin_ms:
                pieces = file.lookup(key_hash, count_max - len(found), begin_ms, end_ms, links_left)
                while (ended := _next(pieces)) is None:
                    yield
                    if file not in self._index_files:
                        # So are those before it.
                        return found
                places, links = ended
                found += places
                links_left -= links
                if not links_left:
                    break
            if header.begin_timestamp < begin_ms or len(found) >= count_max:
                break
        if not links_left and not found and count_max > 0:
            raise KeyChainTooLongError(LOOKUP_LINKS_MAX)
        return found

    def find_missing(self, rows: Sequence[KeyRow]) -> KeyRow | None:
        """Return the first of these keys that is not entered although it should be, or None.

        Keys of one record stand together.
        """
        end = self.end_physical_offset
        known_place = -1
        # Under what the record of the moment is entered.
        hashes: set[int] = set()
        for file in self._index_files:
            file.forget_read()
        for unsigned, row in zip(hashes_of(rows), rows, strict=True):
            place = row[2]
            if place > end:
                continue
            if place != known_place:
                known_place = place
                # At the seam of two files either may have some.
                hashes = set().union(*(file.hashes_at(place) for file in self._files_at(place)))
            if positive_hash(unsigned) not in hashes:
                return row
        return None

    def _files_at(self, place: int) -> list[IndexFile]:
        """Return the files in which the record at a place may be entered."""
        return [
            file
            for file in self._index_files
            if file.header.begin_physical_offset <= place <= file.header.end_physical_offset
        ]

    def drop_before(self, physical_offset: int) -> int:
        """Remove leading files whose records were all removed from the log, but never the last.

        Returns: how many files were removed.
        """
        count = 0
        for file in self._index_files[:-1]:
            if file.header.end_physical_offset >= physical_offset:
                break
            file.remove()
            count += 1
        del self._index_files[:count]
        return count

    def mark(self) -> IndexMark | None:
        """Return what a flush that begins now will have made durable."""
        if not self._index_files:
            return None
        return IndexMark([file.name for file in self._index_files], self._index_files[-1].header)

    def restore(self, mark: IndexMark | None, *, is_clean: bool, log_start: int = 0) -> bool:
        """Take up the files as a checkpoint describes them.

        Args:
            mark: None when the checkpoint knows of no file.
            is_clean: whether nothing was written after the checkpoint.
            log_start: first position of the log.

        Returns: False when the files are not those, or damaged: then all are removed, and the index
        has to be made again from the log.
        """
        self._index_files = []
        names = mark.names if mark is not None else []
        present = self._file_system.names(self._directory)
        size_bytes = index_file_bytes(self._slot_count, self._entry_count)
        for name in list(present):
            path = f"{self._directory}/{name}"
            if name not in names or self._file_system.size_bytes(path) != size_bytes:
                self._files.remove(path)
                present.remove(name)
        if mark is None:
            return True
        kept = [name for name in names if name in present]
        # At the front a file is missing when retention removed it after the checkpoint.
        if not kept or kept != names[len(names) - len(kept) :]:
            self.clear()
            return False
        try:
            is_sound = self._restore_files(mark, kept, is_clean=is_clean, log_start=log_start)
        except DamagedFileError:
            is_sound = False
        if not is_sound:
            self.clear()
        return is_sound

    def _restore_files(
        self, mark: IndexMark, kept: list[str], *, is_clean: bool, log_start: int
    ) -> bool:
        for name in kept:
            file = self._new_file(name, IndexHeader())
            file.load()
            self._index_files.append(file)
        is_front_gone = kept != mark.names
        if is_front_gone and self._index_files[0].header.begin_physical_offset > log_start:
            return False
        return self._restore_last(mark.header, is_clean=is_clean)

    def _restore_last(self, header: IndexHeader, *, is_clean: bool) -> bool:
        begin = header.begin_physical_offset
        for former in reversed(self._index_files[:-1]):
            if former.header.end_physical_offset > begin:
                return False
            begin = former.header.begin_physical_offset
        file = self._index_files[-1]
        if is_clean and file.header == header:
            if file.room:
                file.load_slots()
            return True
        last = header.next_number - 1
        if last > 0 and file.stored_offset(last) != header.end_physical_offset:
            return False
        file.restore(header)
        return True

    def cut_at(self, physical_offset: int) -> bool:
        """Drop the entries of records at `physical_offset` and behind it: the log lost its end.

        All entries are in files: this is for a store that opens.

        Returns: False when a whole file would have to go: then the index has to be made again.
        """
        if self.end_physical_offset < physical_offset:
            return True
        file = self._index_files[-1]
        if file.header.begin_physical_offset >= physical_offset:
            return False
        number = file.count_below(physical_offset)
        header = file.header
        file.restore(
            IndexHeader(
                header.begin_timestamp,
                header.end_timestamp,
                header.begin_physical_offset,
                file.entry_offset(number - 1),
                header.slots_used,
                number,
            ),
        )
        return True

    def settle(self) -> None:
        """Have the next flush write all there is: the store is closed with it."""
        if self._index_files and self._index_files[-1].room:
            self._index_files[-1].settles = True
            self._files.touch(self._index_files[-1])

    def clear(self) -> None:
        """Remove all files."""
        for file in self._index_files:
            file.remove()
        for name in self._file_system.names(self._directory):
            self._files.remove(f"{self._directory}/{name}")
        self._index_files = []

    def _file_with_room(self, now_ms: int) -> IndexFile:
        if self._index_files and self._index_files[-1].room > 0:
            return self._index_files[-1]
        header = IndexHeader()
        name = file_name(now_ms)
        if self._index_files:
            # A later file begins with the former's end, until its first entry comes.
            former = self._index_files[-1]
            header = IndexHeader(
                former.header.end_timestamp,
                former.header.end_timestamp,
                former.header.end_physical_offset,
                former.header.end_physical_offset,
            )
            while name <= former.name:
                now_ms += 1
                name = max(file_name(now_ms), f"{int(former.name) + 1:0{INDEX_NAME_DIGITS}d}")
        file = self._new_file(name, header)
        self._index_files.append(file)
        return file

    def _new_file(self, name: str, header: IndexHeader) -> IndexFile:
        slot_count, entry_count = self._slot_count, self._entry_count
        return IndexFile(self._files, self._directory, name, slot_count, entry_count, header)


def unsigned_hash_of(text: str) -> int:
    """Return the unsigned hash of a text."""
    return joined_hash(0, text.encode("utf-8", "replace"))


def file_name(now_ms: int) -> str:
    """Return the name of an index file made at `now_ms`: local time, yyyyMMddHHmmssSSS."""
    seconds, milliseconds = divmod(now_ms, 1000)
    return f"{datetime.datetime.fromtimestamp(seconds):%Y%m%d%H%M%S}{milliseconds:03d}"
