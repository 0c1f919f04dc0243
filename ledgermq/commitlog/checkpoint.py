"""How far the derived files are known to be good: two small files beside them.

`dispatch.checkpoint` is ours: up to which entry of the ledger everything was dispatched and on
disk, with the bounds of every queue and the state of the key index at that moment. It is replaced
as a whole after the files it speaks of were synced, so after any crash it is true of what is on
disk: the files hold at least that much. What they hold beyond is made again from the log.

    8 hexadecimal digits CRC-32C of the rest, newline, JSON

`checkpoint` is upstream's, for a Java broker that opens the store later.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ledgermq.commitlog.index_file import IndexHeader
from ledgermq.commitlog.key_index import IndexMark
from ledgermq.commitlog.layout import STORE_CHECKPOINT, STORE_CHECKPOINT_BYTES
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.protocol.checksum import crc32c

_VERSION: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMark:
    """What the mark says of the files of the broker's state, which are kept beside the log."""

    # Drawn when this store sealed its first file; the seals name it.
    store_id: str

    # Lowest index of the log that each of these files must stand for, by the file's name.
    files: Mapping[str, int] = field(default_factory=dict)
    # The log tells the whole state in a sweep that begins here or later. 0: also without one, where
    # the log begins at its first entry. Above: files or a leader of Java have told what no record
    # says.
    logged_from: int = 0
    # Why the state is not complete, "" when it is: see broker/storage/state_repair.py.
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchMark:
    """Everything up to `index` is dispatched and durable."""

    index: int
    # Of that entry; they tell whether the log is still the one that was dispatched.
    term: int
    # Position behind that entry.
    end_position: int
    # Latest store time of all records that were dispatched, 0 for none.
    timestamp: int
    # Whether nothing was written after this mark: the store was closed.
    is_clean: bool
    # Topic, queue id, min offset, max offset of each queue, also of those without files.
    queues: list[tuple[str, int, int, int]] = field(default_factory=list)
    # None when the key index has no file.
    key_index: IndexMark | None = None
    # End timestamp of the last full index file.
    index_timestamp: int = 0
    # Entry at which the last sweep begins that told the whole state, -1 for none. The state's files
    # are older than the mark, so they hold what it told.
    state_index: int = -1
    # None: a program wrote the mark that puts no seals on the files of the state.
    state: StateMark | None = None

    @property
    def is_of_plain_log(self) -> bool | None:
        """Whether it is of a plain log, whose indexes are bytes; None: nothing is dispatched."""
        return None if self.index < 0 else self.index + 1 == self.end_position


def encode_mark(mark: DispatchMark) -> bytes:
    """Return the content of the file."""
    topics: dict[str, list[list[int]]] = {}
    for topic, *numbers in mark.queues:
        topics.setdefault(topic, []).append(numbers)
    index = mark.key_index
    header = None
    if index is not None:
        former = index.header
        header = [former.begin_timestamp, former.end_timestamp, former.begin_physical_offset]
        header += [former.end_physical_offset, former.slots_used, former.next_number]
    text = json.dumps(
        {
            "version": _VERSION,
            "index": mark.index,
            "term": mark.term,
            "end_position": mark.end_position,
            "timestamp": mark.timestamp,
            "is_clean": mark.is_clean,
            "queues": topics,
            "index_files": index.names if index is not None else [],
            "index_header": header,
            "index_timestamp": mark.index_timestamp,
            "state_index": mark.state_index,
            "state": None if mark.state is None else _state_to_json(mark.state),
        },
        separators=(",", ":"),
    ).encode()
    return b"%08x\n%b" % (crc32c(text), text)


