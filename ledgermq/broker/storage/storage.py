"""What a broker has on disk, opened in order: lock, ledger, vote, state files, derived files.

The lock comes first, because opening the ledger may cut a torn tail. `broker_store.py` has the
order of what derives from the log.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.config.memory import machine_memory_bytes
from ledgermq.broker.storage.acceptance import Acceptance
from ledgermq.broker.storage.broker_store import BrokerStore
from ledgermq.broker.storage.state_files import StateFile
from ledgermq.broker.storage.state_repair import StateRepair
from ledgermq.commitlog import (
    CleanReason,
    DamagedFileError,
    MessageStore,
    PlainLogThereError,
    StoreConfig,
    StoreLock,
    StoreLostError,
    find_open_to_others,
)
from ledgermq.commitlog import used_percent as used_percent_of
from ledgermq.dledger.store import (
    FileSystem,
    RealFileSystem,
    Segments,
)
from ledgermq.dledger.store.cold_reader import ColdReader
from ledgermq.dledger.store.disk_thread import WorkerThread
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.dledger.store.keeper import Keeper
from ledgermq.dledger.store.opening_progress import OpeningProgress
from ledgermq.state.broker_state import BrokerState

_FORCE_PERCENT: Final = 85
_FULL_PERCENT: Final = 90
_DROP_REASONS: Final[tuple[CleanReason, ...]] = tuple(
    reason for reason in CleanReason if reason is not CleanReason.NONE
)

_log = Logger()


class Storage:
    """The open files of one broker, whatever its log is; a subclass knows the log.

    Attributes:
        opening: how far `open` is, for other threads, too.
        is_open: between `open` and the end.
    """

    def __init__(
        self,
        config: BrokerConfig,
        reactor: Any,
        state: BrokerState,
        now_ms: Callable[[], int],
        disk_thread: WorkerThread | None = None,
    ) -> None:
        """Binds the parts; nothing is read or written before `open`.

        Args:
            config: paths and sizes.
            reactor: that of the broker.
            state: loaded from its files, and saved to them.
            now_ms: wall clock.
            disk_thread: waits for the disk; None: one of its own.
        """
        self._config = config
        self._state = state
        self._now_ms = now_ms
        file_system = RealFileSystem()
        self._lock = StoreLock(str(config.store_root))
        self.messages = self._new_messages(file_system)
        folder = config.store_root / "config"
        # Does what waits for the disk, of the log too.
        self.keeper = Keeper(reactor, disk_thread)
        # Read old messages for consumers, and for followers and the scrub.
        self.pull_reader = ColdReader(reactor, "pull reader")
        self.log_reader = ColdReader(reactor, "log reader")
        self._store = BrokerStore(
            self.keeper,
            self.messages,
            state,
            lambda name: StateFile(folder / name),
            name=self._store_name,
            root=str(config.store_root),
            acceptance=Acceptance(folder),
            now_ms=now_ms,
            clock_ms=lambda: reactor.seconds() * 1000.0,
            call_later=reactor.callLater,
        )
        self.opening = OpeningProgress()
        self.is_open = False
        self._is_clean_wanted = False
        # The keeper has a job that drops files, and has not ended it.
        self._is_dropping = False
        # Queues and key index are to be made again at the next start.
        self._rebuilds = False
        # Since the start: damage that was found, and files of the log that went, by reason.
        self.damage_count = 0
        self.dropped_files: dict[CleanReason, int] = dict.fromkeys(_DROP_REASONS, 0)
        self.scrub = self.messages.make_scrub()

    def open(self) -> None:
        """Opens everything.

        Raises:
            StoreInUseError: another broker runs on this directory.
            StoreUnsafeError: somebody else has put a link into it.
            OpeningStoppedError: another thread gave it up.
            StateFileError, LedgerError, CommitLogError, OSError: the files cannot be used; the
            text says which.
        """
        exposed = find_open_to_others(str(self._config.store_root))
        if exposed is not None:
            _log.warn("{exposed}", exposed=exposed)
        was_clean = self._lock.take()
        try:
            found = self._open_log()
            self.opening.begin("reads the state's files")
            self._store.load_state()
            report = self._store.open(self.opening)
        except BaseException as error:
            if isinstance(error, CorruptStoreError):
                # Below what the ledger verified when it opened: the next start looks at all.
                self.distrust(error)
            is_untouched = isinstance(error, PlainLogThereError)
            self._lock.release(is_clean=was_clean and is_untouched)
            raise
        self.is_open = True
        _log.info(
            "store opened: {found}, dispatched {dispatched}, replayed {replayed},"
            " clean {clean}, queues rebuilt {rebuilt}",
            found=found,
            dispatched=report.dispatched_index,
            replayed=report.dispatched_count,
            clean=report.was_clean,
            rebuilt=len(report.rebuilt_queues),
        )

    # The log: what a subclass must do.

    @property
    def _store_name(self) -> str:
        """Names this store in the seals of its files."""
        raise NotImplementedError

    def _new_messages(self, file_system: FileSystem) -> MessageStore:
        """Makes the log and the message store on it; opens nothing."""
        raise NotImplementedError

    def _open_log(self) -> str:
        """Opens the log, and names it to the broker's state; returns what it holds, for people."""
        raise NotImplementedError

    def _close_log(self) -> None:
        """Closes the log."""
        raise NotImplementedError

    def _abandon_log(self) -> None:
        """Gives the log's files back as they are."""
        raise NotImplementedError

    def distrust(self, error: Exception) -> bool:
        """Has the next start look at what gave bad bytes, and make it good.

        Returns:
            Whether a start can do so; else what is not damaged is served on.
        """
        self.damage_count += 1
        is_derived = isinstance(error, DamagedFileError) and error.is_derived
        self._rebuilds = self._rebuilds or is_derived
        return is_derived

    @property
    def log_files(self) -> Segments:
        """The files of the log that are written now."""
        raise NotImplementedError

    def repair_reason(self) -> str | None:
        """Returns what is damaged or was lost, None while all is whole."""
        raise NotImplementedError

    @property
    def alarm(self) -> str | None:
        """What cannot be written, for operators; None while all can."""
        return self._store.alarm

    @property
    def state_repair(self) -> StateRepair:
        """What is wrong with the broker's state."""
        return self._store.repair

    # State files between two flushes: replaced, not yet durable.

    def save_topics_and_groups(self) -> None:
        """Writes the two files if their tables changed; a flush under way writes them itself."""
        self._store.save(("topics", "groups"))

    def save_offsets(self) -> None:
        """Writes the offsets if they changed."""
        self._store.save(("offsets",))

    def flush_if_due(self, failed: Callable[[BaseException], None]) -> None:
        """Begins a flush when the message store wants one; it runs beside the keeper's jobs.

        Args:
            failed: told when the disk refuses, which is final for this replica.
        """
        self._store.flush_if_due(failed)

    # Retention and the end.

    def clean_soon(self) -> None:
        """Has the next `clean` take any hour for the right one."""
        self._is_clean_wanted = True

    def clean(self, now_ms: int, local_hour: int, needed_index: int) -> None:
        """Forgets what retention gives up, and notes whether the disk is full.

        Args:
            now_ms: the time by which ages are judged.
            local_hour: hour of the day.
            needed_index: first entry that a follower may still ask for.
        """
        if self._is_clean_wanted:
            self._is_clean_wanted = False
            local_hour = self._config.delete_hours[0]
        decision = self.messages.decide_clean(
            now_ms,
            local_hour,
            self.disk_used_percent(),
            needed_index=needed_index,
            state_index=self._state.sweep_index,
            # An operator may change it while the broker runs.
            reserved_hours=self._config.retention_hours,
        )
        # A disk that hangs gets no second job for the same files.
        if decision.drop_before and not self._is_dropping:
            self._is_dropping = True
            _log.info(
                "retention: drops the log before position {position}: {reason}",
                position=decision.drop_before,
                reason=decision.reason,
            )
            begin = self.messages.min_physical_offset
            dropped = self.keeper.run(partial(self.messages.begin_drop, decision.drop_before))
            dropped.addCallback(self._dropped, begin, decision.reason)
            dropped.addErrback(self._not_dropped)

    def _dropped(self, _: object, begin: int, reason: CleanReason) -> None:
        """Counts whole files: the log may begin in the midst of its first one."""
        self._is_dropping = False
        size = self._config.segment_bytes
        count = self.messages.min_physical_offset // size - begin // size
        self.dropped_files[reason] += max(count, 0)

    def _not_dropped(self, failure: Failure) -> None:
        """Without room for the mark, and after any error, the log begins where it did."""
        self._is_dropping = False
        _log.error("retention: nothing dropped: {reason}", reason=failure.getErrorMessage())

    def disk_used_percent(self) -> int:
        """Returns the used part of the partition, as upstream rounds it."""
        disk = os.statvfs(self._config.store_root)
        return used_percent_of(
            disk.f_blocks * disk.f_frsize,
            disk.f_bfree * disk.f_frsize,
            disk.f_bavail * disk.f_frsize,
        )

    def check_held(self) -> None:
        """Looks whether the directory is still the one that was opened.

        Raises:
            StoreLostError: it is another one, or gone.
            OSError: nobody knows.
        """
        self._lock.check()

    def stop_keeper(self) -> Deferred[None]:
        """Lets what is under way end; nothing more waits for the disk but `close`."""
        self.pull_reader.stop()
        self.log_reader.stop()
        return self._store.stop_keeper()

    def close(self) -> None:
        """Saves the state durably, closes all files and gives the directory free."""
        if not self.is_open:
            return
        try:
            self._lock.check()
        except StoreLostError:
            # What is there now is not ours to write to.
            self.abandon()
            return
        self.is_open = False
        is_clean = False
        try:
            is_closed_clean = self._store.close()
            if self._rebuilds:
                self.messages.checkpoints.discard()
            self._close_log()
            is_clean = is_closed_clean
        finally:
            self._lock.release(is_clean=is_clean)

    def abandon(self) -> None:
        """Gives all files back as they are; the next start recovers, as after a kill."""
        if not self.is_open:
            return
        self.is_open = False
        self.messages.abandon()
        self._abandon_log()
        self._lock.release(is_clean=False)


def store_config(config: BrokerConfig) -> StoreConfig:
    """Returns the settings of the message store."""
    clean_percent = config.disk_used_percent_max
    return StoreConfig(
        root=str(config.store_root),
        queue_segment_bytes=config.queue_segment_bytes,
        index_slot_count=config.index_slots,
        index_entry_count=config.index_units,
        index_enabled=config.has_key_index,
        body_bytes_max=config.message_bytes_max,
        memory_bytes_max=config.pull_bytes_max,
        memory_count_max=config.pull_count_max,
        machine_memory_bytes=machine_memory_bytes(),
        query_count_max=config.query_hits_max,
        has_light_queues=config.knows_light_queues and config.dispatches_to_light_queues,
        delays_ms=config.delay_levels.delays_ms,
        delete_hours=config.delete_hours,
        reserved_hours=config.retention_hours,
        force_clean=config.cleans_forcibly,
        disk_clean_percent=clean_percent,
        disk_force_percent=max(clean_percent, _FORCE_PERCENT),
        disk_full_percent=max(clean_percent, _FULL_PERCENT),
    )
