"""What a broker does when its clock, or another of its group, is wrong."""

from ledgermq.broker.clocks.clock_guard import ClockGuard
from ledgermq.broker.leadership import Leadership
from ledgermq.dledger.replica.clock_exchange import ClockExchange
from ledgermq.dledger.replica.config import ReplicaConfig
from tests.unit.broker.clocks.clocks import DAY_MS, START_MS

YEAR_MS = 365 * DAY_MS
CONFIG = ReplicaConfig(group="g", self_id="n0", peers="n0-h:1;n1-h:2;n2-h:3")


class Member:
    """A member, and how far the clocks of its peers are ahead of the right time."""

    def __init__(self, *peers_ms: int) -> None:
        self.wall_ms = START_MS
        self.clocks = ClockExchange(CONFIG, lambda: self.wall_ms, lambda: 0.0)
        for number, ahead_ms in enumerate(peers_ms, 1):
            self.clocks.group.measured(f"n{number}", START_MS + ahead_ms, 0, 0)
        self.leadership = Leadership("n0", 1)
        self.leadership.changed("LEADER", 1, "n0")
        self.leadership.serve()
        self.guard = ClockGuard(self.clocks, self.leadership)


def test_wrong_clock_closes_its_broker_until_it_is_right(log_lines: list[str]) -> None:
    member = Member(0, 0)
    member.wall_ms += YEAR_MS
    for _ in range(3):
        member.guard.look()
    leadership = member.leadership
    assert not leadership.takes_messages
    reason = (
        "the clock of this machine is 31536000 s ahead of a majority of the group's"
        " (limit 60 s, key ledgerClockSkewMax)"
    )
    assert leadership.clock_alarm == reason and reason in str(leadership.refusal())
    assert leadership.clock_difference_ms == YEAR_MS
    member.wall_ms -= YEAR_MS
    member.guard.look()
    assert leadership.takes_messages and leadership.clock_alarm == ""
    assert len(log_lines) == 2


def test_jump_of_all_clocks_at_once_closes_nothing() -> None:
    """The peers' clocks are measured after this member has looked at its own."""
    member = Member(0, 0)
    member.wall_ms += YEAR_MS
    member.guard.look()
    for peer_id in ("n1", "n2"):
        member.clocks.group.measured(peer_id, START_MS + YEAR_MS, 0, 0)
    member.guard.look()
    assert member.leadership.takes_messages and member.leadership.clock_alarm == ""


def test_disk_that_is_full_keeps_a_broker_closed_whose_clock_is_right_again() -> None:
    member = Member(0, 0)
    member.leadership.close_for("disk", "the disk is full")
    member.wall_ms += YEAR_MS
    member.guard.look()
    member.guard.look()
    assert "; the clock" in str(member.leadership.closed_because)
    member.wall_ms -= YEAR_MS
    member.guard.look()
    assert member.leadership.closed_because == "the disk is full"


def test_wrong_clock_of_a_peer_is_reported() -> None:
    member = Member(-YEAR_MS, 1_000)
    member.guard.look()
    assert member.leadership.takes_messages
    assert member.leadership.clock_alarm == (
        "a majority of clocks agrees: that of n1 is 31536000 s behind this one"
        " (limit 60 s, key ledgerClockSkewMax)"
    )


def test_store_time_is_that_of_the_majority() -> None:
    member = Member(YEAR_MS, YEAR_MS)
    last_ms = START_MS + YEAR_MS - 5
    assert member.guard.store_time(START_MS, last_ms) == START_MS + YEAR_MS
    assert member.guard.store_time(START_MS, last_ms + 50_000) == last_ms + 50_000


def test_store_times_go_back_to_what_a_majority_says(log_lines: list[str]) -> None:
    member = Member(0, 0)
    assert member.guard.store_time(START_MS, START_MS + YEAR_MS) == START_MS
    assert len(log_lines) == 1
    assert member.guard.store_time(START_MS, START_MS + 60_000) == START_MS + 60_000


def test_store_times_stay_where_no_majority_agrees() -> None:
    for member in (Member(), Member(YEAR_MS), Member(YEAR_MS, -YEAR_MS)):
        assert member.guard.store_time(START_MS, START_MS + YEAR_MS) == START_MS + YEAR_MS
        assert member.guard.store_time(START_MS, START_MS - YEAR_MS) == START_MS
        member.guard.look()
        assert member.leadership.takes_messages


def test_clock_that_is_trusted_needs_no_majority_but_none_against_it() -> None:
    for member, expected_ms in ((Member(), START_MS), (Member(YEAR_MS, YEAR_MS), None)):
        guard = ClockGuard(member.clocks, member.leadership, trusts_clock=True)
        last_ms = START_MS + YEAR_MS
        assert guard.store_time(START_MS, last_ms) == (expected_ms or last_ms)