def decode_mark(data: bytes) -> DispatchMark | None:
    """Return the mark in a file's content, or None when it is not one that can be trusted."""
    checksum, _, text = data.partition(b"\n")
    if checksum != b"%08x" % crc32c(text):
        return None
    try:
        fields: dict[str, Any] = json.loads(text)
        if fields["version"] != _VERSION:
            return None
        key_index = None
        if fields["index_header"] is not None:
            key_index = IndexMark(fields["index_files"], IndexHeader(*fields["index_header"]))
        return DispatchMark(
            index=fields["index"],
            term=fields["term"],
            end_position=fields["end_position"],
            timestamp=fields["timestamp"],
            is_clean=fields["is_clean"],
            queues=[
                (topic, queue_id, min_offset, max_offset)
                for topic, queues in fields["queues"].items()
                for queue_id, min_offset, max_offset in queues
            ],
            key_index=key_index,
            index_timestamp=fields["index_timestamp"],
            state_index=fields["state_index"],
            # Programs that put no seals on files write no such member.
            state=_state_of(fields.get("state")),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _state_to_json(state: StateMark) -> dict[str, Any]:
    return {
        "store_id": state.store_id,
        "files": dict(state.files),
        "logged_from": state.logged_from,
        "doubt": state.doubt,
    }


def _state_of(value: Mapping[str, Any] | None) -> StateMark | None:
    if value is None:
        return None
    return StateMark(
        store_id=value["store_id"],
        files=dict(value["files"]),
        logged_from=value["logged_from"],
        doubt=value["doubt"],
    )


def _upstream_content(mark: DispatchMark) -> bytes:
    times = STORE_CHECKPOINT.pack(mark.timestamp, mark.timestamp, mark.index_timestamp)
    return times.ljust(STORE_CHECKPOINT_BYTES, b"\0")


class Checkpoints:
    """Reads and writes both files of a store."""

    def __init__(self, file_system: FileSystem, root: str) -> None:
        self._file_system = file_system
        self._root = root
        self._mark_path = f"{root}/dispatch.checkpoint"
        self._upstream_path = f"{root}/checkpoint"

    def read(self) -> DispatchMark | None:
        """Return the last mark, or None: then everything is made again from the log."""
        data = self._file_system.read(self._mark_path)
        return None if data is None else decode_mark(data)

    def exists(self) -> bool:
        """Tell whether a mark was ever written here, readable or not."""
        return self._file_system.read(self._mark_path) is not None

    def write(self, mark: DispatchMark) -> None:
        """Replace both files; the mark is durable on return. What it speaks of must be already.

        The mark comes last: whoever finds no room for it does all of a flush once more, makes and
        wipes files again, and a mark that stood already would call them whole meanwhile. The times
        of upstream's file are true as soon as the files are synced.

        Raises:
            OSError: the former mark is still good.
        """
        self._file_system.replace(self._upstream_path, _upstream_content(mark))
        self._file_system.replace(self._mark_path, encode_mark(mark))

    def was_used_by_java(self, mark: DispatchMark) -> bool:
        """Tell whether upstream's file is another one than was written with the mark."""
        found = self._file_system.read(self._upstream_path)
        return found is not None and found != _upstream_content(mark)

    def disown(self, starts: Mapping[tuple[str, int], int]) -> None:
        """Has the mark call queues empty whose files are about to be replaced; durable on return.

        Their numbering goes on at the end that the mark names. What was dispatched behind that
        entry is made again from the log, as ever.

        Args:
            starts: queue offset at which the first replaced file of a queue begins. Files behind
                the end of the queue are none that the mark speaks of.

        Raises:
            OSError: the former mark is still good.
        """
        mark = self.read()
        if mark is None:
            return
        queues = [
            (topic, queue_id, high if starts.get((topic, queue_id), high) < high else low, high)
            for topic, queue_id, low, high in mark.queues
        ]
        if queues != mark.queues:
            self.write(replace(mark, queues=queues, is_clean=False))

    def discard(self) -> None:
        """Remove our file, durably: the next opening makes everything again from the log."""
        if self._file_system.read(self._mark_path) is not None:
            self._file_system.remove(self._mark_path)
            self._file_system.sync_directory(self._root)
