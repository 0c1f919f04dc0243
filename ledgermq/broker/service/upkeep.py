"""Upkeep: what a broker does from time to time, in whatever role.

Each function is small and bounded; the times stand in one place, `start`.
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

from twisted.logger import Logger

from ledgermq.broker.clocks.expiry_clock import ExpiryClock
from ledgermq.broker.clocks.log_times import LogTimes
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.counts.rates import Rates
from ledgermq.broker.counts.statistics import SAMPLE_MS
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.registration.registration import Registration
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.broker.service.processor_table import Processors
from ledgermq.broker.service.schedule import Schedule
from ledgermq.broker.service.sweeps import Sweeps
from ledgermq.broker.storage.storage import Storage
from ledgermq.commitlog import DamagedFileError, StoreLostError
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.state.broker_state import BrokerState

_ANSWER_DUE_MS: Final = 100
# A delayed message is delivered this late at most, when there is nothing else to do.
_DELIVERY_DUE_MS: Final = 50
_SCAN_MS: Final = 5000
_HOUSEKEEPING_MS: Final = 10_000
_SECOND_MS: Final = 1000
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
_SWEEP_MS: Final = 600_000
# Between two steps of a sweep: a large state takes its time.
_SWEEP_STEP_MS: Final = 50
# Upstream looks as often whether plain_acl.yml was changed.
_RULES_MS: Final = 5000

_log = Logger()


class LedgerMember(Protocol):
    """What is needed of the ledger's member."""

    @property
    def needed_index(self) -> int:
        """First entry that a follower may still ask for."""

    @property
    def birth_text(self) -> str:
        """Whether its group is born, and for whom it waits if not."""

    def decline_leadership(self, declines: bool) -> None:
        """Takes whether this member cannot do a leader's work, so that another one should."""


class Upkeep:
    """The periodic work of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        state: BrokerState,
        storage: Storage,
        proposals: Proposals,
        processors: Processors,
        registration: Registration,
        rates: Rates,
        member: LedgerMember,
        expiry: ExpiryClock,
        log_times: LogTimes,
        *,
        clock_ms: Callable[[], float],
        flush_failed: Callable[[BaseException], None],
        damage_found: Callable[[Exception], None],
    ) -> None:
        """Binds the parts.

        Args:
            clock_ms: monotonic time.
            flush_failed: told when the disk refuses a flush, or the store directory is another
                one, which is final.
            damage_found: told of bytes on disk that are not what was written.
        """
        self._config = config
        self._leadership = leadership
        self._state = state
        self._storage = storage
        self._proposals = proposals
        self._processors = processors
        self._registration = registration
        self._rates = rates
        self._member = member
        self._expiry = expiry
        self._log_times = log_times
        self._clock_ms = clock_ms
        self._flush_failed = flush_failed
        self._damage_found = damage_found
        self._is_store_lost = False
        self._sweeps = Sweeps(state, leadership, storage.messages, config.segment_bytes)

    def start(self, schedule: Schedule) -> None:
        """Begins; `schedule` ends it."""
        config, pulls = self._config, self._processors.pulls
        statistics = self._processors.statistics
        schedule.every(_ANSWER_DUE_MS, self._proposals.expire)
        schedule.every(_ANSWER_DUE_MS, pulls.answer_due)
        schedule.every(_DELIVERY_DUE_MS, self._processors.delays.run)
        schedule.every(_DELIVERY_DUE_MS, self._processors.transactions.run)
        schedule.every(_SCAN_MS if config.is_long_polling_on else _SECOND_MS, pulls.scan)
        schedule.every(config.offsets_replication_ms, self._state.write_offsets)
        schedule.every(_SECOND_MS, self._each_second)
        schedule.every(config.offsets_flush_ms, self._storage.save_offsets)
        schedule.every(_HOUSEKEEPING_MS, self._processors.clients.close_silent)
        schedule.every(config.clean_interval_ms, self._clean)
        schedule.every(max(config.clean_interval_ms // _DISK_LOOKS, 1), self._look_at_disk)
        schedule.every(SAMPLE_MS, lambda: statistics.sample(int(self._clock_ms())))
        schedule.every(config.register_period_ms, self._registration.register)
        schedule.every(_SWEEP_MS, self._sweeps.begin)
        schedule.every(_SWEEP_STEP_MS, self._state.sweep)
        if config.is_acl_on:
            schedule.every(_RULES_MS, self._state.reload_access)
        if config.scrub_bytes_s:
            schedule.every(self._scrub_ms(), self._scrub)

    def _each_second(self) -> None:
        self._leadership.repair = self._storage.repair_reason()
        self._leadership.birth = self._member.birth_text
        self._leadership.log_ahead_ms = self._log_times.look()
        proposals, pulls = self._proposals, self._processors.pulls
        self._rates.sample(
            self._clock_ms(),
            {
                "put": proposals.committed_count,
                "found": pulls.found_count,
                "missed": pulls.missed_count,
                "total": pulls.found_count + pulls.missed_count,
                "transferred": pulls.message_count,
            },
        )
        self._sweeps.look()
        self._leadership.alarm = self._state.alarm or self._storage.alarm
        self._storage.save_topics_and_groups()
        self._storage.flush_if_due(self._flush_failed)

    def _scrub_ms(self) -> int:
        """Returns the time between two looks at the log."""
        interval_ms = _SCRUB_STEP_BYTES * 1000 // self._config.scrub_bytes_s
        return max(_SCRUB_MS_MIN, min(interval_ms, _SCRUB_MS_MAX))

    def _scrub(self) -> None:
        """Looks at a little of the log."""
        end_s = time.monotonic() + _SCRUB_STEP_MS / 1000
        bytes_max = max(self._config.scrub_bytes_s * self._scrub_ms() // 1000, 1)
        try:
            self._storage.scrub.step(bytes_max, lambda: time.monotonic() < end_s)
        except (CorruptStoreError, DamagedFileError) as error:
            self._damage_found(error)

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
        self._storage.clean(self._expiry.now_ms(), hour, self._member.needed_index)
        self._member.decline_leadership(self._storage.messages.is_disk_full)
        leadership = self._leadership
        if self._storage.messages.is_disk_full:
            used = self._storage.disk_used_percent()
            leadership.closed_because = (
                f"the disk of {self._config.store_root} is full, {used} % are used"
                " (key diskMaxUsedSpaceRatio)"
            )
        elif leadership.closed_because is not None:
            _log.info("the disk has room again, messages are taken")
            leadership.closed_because = None
