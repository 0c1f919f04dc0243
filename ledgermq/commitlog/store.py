"""MessageStore: everything a broker does with messages, on top of one member's ledger.

How to run it:

1. `open` before the ledger starts: derived files are brought to what the log holds as committed.
2. `attach` the running ledger, then feed it: `committed` for each range, in order.
3. `become_leader` when this member leads, its opening record is committed and `dispatched_index`
   has reached it; `resign` when it leads no longer. Only between them `append` is possible.
4. When `is_flush_due`: `begin_flush` in the reactor, then, in the keeper's thread, `begin_log_sync`
   and the steps of the job, then `end_flush` in the reactor. Now and then `decide_clean` and
   `begin_drop`.
5. `close` after the ledger stopped.

What it promises: a reader sees committed messages only; a queue offset names one message for ever;
after any crash `open` ends with queues without holes. An error that comes out of `committed` or of
a flush is final for this replica.
"""

import contextlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace

from ledgermq.commitlog.checkpoint import Checkpoints, DispatchMark, StateMark
from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.derived_files import HELD_MAX, DerivedFiles
from ledgermq.commitlog.dispatch import Dispatcher, Watcher
from ledgermq.commitlog.dledger_commit_log import DLedgerCommitLog, Ledger
from ledgermq.commitlog.encoding import AppendMessage
from ledgermq.commitlog.errors import (
    DamagedFileError,
    DispatchError,
    FilesBehindError,
    LeaderNotReadyError,
)
from ledgermq.commitlog.flush import FlushJob, begin_flush, mark_of
from ledgermq.commitlog.key_index import KeyIndex
from ledgermq.commitlog.layout import QUEUE_UNIT
from ledgermq.commitlog.light_queues import count_light_queues
from ledgermq.commitlog.look_up import LookUp, QueryResult, run_to_end
from ledgermq.commitlog.message_writer import AppendResult, MessageWriter
from ledgermq.commitlog.queue_ends import (
    QUEUES_TOPIC,
    adopt_queue_ends,
    decode_queue_ends,
)
from ledgermq.commitlog.queue_offsets import QueueOffsets
from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.commitlog.reading import (
    GetMessageResult,
    LogReader,
    ReadAt,
    SegmentAt,
    TagsMatcher,
)
from ledgermq.commitlog.recovery import Recovery, StoreReport, drop_before
from ledgermq.commitlog.retention import CleanDecision, decide, is_full
from ledgermq.commitlog.row import Arrival
from ledgermq.commitlog.rows import RowMaker
from ledgermq.commitlog.scrub import Scrub
from ledgermq.commitlog.segment_ages import SegmentAges
from ledgermq.commitlog.store_times import StoreTimes, latest_of
from ledgermq.dledger.disk_job import DiskJob, do_now
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.opening_progress import OpeningProgress
from ledgermq.dledger.store.segment import ReadMode
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import decode_record_head


