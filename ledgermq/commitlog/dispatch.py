"""Dispatcher: committed entries become consume queue units and key index entries.

Nothing else writes those files, and nothing that is not committed gets into them. Entries are taken
in index order, each once, a whole range by one call. On the leader the rows come from what was
known when the records were encoded (`appended`); elsewhere, and whenever those do not fit the log
any more, they are decoded from it.

Commit point: `dispatched_index` is advanced when units and entries are in memory; before that no
reader sees a unit's effect but through the queue's own end. A flush (`flush.py`) brings them into
their files and makes them durable.
A failure is final: the files may hold half of a range, which the next start makes again. A disk
without room is no failure: the range is dispatched again from where it stopped, and what was put is
found to be there.
"""

from collections import deque
from collections.abc import Callable, Sequence

from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.dledger_commit_log import AppendedRun
from ledgermq.commitlog.errors import CommitLogError, DispatchError, UnreadRecordError
from ledgermq.commitlog.key_index import KeyIndex
from ledgermq.commitlog.row import Arrival, Row
from ledgermq.commitlog.row_loops import put_rows
from ledgermq.commitlog.rows import RowMaker
from ledgermq.commitlog.store_times import latest_of
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.protocol.errors import RemoteProtocolError

# Rows that are applied together, and bytes that are read together, when there is much to do.
ROWS_MAX = 4096
READ_BYTES = 4 << 20

# Body and ledger index of a record of a watched topic.
Watcher = Callable[[bytes, int], None]


