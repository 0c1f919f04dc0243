"""The seven state files of a broker, and which of them are older than what they hold.

What is larger than a start would read is not written: the old file stays, operators are told, and
no mark of the message store may say meanwhile that the files have what was dispatched.

A table is encoded only when it changed since its file was written, and slice by slice: one of
20,000 topics takes 0.2 s, which no turn of the reactor has. So a file holds all changes from before
its encoding began, and some of those that came since. That is enough: a restart replays from that
moment on, and a change says what shall be, so that it may be made twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ledgermq.broker.storage.state_files import (
    ContentFile,
    encode_text,
    format_pretty,
    pretty_slices,
)
from ledgermq.broker.storage.state_loading import FoundFile, LoadRule
from ledgermq.protocol.file_seal import SEAL_BYTES_MAX, sealed
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.document import Document
from ledgermq.state.errors import StateFileTooLargeError
from ledgermq.state.refusals import Refusals

# Of a slice: encoded in less than five ms.
SLICE_CHARS: Final = 64 << 10
_TOPICS: Final = "topics.json"
_GROUPS: Final = "subscriptionGroup.json"
_OFFSETS: Final = "consumerOffset.json"
_LIGHT_OFFSETS: Final = "lmqConsumerOffset.json"
_DELAYS: Final = "delayOffset.json"
# Not of upstream's; the rules are sealed besides.
_LOCKS: Final = "queueLocks.json"
_RULES: Final = "accessRules.json"
_FORMAT: Final = "stateFormat.json"
STATE_FILE_NAMES: Final = (
    _TOPICS, _GROUPS, _OFFSETS, _LIGHT_OFFSETS, _DELAYS, _LOCKS, _RULES, _FORMAT,
)  # fmt: skip


# Files, and what is to be written to each.
StateContents = list[tuple[ContentFile, bytes]]


class _Source(Protocol):
    """One table."""

    def document(self) -> Document: ...

    def load_json(self, value: Mapping[str, Any]) -> None: ...


class _Table(NamedTuple):
    # Of BrokerState.unsaved.
    name: str
    file: ContentFile
    document: Callable[[], Document]
    load_json: Callable[[Mapping[str, Any]], None]
    refusals: Refusals


class Encoding:
    """Tables on their way into their files: `step` until `is_done`, then write `contents`.

    Invariant: a table that is not among `contents` in the end is marked as unsaved.
    """

    def __init__(
        self,
        tables: Sequence[_Table],
        unsaved: set[str],
        slice_chars: int,
        take_format: Callable[[], StateContents],
        seal: Callable[[ContentFile, list[bytes], int], bytes],
        index: int,
        *,
        all_or_none: bool = False,
    ) -> None:
        """Begins; what changes from now on is marked as unsaved again.

        Args:
            tables: to be encoded.
            unsaved: names of the tables that are newer than their files.
            slice_chars: of a step.
            take_format: returns the file of the state's format, when that has to be written; asked
                when all is encoded, since what is encoded last may be in a newer format.
            seal: makes a file's content of its slices, for an index of the log.
            index: up to where the tables hold the log now.
            all_or_none: whether nothing is to be written when one of the tables is too large.
        """
        self.names = {table.name for table in tables}
        self.contents: StateContents = []
        self.is_done = False
        # Not all could be encoded, and so nothing is to be written.
        self.is_void = False
        self._unsaved = unsaved
        self._unsaved -= self.names
        self._take_format, self._seal, self.index = take_format, seal, index
        self._all_or_none = all_or_none
        self._slices = self._encode(tables, slice_chars)

    def step(self) -> None:
        """Encodes a slice."""
        self.is_done = next(self._slices, None) is None

    def finish(self) -> None:
        """Encodes the rest at once."""
        while not self.is_done:
            self.step()

    def take_back(self) -> None:
        """Notes that nothing of it got to the disk, or that nobody knows what did: the next flush
        writes it.
        """
        for file, _ in self.contents:
            file.is_durable = False
        if not self.is_done:
            self._unsaved |= self.names

    def _encode(self, tables: Iterable[_Table], slice_chars: int) -> Iterator[int]:
        """Yields after each slice how long it is."""
        length = 0
        for table in tables:
            slices: list[bytes] = []
            size = 0
            try:
                for text in pretty_slices(table.document(), slice_chars):
                    slices.append(encode_text(text))
                    size += len(slices[-1])
                    table.file.check(size + SEAL_BYTES_MAX)
                    length += len(text)
                    if length >= slice_chars:
                        yield length
                        length = 0
            except StateFileTooLargeError as error:
                table.refusals.refused(error)
                self._unsaved.add(table.name)
                if self._all_or_none:
                    self.is_void = True
                    self.take_back()
                    self.contents.clear()
                    return
            else:
                table.refusals.stored()
                self.contents.append((table.file, self._seal(table.file, slices, self.index)))
        # First on the disk: a former program must not take the tables for its own.
        self.contents[:0] = self._take_format()


class StateTables:
    """Files and tables.

    Invariant: a file that is durable and whose table is not marked as unsaved holds the table. So
    nothing more is taken while something that was taken is on its way to the disk.
    """

    def __init__(
        self,
        state: BrokerState,
        new_file: Callable[[str], ContentFile],
        clock_ms: Callable[[], float],
        *,
        owner: Callable[[], str] = str,
        applied_index: Callable[[], int] = lambda: -1,
        slice_chars: int = SLICE_CHARS,
    ) -> None:
        """Reads and writes nothing yet.

        Args:
            state: the tables; it marks those that changed.
            new_file: makes a file of its name.
            clock_ms: monotonic time.
            owner: names this store in the seals of its files; asked at each write.
            applied_index: up to where the tables hold the log now.
            slice_chars: of what one step encodes.
        """
        self._state = state
        self._slice_chars = slice_chars
        light = state.offsets.knows_light_queues
        self._owner, self._applied_index = owner, applied_index
        # Index that each file stands for at least, by its name: what the next mark names.
        self.indexes: dict[str, int] = {}
        files = new_file(_OFFSETS), new_file(_LIGHT_OFFSETS)
        # The second one is what there was before light queues were turned on, or off.
        self._offsets, self._other_offsets = reversed(files) if light else files

        def table(source: _Source, name: str, file: ContentFile) -> _Table:
            refusals = Refusals(str(file), clock_ms)
            return _Table(name, file, source.document, source.load_json, refusals)

        self._tables = (
            table(state.topics, "topics", new_file(_TOPICS)),
            table(state.groups, "groups", new_file(_GROUPS)),
            table(state.offsets, "offsets", self._offsets),
            table(state.locks, "locks", new_file(_LOCKS)),
            table(state.access_record, "rules", new_file(_RULES)),
        )
        self._delays = new_file(_DELAYS)
        self._format = new_file(_FORMAT)

    @property
    def alarm(self) -> str | None:
        """Which file cannot be written, for operators; None while all can."""
        alarms = (table.refusals.alarm for table in self._tables)
        return next((alarm for alarm in alarms if alarm is not None), None)

    @property
    def is_waiting(self) -> bool:
        """True while it is too early to encode a table again whose file would be too large."""
        return any(table.refusals.is_waiting for table in self._tables)

    def load(self, rule: LoadRule | None = None) -> list[FoundFile]:
        """Fills the tables from those files that are believed; all others are left as they are.

        Returns:
            What was found, in the order of reading.

        Raises:
            UnreadRecordError: a newer program wrote them.
        """
        rule = rule or LoadRule()
        loads: list[tuple[ContentFile, Callable[[Mapping[str, Any]], None]]]
        loads = [(self._format, self._state.formats.load_json)]
        loads += [(table.file, table.load_json) for table in self._tables]
        loads += [(self._delays, self._state.progress.load_json)]
        own_names = {file.name for file, _ in loads}
        self.indexes = {name: at for name, at in rule.indexes.items() if name in own_names}
        found: list[FoundFile] = []
        for file, load_json in loads:
            if self._is_in_other_file(file, rule):
                file = self._other_offsets
            one = rule.find(file)
            if one.problem is not None:
                file.set_aside()
            if one.content is not None:
                load_json(one.content)
            found.append(one)
        return found

    def _is_in_other_file(self, file: ContentFile, rule: LoadRule) -> bool:
        """Whether this is the file of the offsets, and what there is of them was written while
        light queues were on and are off now, or the other way round.
        """
        if file is not self._offsets:
            return False
        if rule.indexes:
            return file.name not in rule.indexes and self._other_offsets.name in rule.indexes
        return file.read() is None and self._other_offsets.read() is not None

    def save(self) -> bool:
        """Makes all files durable, which blocks; returns False when one would be too large."""
        encoding = self.begin_flush()
        encoding.finish()
        for file, content in encoding.contents:
            file.write(content, is_durable=True)
        self.take_indexes(encoding)
        return not encoding.is_void

    def take_indexes(self, encoding: Encoding) -> Mapping[str, int]:
        """Returns the index that each file stands for at least, by name, once all contents of a
        flush are durable.
        """
        for file, _ in encoding.contents:
            self.indexes[file.name] = self._index_of(file, encoding.index)
        return dict(self.indexes)

    def note_durable(self, encoding: Encoding) -> None:
        """Takes that files were replaced between two flushes; some of them durably."""
        for file, _ in encoding.contents:
            if file.is_durable:
                self.indexes[file.name] = self._index_of(file, encoding.index)

    def _index_of(self, file: ContentFile, index: int) -> int:
        """After a log that ends before its mark, a table still holds what its file had."""
        return max(index, self.indexes.get(file.name, -1))

    def _seal(self, file: ContentFile, slices: list[bytes], index: int) -> bytes:
        return sealed(slices, self._owner(), self._index_of(file, index))

    def begin_save(self, names: Iterable[str]) -> Encoding | None:
        """Begins to encode those of the tables that changed since they were last taken; None when
        there are none.
        """
        tables = [
            table
            for table in self._tables
            if table.name in names
            and table.name in self._state.unsaved
            and not table.refusals.is_waiting
        ]
        return self._encode(tables) if tables else None

    def begin_flush(self) -> Encoding:
        """Begins to encode the tables that a power cut would leave newer than their files; the
        caller must make the contents durable, or take them back.
        """
        unsaved = self._state.unsaved
        tables = [
            table for table in self._tables if table.name in unsaved or not table.file.is_durable
        ]
        encoding = self._encode(tables, all_or_none=True)
        # A few numbers, which change with every delivery; as of this moment, since what is
        # delivered later is counted once more.
        content = encode_text(format_pretty(self._state.progress.to_json()))
        sealed_content = self._seal(self._delays, [content], encoding.index)
        encoding.contents.append((self._delays, sealed_content))
        return encoding

    def _encode(self, tables: Sequence[_Table], *, all_or_none: bool = False) -> Encoding:
        return Encoding(
            tables,
            self._state.unsaved,
            self._slice_chars,
            self._take_format,
            self._seal,
            self._applied_index(),
            all_or_none=all_or_none,
        )

    def _take_format(self) -> StateContents:
        formats = self._state.formats
        if self._format.is_durable and not formats.is_unsaved:
            return []
        formats.is_unsaved = False
        content = encode_text(format_pretty(formats.to_json()))
        return [(self._format, self._seal(self._format, [content], self._applied_index()))]
