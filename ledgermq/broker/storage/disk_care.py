"""DiskCare: old files go, the use of the disk is watched, and the log is looked at bit by bit."""

import time
from collections.abc import Callable
from typing import Final, Protocol

from twisted.logger import Logger

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.storage.storage import Storage
from ledgermq.commitlog import DamagedFileError, StoreLostError
from ledgermq.dledger.errors import ColdDataError, LedgerError
from ledgermq.dledger.store.cold_reader import LOADS_MAX
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.protocol.transport.schedule import Schedule

# Between two times that old files are looked for, the use of the disk is looked at so often.
_DISK_LOOKS: Final = 10
# The log is looked at a little each time: what is sent meanwhile waits for a look. So many bytes
# at once cost each of them least; where more are asked for in a second, the looks come closer.
_SCRUB_STEP_BYTES: Final = 65_536
_SCRUB_MS_MIN: Final = 20
_SCRUB_MS_MAX: Final = 1000
# Longest work of one look, whatever the records are like: nobody waits longer for the reactor than
# for a write, and a fifth of its time is the most that a broker spends on looking.
_SCRUB_STEP_MS: Final = 4
# Delay before a member that has its state again may lead.
_DECLINE_MS: Final = 1000

_log = Logger()


class LogMember(Protocol):
    """What is needed of the member that fills the log."""

    @property
    def needed_index(self) -> int:
        """First entry that a follower may still ask for."""

    def decline_leadership(self, declines: bool) -> None:
        """Takes whether this member cannot do a leader's work, so that another one should."""


class DiskCare:
    """The periodic work on one broker's files."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        storage: Storage,
        member: LogMember,
        *,
        expiry_ms: Callable[[], int],
        flush_failed: Callable[[BaseException], None],
        damage_found: Callable[[Exception], None],
    ) -> None:
        """Binds the parts.

        Args:
            expiry_ms: the time by which ages are judged.
            flush_failed: told when the store directory is another one, which is final.
            damage_found: told of bytes on disk that are not what was written.
        """
        self._config = config
        self._leadership = leadership
        self._storage = storage
        self._member = member
        self._expiry_ms = expiry_ms
        self._flush_failed = flush_failed
        self._damage_found = damage_found
        # As last logged.
        self._is_disk_full = False
        self._is_store_lost = False
        # As the member was told last.
        self._declines = False
        # Whether what the scrub reads next is being loaded into memory, and how often it was.
        self._is_loading = False
        self._load_count = 0

    def start(self, schedule: Schedule) -> None:
        """Begins; `schedule` ends it."""
        interval_ms = self._config.clean_interval_ms
        self._decline()
        schedule.every(_DECLINE_MS, self._decline)
        schedule.every(interval_ms, self._clean)
        schedule.every(max(interval_ms // _DISK_LOOKS, 1), self._look_at_disk)
        if self._config.scrub_bytes_s:
            schedule.every(self._scrub_ms(), self._scrub)

    def _scrub_ms(self) -> int:
        """Returns the time between two looks at the log."""
        interval_ms = _SCRUB_STEP_BYTES * 1000 // self._config.scrub_bytes_s
        return max(_SCRUB_MS_MIN, min(interval_ms, _SCRUB_MS_MAX))

    def _scrub(self) -> None:
        """Looks at a little of the log."""
        if self._is_loading:
            return
        may_wait = self._load_count >= LOADS_MAX
        end_s = time.monotonic() + _SCRUB_STEP_MS / 1000
        bytes_max = max(self._config.scrub_bytes_s * self._scrub_ms() // 1000, 1)
        try:
            self._storage.scrub.step(bytes_max, lambda: time.monotonic() < end_s, may_wait=may_wait)
            self._load_count = 0
        except ColdDataError as cold:
            self._is_loading = self._storage.log_reader.load(cold, self._loaded)
        except (CorruptStoreError, DamagedFileError) as error:
            self._damage_found(error)

    def _decline(self) -> None:
        """Has the member lead only where it can do a leader's work."""
        is_closed = self._leadership.closed_because is not None
        declines = is_closed or bool(self._storage.state_repair.doubt)
        if declines is not self._declines:
            self._declines = declines
            self._member.decline_leadership(declines)

    def _loaded(self, error: LedgerError | None) -> None:
        self._is_loading = False
        # What cannot be read fails again, and is reported then.
        self._load_count = self._load_count + 1 if error is None else LOADS_MAX
        self._scrub()

    def _look_at_disk(self) -> None:
        """A disk that has just filled up, or has room again, does not wait for its turn; and what
        is written to a directory that was removed is lost, so nothing more is.
        """
        if self._is_store_lost:
            return
        try:
            self._storage.check_held()
        except StoreLostError as error:
            self._is_store_lost = True
            self._flush_failed(error)
            return
        messages = self._storage.messages
        if messages.is_full_at(self._storage.disk_used_percent()) is not messages.is_disk_full:
            self._clean()

    def _clean(self) -> None:
        hour = time.localtime().tm_hour
        self._storage.clean(self._expiry_ms(), hour, self._member.needed_index)
        leadership, reason = self._leadership, None
        if self._storage.messages.is_disk_full:
            used = self._storage.disk_used_percent()
            reason = (
                f"the disk of {self._config.store_root} is full, {used} % are used"
                " (key diskMaxUsedSpaceRatio)"
            )
        elif self._is_disk_full:
            _log.info("the disk has room again")
        self._is_disk_full = reason is not None
        leadership.close_for("disk", reason)
        self._decline()
