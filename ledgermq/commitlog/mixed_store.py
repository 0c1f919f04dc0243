"""MixedMessageStore: a ledger whose oldest messages stand in the plain log that was before it.

    commitlog/   [min_offset, divided_offset)    records, closed by a blank; nothing is added
    dledger-n0/  [divided_offset, ...)           entries; the first has index 0 and that position

Upstream makes such a store when a plain broker is given enableDLegerCommitLog=true. Messages below
the divided offset keep their plain physical offsets. All members have the same plain part; only the
ledger is replicated. When retention has taken the last plain file, it is a ledger like any other.
Source: DLedgerCommitLog.recover, dividedCommitlogOffset of 4.9.3.
"""

from collections.abc import Callable, Sequence

from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.dispatch import Dispatcher
from ledgermq.commitlog.errors import LogOffsetError
from ledgermq.commitlog.key_index import KeyIndex
from ledgermq.commitlog.plain_dispatch import PlainDispatcher
from ledgermq.commitlog.plain_log import PlainCommitLog
from ledgermq.commitlog.rows import RowMaker
from ledgermq.commitlog.store import MessageStore
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.entry import EntryHead, EntrySlice
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.segments import Segments


class MixedLog:
    """The ledger, which begins with the plain log: what a message store needs of both."""

    def __init__(
        self, plain: PlainCommitLog, ledger: LedgerStore, data: Segments, divided_offset: int
    ) -> None:
        self.plain = plain
        self.ledger = ledger
        self.data = data
        self.divided_offset = divided_offset

    def check(self) -> None:
        """Tells whether the two fit together; both are open.

        Raises:
            LogOffsetError: they do not.
        """
        if self.plain.max_offset != self.divided_offset:
            expected = f"{self.divided_offset}, closed by a blank"
            raise LogOffsetError("end of the plain part", expected, self.plain.max_offset)
        begin = self.ledger.first_position
        if self.ledger.first_index == 0 and begin != self.divided_offset:
            raise LogOffsetError("begin of the ledger", self.divided_offset, begin)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Bytes of either part."""
        if position < self.divided_offset:
            return self.plain.read_bytes(position, size_bytes)
        return self.data.read(position, size_bytes)

    @property
    def first_position(self) -> int:
        """First byte of the plain part, of the ledger once that is gone."""
        plain = self.plain
        is_left = plain.min_offset < plain.max_offset
        return plain.min_offset if is_left else self.ledger.first_position

    def begin_drop(self, position: int) -> DiskJob | None:
        """Begins to remove whole files below a position, also the last one of the plain part."""
        if position < self.divided_offset:
            return self.plain.begin_drop(position)
        plain = self.plain.begin_remove_all()
        if plain is None:
            return self.ledger.begin_drop(position)
        return DiskJob(plain.run, lambda: self.ledger.begin_drop(position))

    # All else is the ledger's.

    @property
    def first_index(self) -> int:
        return self.ledger.first_index

    @property
    def last_index(self) -> int:
        return self.ledger.last_index

    @property
    def last_term(self) -> int:
        return self.ledger.last_term

    @property
    def last_chain_crc(self) -> int:
        return self.ledger.last_chain_crc

    @property
    def end_position(self) -> int:
        return self.ledger.end_position

    @property
    def segment_bytes(self) -> int:
        return self.ledger.segment_bytes

    def term_at(self, index: int) -> int:
        return self.ledger.term_at(index)

    def head_at(self, index: int) -> EntryHead:
        return self.ledger.head_at(index)

    def position_at(self, index: int) -> int:
        return self.ledger.position_at(index)

    def read(self, first_index: int, bytes_max: int) -> EntrySlice:
        return self.ledger.read(first_index, bytes_max)

    def read_cached(self, first_index: int, bytes_max: int) -> EntrySlice:
        return self.ledger.read_cached(first_index, bytes_max)

    def read_verified(self, first_index: int, bytes_max: int) -> EntrySlice:
        return self.ledger.read_verified(first_index, bytes_max)

    @property
    def wants_ahead(self) -> bool:
        return self.ledger.wants_ahead

    def has_room(self, runs: Sequence[EntrySlice]) -> bool:
        return self.ledger.has_room(runs)

    def begin_room(self, runs: Sequence[EntrySlice]) -> DiskJob | None:
        return self.ledger.begin_room(runs)

    def begin_ahead(self) -> DiskJob | None:
        return self.ledger.begin_ahead()

    def append(self, entries: EntrySlice) -> None:
        self.ledger.append(entries)

    def begin_truncate(self, from_index: int) -> DiskJob | None:
        return self.ledger.begin_truncate(from_index)

    def begin_reset(self, first_index: int, position: int) -> DiskJob | None:
        return self.ledger.begin_reset(first_index, position)

    def begin_sync(self) -> DiskJob | None:
        return self.ledger.begin_sync()

    def read_checkpoint(self) -> int:
        return self.ledger.read_checkpoint()

    def write_checkpoint(self, commit_index: int) -> None:
        self.ledger.write_checkpoint(commit_index)

    def close(self) -> None:
        self.ledger.close()


class MixedDispatcher(Dispatcher):
    """Dispatches the plain part whenever all is made again, and then goes on with the ledger.

    Records of watched topics in the plain part are not handed over: the state of a broker that had
    no ledger stands in its files.
    """

    def __init__(
        self,
        log: MixedLog,
        row_maker: RowMaker,
        key_index: KeyIndex,
        files: DerivedFiles,
        clock_ms: Callable[[], int],
        *,
        pending_records_max: int,
    ) -> None:
        super().__init__(
            log.ledger,
            row_maker,
            key_index,
            files,
            clock_ms,
            pending_records_max=pending_records_max,
        )
        self._plain_log = log.plain
        self._plain = PlainDispatcher(
            log.plain, row_maker, key_index, files, clock_ms, pending_records_max=0
        )

    def tell_reached(self, reached: Callable[[int], object] | None) -> None:
        super().tell_reached(reached)
        self._plain.tell_reached(reached)

    def restart(self) -> None:
        super().restart()
        plain, log = self._plain, self._plain_log
        plain.start_at(log.min_offset - 1)
        plain.committed(log.min_offset, log.confirmed_offset)
        self.dispatched_timestamp = plain.dispatched_timestamp

    def rebuild(self, queues: set[ConsumeQueue], *, with_keys: bool, end_index: int) -> None:
        end = self._plain_log.confirmed_offset
        self._plain.rebuild(queues, with_keys=with_keys, end_index=end)
        super().rebuild(queues, with_keys=with_keys, end_index=end_index)


class MixedMessageStore(MessageStore):
    """Messages by queue, key, time and place, in both parts."""

    def __init__(
        self,
        config: StoreConfig,
        log: MixedLog,
        file_system: FileSystem,
        clock_ms: Callable[[], int],
    ) -> None:
        """Build the parts; see MessageStore."""
        self._mixed_log = log
        super().__init__(
            config,
            log,
            file_system,
            clock_ms,
            log.read_at,
            segment_at=log.data.segment_at,
            mode=log.data.mode,
            plain_end=log.divided_offset,
        )

    def _new_dispatcher(self) -> Dispatcher:
        return MixedDispatcher(
            self._mixed_log,
            self._row_maker,
            self._key_index,
            self._files,
            self._clock_ms,
            pending_records_max=self._config.pending_records_max,
        )