class Dispatcher:
    """Advances the derived files along the log."""

    def __init__(
        self,
        store: LedgerStore,
        row_maker: RowMaker,
        key_index: KeyIndex,
        files: DerivedFiles,
        clock_ms: Callable[[], int],
        *,
        pending_records_max: int,
    ) -> None:
        self._store = store
        self._row_maker = row_maker
        self._key_index = key_index
        self._files = files
        self._clock_ms = clock_ms
        self._pending_records_max = pending_records_max
        # What this leader appended, oldest first; a shortcut that may be dropped at any time.
        self._runs: deque[AppendedRun] = deque()
        self._pending_records = 0
        # Last entry that is dispatched; first_index - 1 of the log for none.
        self.dispatched_index = -1
        # Its term, and the position behind it.
        self.dispatched_term = -1
        self.dispatched_position = 0
        # Latest store time of all records up to there, 0 for none: that of the last one, but where
        # a Java leader's clock was set back.
        self.dispatched_timestamp = 0
        # Entries before this one were on the disk at the start, and may have rotted there; those
        # behind it were checked when they came.
        self._unverified_end = 0
        # Records dispatched since this was last set to 0.
        self.unflushed_records = 0
        # What ended dispatch for good.
        self.failure: Exception | None = None
        self.watchers: dict[str, Watcher] = {}
        # Told which entry is next, after each part, while files are opened; None: nobody waits.
        self._reached: Callable[[int], object] | None = None
        self.on_dispatched: Callable[[list[Arrival]], None] | None = None

    def watch(self, topic: str, watcher: Watcher) -> None:
        """Hand the bodies of a topic's records to `watcher`, each when its entry is dispatched."""
        self.watchers[topic] = watcher
        self._row_maker.watch(topic)

    def tell_reached(self, reached: Callable[[int], object] | None) -> None:
        """Have `reached` told how far dispatch is; what it raises ends that."""
        self._reached = reached

    def appended(self, run: AppendedRun) -> None:
        """Keep the rows of entries that this leader just appended."""
        if self._pending_records + len(run.rows) <= self._pending_records_max:
            self._runs.append(run)
            self._pending_records += len(run.rows)

    def forget_appended(self) -> None:
        """Drop what this member appended as a leader; the log itself is read instead."""
        self._runs.clear()
        self._pending_records = 0

    def committed(self, start_index: int, end_index: int) -> None:
        """Dispatch the entries [start_index, end_index) that are committed now.

        Entries that were dispatched before are skipped.

        Raises:
            DispatchError: entries between were never seen, or one does not continue its queue.
            RemoteProtocolError: an entry is no record, and was written so.
            UnreadRecordError: a watcher does not read a record: dispatch ends before it.
            LedgerError, OSError: the log is damaged, cannot be read, or a file not be written.
            After any of them dispatch has ended: `failure` says why, and every call raises it.
            DiskFullError: a file could not be made; the same range may be told again.
        """
        if self.failure is not None:
            raise self.failure
        first = self.dispatched_index + 1
        if start_index > first:
            raise DispatchError(
                "entries are missing", index=start_index, expected=first, found=start_index
            )
        arrivals: list[Arrival] | None = None if self.on_dispatched is None else []
        try:
            while first < end_index:
                rows = self._rows_from(first, end_index)
                self._apply_parts(rows, first, arrivals)
                first = self.dispatched_index + 1
                if self._reached is not None:
                    self._reached(first)
        except DiskFullError:
            if arrivals and self.on_dispatched is not None:
                self.on_dispatched(arrivals)
            raise
        except (LedgerError, OSError) as error:
            self.failure = error
            raise
        except (CommitLogError, RemoteProtocolError) as error:
            damage = self._find_damage(first)
            self.failure = damage or error
            if damage is not None:
                raise damage from error
            raise
        if arrivals and self.on_dispatched is not None:
            self.on_dispatched(arrivals)

    def start_at(self, index: int) -> None:
        """Take entries up to `index` as dispatched; -1 or below the log's first for none."""
        store = self._store
        self.dispatched_index = index
        self._unverified_end = store.last_index + 1
        if store.first_index <= index <= store.last_index:
            head = store.head_at(index)
            self.dispatched_term = head.term
            self.dispatched_position = head.position + head.size
        else:
            self.dispatched_term = -1
            self.dispatched_position = store.first_position

    def restart(self) -> None:
        """Begin again with the log's first entry: queues and key index are empty."""
        self.start_at(self._store.first_index - 1)
        self.dispatched_timestamp = 0

    def rebuild(self, queues: set[ConsumeQueue], *, with_keys: bool, end_index: int) -> None:
        """Make some queues, and perhaps the key index, again from the log's start to `end_index`.

        They must be empty. The dispatched index does not change, nobody is told.
        """
        first = self._store.first_index
        row_maker = self._row_maker if with_keys else self._row_maker.without_keys()
        while first < end_index:
            entries = self._store.read_verified(first, READ_BYTES)
            stop = min(end_index, entries.last_index + 1)
            rows = row_maker.rows_of(entries, first, stop)
            if with_keys:
                self._key_index.add([key for row in rows for key in row[4]], self._clock_ms())
            self._apply(rows_for(rows, queues), first, None, with_keys=False)
            first = stop
            if self._reached is not None:
                self._reached(first)

    def replay(self, topic: str, watcher: Watcher, first: int, end_index: int) -> None:
        """Hand the records of a topic among the entries [first, end_index) to `watcher` once more.

        Nothing is dispatched: queues, key index and dispatched index stay as they are, so that the
        watcher must not touch queues: what it reads was dispatched long ago.

        Raises:
            UnreadRecordError: the watcher does not read a record.
            LedgerError, OSError: the log is damaged, or cannot be read.
        """
        row_maker = self._row_maker.only_watching(topic)
        while first < end_index:
            rows, indexes, first = self._read_rows(row_maker, first, end_index)
            for row, index in zip(rows, indexes, strict=True):
                if row.watched is not None:
                    watcher(row.watched[1], index)
            if self._reached is not None:
                self._reached(first)

    def _read_rows(
        self, row_maker: RowMaker, first: int, end_index: int
    ) -> tuple[Sequence[Row], Sequence[int], int]:
        """Return the rows of the next entries, their indexes, and the index behind them."""
        entries = self._store.read_verified(first, READ_BYTES)
        stop = min(end_index, entries.last_index + 1)
        return row_maker.rows_of(entries, first, stop), range(first, stop), stop

    def _rows_from(self, first: int, end_index: int) -> Sequence[Row]:
        """Return rows from entry `first` on, at least one, at most up to `end_index`."""
        rows: list[Row] = []
        runs = self._runs
        while runs and first + len(rows) < end_index and len(rows) < ROWS_MAX:
            run = runs[0]
            index = first + len(rows)
            behind = run.first_index + len(run.rows)
            if run.first_index > index:
                break
            if behind <= index or not self._is_in_log(run, behind - 1):
                self._drop_run()
                continue
            rows += run.rows[index - run.first_index : end_index - run.first_index]
            if behind <= end_index:
                self._drop_run()
        if rows:
            return rows
        # No more bytes than these entries have: the log may hold much that is not committed.
        store = self._store
        last = store.head_at(end_index - 1)
        span = last.position + last.size - store.position_at(first)
        read = store.read_verified if first < self._unverified_end else store.read
        entries = read(first, min(span, READ_BYTES))
        stop = min(end_index, entries.last_index + 1)
        if runs and first < runs[0].first_index < stop:
            stop = runs[0].first_index
        return self._row_maker.rows_of(entries, first, stop)

    def _find_damage(self, first: int) -> LedgerError | None:
        """Tell what is wrong with the log where it could not be made sense of; None if nothing."""
        try:
            self._store.read_verified(first, READ_BYTES)
        except LedgerError as damage:
            return damage
        return None

    def _drop_run(self) -> None:
        self._pending_records -= len(self._runs.popleft().rows)

    def _is_in_log(self, run: AppendedRun, last_index: int) -> bool:
        """Tell whether the log still holds the entries of a run: a later leader may have cut it."""
        store = self._store
        return (
            last_index <= store.last_index
            and store.term_at(last_index) == run.term
            and store.position_at(run.first_index) == run.position
        )

    def _apply_parts(self, rows: Sequence[Row], first: int, arrivals: list[Arrival] | None) -> None:
        """Apply rows; each watched body is handed over before later entries are touched."""
        start = 0
        if self.watchers:
            for at, row in enumerate(rows):
                if row[5] is not None:
                    self._apply(rows[start : at + 1], first + start, arrivals)
                    self._advance(first + at, at + 1 - start)
                    start = at + 1
                    topic, body = row[5]
                    self._hand_over(topic, body, first + at)
        if start < len(rows):
            self._apply(rows[start:] if start else rows, first + start, arrivals)
            self._advance(first + len(rows) - 1, len(rows) - start)

    def _hand_over(self, topic: str, body: bytes, index: int) -> None:
        try:
            self.watchers[topic](body, index)
        except UnreadRecordError:
            # Nobody has it: no mark may say so, and the next program begins with it.
            self._go_back_before(index)
            raise

    def _go_back_before(self, index: int) -> None:
        self.start_at(index - 1)

    def _advance(self, index: int, count: int) -> None:
        head = self._store.head_at(index)
        self.dispatched_index = index
        self.dispatched_term = head.term
        self.dispatched_position = head.position + head.size
        self.unflushed_records += count

    def _apply(
        self,
        rows: Sequence[Row],
        first: int,
        arrivals: list[Arrival] | None,
        *,
        with_keys: bool = True,
    ) -> None:
        key_rows, latest = put_rows(rows, first, arrivals, _put_light)
        self.dispatched_timestamp = latest_of(self.dispatched_timestamp, latest)
        if key_rows and with_keys:
            self._key_index.add(key_rows, self._clock_ms())
        self._files.made(len(rows))


def rows_for(rows: Sequence[Row], queues: set[ConsumeQueue]) -> list[Row]:
    """Return what of some rows goes into some of the queues, and nothing else of them."""
    wanted = []
    for row in rows:
        light = tuple(place for place in row.light if place[0] in queues)
        if row.queue in queues:
            wanted.append(row._replace(light=light))
        elif light:
            wanted.append(row._replace(queue=None, keys=(), watched=None, light=light))
    return wanted


def _put_light(row: Row, index: int) -> None:
    """Put a row's unit into its light queues, each where it goes on; elsewhere leave it out.

    Records of ours always go on. A Java broker of 4.9.3 begins to count at 0 again after its
    restart, and leaves out the same ones.
    """
    for queue, offset in row.light:
        if offset > queue.max_offset and not queue.has_files:
            # Its former units went with the log's head.
            queue.restore(offset, offset)
        if offset == queue.max_offset:
            queue.put(offset, row.unit, index)
