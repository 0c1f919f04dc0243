"""Timers: what the parts of a broker are called for from time to time, in whatever role.

The times stand in one place, `start`; each call is small and bounded.
"""

from collections.abc import Callable
from typing import Final, Protocol

from ledgermq.broker.counts.statistics import SAMPLE_MS
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.broker.service.ground import Ground
from ledgermq.broker.service.member import followers_text
from ledgermq.broker.service.processor_table import Processors
from ledgermq.broker.storage.sweeps import Sweeps
from ledgermq.dledger.member_view import MemberView
from ledgermq.dledger.replica.flush_modes import FlushModes
from ledgermq.dledger.replica.membership_report import MembershipReport
from ledgermq.protocol.transport.refusals import Refusals

_ANSWER_DUE_MS: Final = 100
# A delayed message is delivered this late at most, when there is nothing else to do.
_DELIVERY_DUE_MS: Final = 50
_SCAN_MS: Final = 5000
_HOUSEKEEPING_MS: Final = 10_000
_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60_000
_SWEEP_MS: Final = 600_000
# Between two steps of a sweep: a large state takes its time.
_SWEEP_STEP_MS: Final = 25
# Upstream looks as often whether plain_acl.yml was changed.
_RULES_MS: Final = 5000


class LedgerMember(Protocol):
    """What is needed of the ledger's member."""

    @property
    def membership(self) -> MembershipReport:
        """The group's membership, for operators."""

    def view(self) -> MemberView | None:
        """What it knows of its group."""

    @property
    def flush_modes(self) -> FlushModes:
        """The flush modes of its group."""

    @property
    def refusals(self) -> Refusals:
        """Who is not let in to the group, or does not let this member in."""


class Timers:
    """The periodic calls of one broker; those that look after its files are DiskCare's."""

    def __init__(
        self,
        ground: Ground,
        proposals: Proposals,
        processors: Processors,
        member: LedgerMember,
        flush_failed: Callable[[BaseException], None],
    ) -> None:
        """Binds the parts.

        Args:
            flush_failed: told when the disk refuses a flush, which is final.
        """
        self._ground = ground
        self._proposals = proposals
        self._processors = processors
        self._member = member
        self._flush_failed = flush_failed
        self._sweeps = Sweeps(
            ground.state, ground.leadership, ground.messages, ground.config.segment_bytes
        )

    def start(self) -> None:
        """Begins; the schedule ends it."""
        ground, config, schedule = self._ground, self._ground.config, self._ground.schedule
        pulls, statistics = self._processors.pulls, self._processors.statistics
        schedule.every(_ANSWER_DUE_MS, self._proposals.expire)
        schedule.every(_ANSWER_DUE_MS, pulls.answer_due)
        schedule.every(_DELIVERY_DUE_MS, self._deliver)
        schedule.every(_DELIVERY_DUE_MS, self._processors.transactions.run)
        schedule.every(_SCAN_MS if config.is_long_polling_on else _SECOND_MS, pulls.scan)
        schedule.every(config.offsets_replication_ms, ground.state.write_offsets)
        schedule.every(_SECOND_MS, self._each_second)
        schedule.every(config.offsets_flush_ms, ground.storage.save_offsets)
        schedule.every(_HOUSEKEEPING_MS, self._processors.clients.close_silent)
        schedule.every(SAMPLE_MS, lambda: statistics.sample(int(ground.clock_ms())))
        schedule.every(config.register_period_ms, ground.registration.register)
        schedule.every(_MINUTE_MS, self._proposals.times.minute_over)
        schedule.every(_SWEEP_MS, self._sweeps.begin)
        schedule.every(_SWEEP_STEP_MS, ground.state.sweep)
        if config.is_acl_on:
            schedule.every(_RULES_MS, ground.state.access_changes.reload)

    def _deliver(self) -> None:
        """Delivers what is due, unless this machine's clock is a wrong one."""
        guard = self._ground.clock_guard
        if guard is None or not guard.is_outlier:
            self._processors.delays.run()

    def _each_second(self) -> None:
        ground, leadership, storage = self._ground, self._ground.leadership, self._ground.storage
        leadership.repair = storage.repair_reason()
        membership = self._member.membership
        leadership.cluster_id, leadership.bootstrap = membership.cluster_id, membership.bootstrap
        leadership.membership_alarm = membership.alarm
        leadership.followers = followers_text(self._member.view())
        leadership.rejected_peers = "; ".join(self._member.refusals.texts())
        leadership.settings_difference = self._member.flush_modes.difference
        if ground.clock_guard is not None:
            ground.clock_guard.look()
        leadership.log_ahead_ms = ground.log_times.look()
        proposals, pulls = self._proposals, self._processors.pulls
        ground.rates.sample(
            ground.clock_ms(),
            {
                "put": proposals.committed_count,
                "found": pulls.found_count,
                "missed": pulls.missed_count,
                "total": pulls.found_count + pulls.missed_count,
                "transferred": pulls.message_count,
            },
        )
        self._sweeps.look()
        leadership.alarm = ground.state.alarm or storage.alarm
        storage.save_topics_and_groups()
        storage.flush_if_due(self._flush_failed)
