"""What a broker does from time to time, when its disk fills up and when clocks are set."""

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.task import Clock

from ledgermq.broker.clocks.expiry_clock import ExpiryClock
from ledgermq.broker.clocks.log_times import LogTimes
from ledgermq.broker.service.timers import Timers
from ledgermq.broker.storage.disk_care import DiskCare
from ledgermq.commitlog import StoreLostError
from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.retention import is_full
from ledgermq.dledger.replica.config import FlushDiskType
from ledgermq.dledger.replica.flush_modes import FlushModes
from ledgermq.dledger.replica.membership_report import MembershipReport
from ledgermq.protocol.transport.refusals import Refusals
from ledgermq.protocol.transport.schedule import Schedule
from tests.unit.broker.parts import Parts

HOUR_MS = 3_600_000


class Idle:
    """A part of the broker that is asked for things, and does nothing."""

    found_count = missed_count = message_count = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


class Storage(Idle):
    """Notes by which time ages were judged."""

    def __init__(self) -> None:
        self.used_percent = 50
        self.scrub = Idle()
        self.messages = SimpleNamespace(
            is_disk_full=False, dispatched_timestamp=0, is_full_at=self._is_full_at
        )
        self.state_repair = SimpleNamespace(doubt="")
        self.looks_ms: list[int] = []
        self.loss: StoreLostError | None = None

    def _is_full_at(self, percent: int) -> bool:
        return is_full(percent, StoreConfig(root=""), was_full=self.messages.is_disk_full)

    def check_held(self) -> None:
        if self.loss is not None:
            raise self.loss

    def clean(self, now_ms: int, local_hour: int, needed_index: int) -> None:
        self.looks_ms.append(now_ms)
        self.messages.is_disk_full = self._is_full_at(self.used_percent)

    def disk_used_percent(self) -> int:
        return self.used_percent


class Bench:
    """The upkeep of a broker, on a clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.parts = Parts(cleanResourceInterval="10000")
        self.storage = Storage()
        self.member = SimpleNamespace(
            needed_index=0,
            membership=MembershipReport(),
            view=lambda: None,
            refusals=Refusals("n0", float),
            flush_modes=FlushModes("n0", ("n1",), FlushDiskType.SYNC_FLUSH),
            declines=[],
        )
        self.member.decline_leadership = self.member.declines.append
        self.failures: list[BaseException] = []
        self.wall_ms = 1_700_000_000_000
        self.schedule = Schedule(self.clock)
        processors = SimpleNamespace(
            pulls=Idle(),
            statistics=Idle(),
            delays=Idle(),
            transactions=Idle(),
            clients=Idle(),
        )
        log_times = LogTimes(self.storage.messages, lambda: self.wall_ms, self.clock_ms)
        ground = SimpleNamespace(
            config=self.parts.config,
            leadership=self.parts.leadership,
            state=self.parts.state,
            storage=self.storage,
            messages=self.storage.messages,
            registration=Idle(),
            rates=Idle(),
            log_times=log_times,
            clock_guard=None,
            schedule=self.schedule,
            clock_ms=self.clock_ms,
        )
        Timers(
            cast(Any, ground),
            self.parts.proposals,
            cast(Any, processors),
            self.member,
            self.failures.append,
        ).start()
        DiskCare(
            self.parts.config,
            self.parts.leadership,
            cast(Any, self.storage),
            self.member,
            expiry_ms=ExpiryClock(lambda: self.wall_ms, self.clock_ms, log_times).now_ms,
            flush_failed=self.failures.append,
            damage_found=lambda error: None,
        ).start(self.schedule)

    def clock_ms(self) -> float:
        return self.clock.seconds() * 1000.0

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds * 20):
            self.clock.advance(0.05)
            self.wall_ms += 50


def test_ages_are_judged_without_the_jumps_of_the_wall_clock() -> None:
    bench = Bench()
    begun_ms = bench.wall_ms
    bench.wall_ms += 103 * HOUR_MS
    bench.pass_s(31)
    assert len(bench.storage.looks_ms) == 3
    assert (
        begun_ms <= min(bench.storage.looks_ms) <= max(bench.storage.looks_ms) < begun_ms + 40_000
    )


def test_ages_are_judged_by_what_the_log_holds() -> None:
    """A broker that is started with a clock far ahead sees by its log what time it is."""
    bench = Bench()
    stored_ms = bench.wall_ms - 103 * HOUR_MS
    bench.storage.messages.dispatched_timestamp = stored_ms
    bench.pass_s(31)
    assert stored_ms <= min(bench.storage.looks_ms) <= max(bench.storage.looks_ms)
    assert max(bench.storage.looks_ms) < stored_ms + 40_000


def test_log_that_is_ahead_is_noticed_and_forgotten() -> None:
    bench = Bench()
    bench.pass_s(2)
    assert bench.parts.leadership.log_ahead_ms == 0
    bench.storage.messages.dispatched_timestamp = bench.wall_ms + HOUR_MS
    bench.pass_s(2)
    assert HOUR_MS - 2000 <= bench.parts.leadership.log_ahead_ms < HOUR_MS
    bench.wall_ms += HOUR_MS
    bench.pass_s(2)
    assert bench.parts.leadership.log_ahead_ms == 0


def test_store_directory_that_is_gone_ends_the_member_within_a_second() -> None:
    bench = Bench()
    bench.pass_s(5)
    assert bench.failures == []
    loss = bench.storage.loss = StoreLostError("/store/lock")
    bench.pass_s(1)
    assert bench.failures == [loss]
    bench.pass_s(5)
    assert bench.failures == [loss]


def test_disk_that_fills_up_closes_the_broker_and_ends_its_leadership_within_a_second() -> None:
    bench = Bench()
    leadership = bench.parts.leadership
    bench.pass_s(11)
    assert (bench.member.declines, leadership.closed_because) == ([], None)
    bench.storage.used_percent = 91
    bench.pass_s(1)
    assert bench.member.declines == [True]
    assert "91 % are used" in str(leadership.closed_because)
    bench.storage.used_percent = 86
    bench.pass_s(5)
    assert bench.member.declines == [True]
    bench.storage.used_percent = 85
    bench.pass_s(1)
    assert bench.member.declines == [True, False]
    assert leadership.closed_because is None


def test_member_whose_state_is_in_doubt_declines_until_it_is_whole() -> None:
    bench = Bench()
    bench.storage.state_repair.doubt = "topics.json: it is missing"
    bench.pass_s(2)
    assert bench.member.declines == [True]
    bench.storage.state_repair.doubt = ""
    bench.pass_s(2)
    assert bench.member.declines == [True, False]