class MessageStore:
    """Messages by queue, key, time and place."""

    def __init__(
        self,
        config: StoreConfig,
        store: LedgerStore,
        file_system: FileSystem,
        clock_ms: Callable[[], int],
        read_at: ReadAt,
        *,
        segment_at: SegmentAt,
        mode: ReadMode | None = None,
        plain_end: int = 0,
    ) -> None:
        """Build the parts; nothing is read or written before `open`.

        Args:
            store: this member's log, opened.
            clock_ms: wall clock, ms since 1970.
            read_at: bytes of the data log by absolute position and size.
            segment_at: the segment of the ledger that holds a position.
            mode: of the log's reads; None: they all may wait.
            plain_end: records below this position stand in a plain log, without heads.
        """
        self._config = config
        self._store = store
        self._file_system = file_system
        self._clock_ms = clock_ms
        self.store_times = StoreTimes(clock_ms)
        self._read_at = read_at
        self._mode = ReadMode() if mode is None else mode
        self._files = DerivedFiles(file_system, config.open_files_max, self._mode)
        self._queues = ConsumeQueues(
            file_system, f"{config.root}/consumequeue", self._files, config.queue_segment_bytes
        )
        self._key_index = KeyIndex(
            file_system,
            f"{config.root}/index",
            self._files,
            config.index_slot_count,
            config.index_entry_count,
        )
        self._row_maker = RowMaker(
            self._queues, delays_ms=config.delays_ms, index_enabled=config.index_enabled
        )
        self._dispatcher = self._new_dispatcher()
        self._dispatcher.watch(QUEUES_TOPIC, self._take_queue_ends)
        self._reader = LogReader(
            store,
            read_at,
            self._dispatcher,
            self._queues,
            config,
            segment_at=segment_at,
            mode=self._mode,
            plain_end=plain_end,
        )
        # See LogReader.
        self.find_run, self.lend_message = self._reader.find_run, self._reader.lend_message
        self._look_up = LookUp(
            store, read_at, self._dispatcher, self._queues, self._key_index, config, plain_end
        )
        self._ages = SegmentAges(store, self._dispatcher, self._look_up)
        self.checkpoints = Checkpoints(file_system, config.root)
        self._files.disown = self._disown
        self._queue_offsets = QueueOffsets(self._queues, self._row_maker)
        self._commit_log: MessageWriter | None = None
        self._flushed_at_ms = 0
        self._flush_is_running = False
        self._state: Callable[[], tuple[int, StateMark | None]] = lambda: (-1, None)
        self._on_state_index: Callable[[int], object] = lambda index: None
        self.is_disk_full = False  # As the last decision says.

    def _new_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self._store,
            self._row_maker,
            self._key_index,
            self._files,
            self._clock_ms,
            pending_records_max=self._config.pending_records_max,
        )

    def open(
        self,
        before_mark: Callable[[StoreReport], bool] | None = None,
        progress: OpeningProgress | None = None,
        *,
        replay_state: Watcher | None = None,
        saves_always: bool = False,
    ) -> StoreReport:
        """Recover; watchers that are set already see what is dispatched.

        Whoever opens a store in a process of its own holds the directory's StoreLock.

        Args:
            before_mark: makes durable what the watchers have made of it. The mark that ends the
                recovery says that those records need not be handed over again. Returns False when
                it could not: then the mark stays where it is, and they will be.
            progress: told how far it is.
            replay_state: gets the records of the broker's state that are below the checkpoint, from
                the beginning of the last whole sweep on; None: its files have all that they say.
            saves_always: `before_mark` is called also where nothing was handed over.

        Raises:
            DispatchError, OSError: the store cannot be used.
        """
        self._file_system.make_directory(self._config.root)
        mark, progress = self.checkpoints.read(), progress or OpeningProgress()
        # Here nobody waits: what is made again is written as it comes.
        self._files.held_max = min(HELD_MAX, self._config.flush_records)
        recovery = Recovery(
            self._store,
            self._queues,
            self._key_index,
            self._dispatcher,
            self.checkpoints.write,
            progress,
            replay_state,
        )
        try:
            report = recovery.run(mark)
        except DamagedFileError as damage:
            if not damage.is_derived:
                raise
            report = recovery.run(mark, str(damage))
        self._files.held_max = HELD_MAX
        progress.begin("writes what it made")
        if mark is not None and not report.rebuilt_because:
            self._on_state_index(mark.state_index)
        is_needed = report.dispatched_count or replay_state is not None or saves_always
        is_saved = before_mark is None or not is_needed or before_mark(report)
        # From here on files change: the mark on disk must not call them clean.
        if is_saved:
            self.flush()
        else:
            told = self.checkpoints.read()
            if told is not None and told.is_clean:
                self.checkpoints.write(replace(told, is_clean=False))
        return report

    def attach(self, ledger: Ledger) -> None:
        """Name the ledger that `append` proposes to."""
        self._commit_log = DLedgerCommitLog(
            ledger,
            self._queue_offsets,
            self.store_times,
            self._config,
            self._row_maker,
            self._dispatcher.appended,
        )

    def close(self) -> None:
        """Flush and close all files; after a failure only close them. No flush may be running."""
        if self.failure is None:
            self.flush(is_clean=True)
        self.abandon()

    def abandon(self) -> None:
        """Close all files as they are."""
        self._files.close()

    # --- writing ---

    def next_store_time(self, last_record: bytes) -> int:
        """Return the time of a record that is appended now, by whomever: see StoreTimes.

        Args:
            last_record: of the log, which need not be dispatched; b"" when there is none.
        """
        last_ms = self._dispatcher.dispatched_timestamp
        # What is no record has no time.
        with contextlib.suppress(RemoteProtocolError):
            last_ms = latest_of(last_ms, decode_record_head(last_record).store_timestamp)
        next_ms = self.store_times.next_ms(last_ms)
        if self._commit_log is not None:
            # What is appended behind it, before it is dispatched, follows it.
            self._commit_log.begin_behind(next_ms)
        return next_ms

    def append(self, messages: Sequence[AppendMessage]) -> list[AppendResult]:
        """Append a turn's messages: see MessageWriter.append.

        Raises:
            FilesBehindError: too much waits for a flush that does not end.
        """
        if self._commit_log is None or self._dispatcher.failure is not None:
            raise LeaderNotReadyError()
        self.check_files()
        return self._commit_log.append(messages)

    def check_files(self) -> None:
        """Raises FilesBehindError when so much waits for a flush that no more should be added."""
        if self._files.is_behind:
            raise FilesBehindError(self._files.held_count, self._files.held_max)

    def committed(self, start_index: int, end_index: int) -> None:
        """Dispatch newly committed entries: see Dispatcher.committed.

        Where they begin a log that was begun afresh behind what was dispatched, all starts over;
        right behind it the queues go on, and only what points before the log is forgotten.
        """
        if 0 < start_index == self._store.first_index:
            next_index = self._dispatcher.dispatched_index + 1
            if next_index < start_index:
                self.reset()
            elif next_index == start_index:
                drop_before(self._queues, self._key_index, self._store.first_position)
        self._dispatcher.committed(start_index, end_index)

    def become_leader(self) -> None:
        """Take up the leadership: every entry of the log is committed and dispatched.

        Raises:
            LeaderNotReadyError: some are not.
        """
        if self._dispatcher.failure is not None:
            raise self._dispatcher.failure
        if self._dispatcher.dispatched_index < self._store.last_index:
            raise LeaderNotReadyError()
        if self._commit_log is not None:
            self._commit_log.begin_behind(self._dispatcher.dispatched_timestamp)
        self._queue_offsets.open()

    def resign(self) -> None:
        """Forget the queue offsets: this member may no longer lead."""
        self._queue_offsets.close()
        self._dispatcher.forget_appended()

    def reset(self) -> None:
        """Start over from the log's first entry: the log was replaced by a later one."""
        for queue in self._queues:
            queue.restore(0, 0)
        self._key_index.clear()
        self._dispatcher.restart()

    def on_dispatched(self, notify: Callable[[list[Arrival]], None]) -> None:
        """Have `notify` called once for each committed range: topic, queue id, offset behind, tags
        code of each message in it.
        """
        self._dispatcher.on_dispatched = notify

    def on_damage(self, notify: Callable[[Exception], None]) -> None:
        """Have `notify` called when a read comes upon damage, before the read fails."""
        self._reader.on_damage = self._files.on_damage = self._mode.on_unreadable = notify

    def make_scrub(self) -> Scrub:
        """Return a scrub of this store's log and of what derives from it."""
        parts = self._dispatcher, self._row_maker, self._key_index
        return Scrub(self._store, *parts, self._mode)

    def keep_state(
        self, told: Callable[[], tuple[int, StateMark | None]], restored: Callable[[int], object]
    ) -> None:
        """Have each mark keep what the watchers know of their own state.

        Args:
            told: returns the entry at which the last whole sweep begins, -1 for none, and what is
                true of the watchers' files. What they made of the log is durable before the mark
                is: see `open` and FlushJob.
            restored: gets the former, at the next opening that goes on from the mark.
        """
        self._state, self._on_state_index = told, restored

    def watch_topic(self, topic: str, callback: Watcher) -> None:
        """Have body and index of a topic's records handed over at dispatch, in order.

        When everything is made again from the log, records from long ago are handed over too: the
        watcher compares the index with what it knows.
        """
        self._dispatcher.watch(topic, callback)

    # --- reading ---

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        matcher: TagsMatcher | None,
        *,
        may_wait: bool = True,
    ) -> GetMessageResult[bytes]:
        """Return records of a queue from `offset` on, or why there are none."""
        lend = self._reader.lend_message
        lent = lend(topic, queue_id, offset, count_max, matcher, may_wait=may_wait)
        return GetMessageResult(*lent[:4], [bytes(part) for part in lent.parts], *lent[5:])

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue, which is the same for ever; None while it has had no message."""
        return self._queues.find(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset whose record is still there, 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message will get, 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the offset of the message stored nearest to a time, 0 for an empty queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else self._look_up.offset_by_time(queue, timestamp_ms)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Return the store time of a message, None when it is not there."""
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else self._look_up.store_time(queue, queue_offset)

    def earliest_store_time(self, topic: str | None = None, queue_id: int = 0) -> int | None:
        """Return the store time of a queue's first message, or of the log's first record."""
        if topic is not None:
            return self.store_time(topic, queue_id, self.min_offset(topic, queue_id))
        return self._look_up.store_time_from(self._store.first_position)

    def queue_units(
        self, topic: str, queue_id: int, offset: int, count_max: int
    ) -> list[tuple[int, int, int]]:
        """Return units of a queue from `offset` on: physical offset, size, tags code of each."""
        queue = self._queues.find(topic, queue_id)
        return [] if queue is None else list(QUEUE_UNIT.iter_unpack(queue.units(offset, count_max)))

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the committed record that stands at a place, or None."""
        return self._look_up.record_at(physical_offset)

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Return the newest records with a key in a span of store time, oldest of them first."""
        return run_to_end(self._look_up.query(topic, key, count_max, begin_ms, end_ms))

    def query_in_pieces(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, QueryResult]:
        """As `query`; yields behind each piece of work, and the store may change meanwhile."""
        return self._look_up.query(topic, key, count_max, begin_ms, end_ms)

    def queues(self, topic: str) -> list[int]:
        """Return the ids of a topic's queues that have had messages."""
        return [queue.queue_id for queue in self._queues.of_topic(topic)]

    def topics(self) -> list[str]:
        """Return the topics that have had messages."""
        return self._queues.topics()

    def count_light_queues(self) -> int:
        """Return how many light queues there are, without those that hold nothing any more."""
        return count_light_queues(self._queues)

    @property
    def min_physical_offset(self) -> int:
        """First position of the log."""
        return self._store.first_position

    @property
    def max_physical_offset(self) -> int:
        """Position behind the last committed and dispatched entry."""
        return self._dispatcher.dispatched_position

    @property
    def dispatched_timestamp(self) -> int:
        """Return the latest store time of the records that readers may see, see `latest_of`; 0 when
        there is none.
        """
        return self._dispatcher.dispatched_timestamp

    @property
    def dispatched_index(self) -> int:
        """Last entry that is dispatched; the ledger's applied index."""
        return self._dispatcher.dispatched_index

    @property
    def dispatch_behind(self) -> int:
        """Bytes of the log that are not dispatched."""
        return max(0, self._store.end_position - self._dispatcher.dispatched_position)

    @property
    def failure(self) -> Exception | None:
        """What ended dispatch for good, None while it works."""
        return self._dispatcher.failure

    # --- upkeep ---

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues; returns how many. Their numbering goes on if it comes back."""
        queues = self._queues.of_topic(topic)
        for queue in queues:
            queue.delete()
        return len(queues)

    def is_flush_due(self, now_ms: int) -> bool:
        """Tell whether a flush should begin; `now_ms` is the clock that begin_flush was given."""
        unflushed_records = self._dispatcher.unflushed_records
        if self._flush_is_running or not (unflushed_records or self._files.has_removals):
            return False
        return (
            # A clock that was set back puts nothing off.
            not 0 <= now_ms - self._flushed_at_ms < self._config.flush_interval_ms
            or unflushed_records >= self._config.flush_records
        )

    def begin_flush(self, now_ms: int) -> FlushJob:
        """Return a job whose steps belong into the keeper's thread; `end_flush` must follow."""
        self._flushed_at_ms = now_ms
        return self._begin_flush(is_clean=False)

    def _begin_flush(self, *, is_clean: bool) -> FlushJob:
        if self._flush_is_running:
            raise DispatchError("a flush is running", index=-1, expected="none", found="one")
        self._flush_is_running = True
        self._dispatcher.unflushed_records = 0
        mark = self._mark(is_clean=is_clean)
        if is_clean:
            self._key_index.settle()
        return begin_flush(mark, self._files, self.checkpoints)

    def begin_log_sync(self) -> DiskJob | None:
        """Begin to make the log itself durable, before a checkpoint tells of it.

        None: a ledger's member does it.
        """
        return None

    def end_flush(self, job: FlushJob) -> None:
        """Note that all of the job's steps are taken; after an error it is not called."""
        self._flush_is_running = False
        self._files.landed(job.changes, is_marked=job.is_marked)
        if job.is_marked:
            self._ages.flushed_position = job.mark.end_position
        else:
            self._dispatcher.unflushed_records += 1

    def take_back_flush(self) -> None:
        """Note that there was no room for the flush: it is done again when it is due."""
        self._flush_is_running = False
        self._files.take_back()
        self._dispatcher.unflushed_records += 1

    def flush(self, *, is_clean: bool = False) -> None:
        """Flush at once; blocks. With `is_clean` nothing is dispatched behind it."""
        job = self._begin_flush(is_clean=is_clean)
        do_now(self.begin_log_sync())
        job.run()
        self.end_flush(job)

    def _mark(self, *, is_clean: bool) -> DispatchMark:
        state = self._state()
        return mark_of(
            self._dispatcher, self._queues, self._key_index, is_clean=is_clean, state=state
        )

    def _disown(self, paths: Collection[str]) -> None:
        self.checkpoints.disown(self._queues.offsets_of(paths))

    def is_full_at(self, disk_percent: int) -> bool:
        """Tell what `is_disk_full` would become by this use of the disk."""
        return is_full(disk_percent, self._config, was_full=self.is_disk_full)

    def decide_clean(
        self,
        now_ms: int,
        local_hour: int,
        disk_percent: int,
        *,
        is_asked: bool = False,
        needed_index: int | None = None,
        state_index: int | None = None,
        reserved_hours: int | None = None,
    ) -> CleanDecision:
        """Decide what retention gives up; `begin_drop` of `drop_before` must follow.

        Args:
            now_ms: ms since 1970, by a clock that no jump of the wall clock moves ahead.
            local_hour: hour of the day.
            disk_percent: see retention.used_percent.
            is_asked: an operator wants it now.
            needed_index: first entry that a follower lacks; it stays while the disk allows it.
            state_index: entry that a log must not begin behind, for all who read it need what it
                says; it stays in any case. -1: all stays. None: there is no such entry.
            reserved_hours: age at which segments may go; None: as when the store was made.
        """
        config = self._config
        if reserved_hours is not None:
            config = replace(config, reserved_hours=reserved_hours)
        needed_position = None
        if needed_index is not None and needed_index <= self._store.last_index:
            first_index = self._store.first_index
            needed_position = self._store.position_at(max(needed_index, first_index))
        decision = decide(
            self._ages.oldest_first(state_index),
            now_ms=now_ms,
            local_hour=local_hour,
            disk_percent=disk_percent,
            was_disk_full=self.is_disk_full,
            config=config,
            is_asked=is_asked,
            needed_position=needed_position,
        )
        self.is_disk_full = decision.is_disk_full
        return decision

    def begin_drop(self, position: int) -> DiskJob | None:
        """Begin to forget segments of the log below a position, then what points into them.

        None when there are none. A run that raises DiskFullError has changed nothing.
        """
        job = self._store.begin_drop(position)
        if job is None:
            return None

        def end() -> DiskJob | None:
            following = job.end()
            drop_before(self._queues, self._key_index, self._store.first_position)
            return following

        return DiskJob(job.run, end)

    def adopt_queue_ends(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Let queues without any message go on where they ended elsewhere."""
        adopt_queue_ends(self._queues, ends)

    def _take_queue_ends(self, body: bytes, index: int) -> None:
        adopt_queue_ends(self._queues, decode_queue_ends(body))
        self._ages.told_ends.note(body, index)
