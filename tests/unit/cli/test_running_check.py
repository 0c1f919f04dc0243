"""What is wrong with the brokers of a running cluster."""

from __future__ import annotations

import pytest

from ledgermq.cli.running_check import check_group_of_brokers
from ledgermq.client.admin import BrokerState
from tests.unit.cli.brokers import member


def findings(*members: BrokerState) -> set[tuple[str, str]]:
    return {(one.check, one.verdict) for one in check_group_of_brokers(list(members))}


GOOD = {("leader", "good"), ("broker", "good")}


def test_a_group_that_is_well() -> None:
    assert findings(member(0), member(1), member(2)) == GOOD
    (leader, first, _, _) = check_group_of_brokers([member(0), member(1), member(2)])
    assert leader.text == "g: 10.0.0.0:10911"
    assert first.text == "g n0 (10.0.0.0:10911): leader, term 4"


@pytest.mark.parametrize(
    ("sick", "found"),
    [
        (member(1, failure="no answer"), ("broker", "failed")),
        (member(1, ledgerAlarm="member n1 contradicts"), ("broker", "failed")),
        (member(1, ledgerBootstrap="waits for n2"), ("broker", "failed")),
        (member(1, ledgerRejectedPeers="n3 at 10.0.0.3: no member"), ("broker", "failed")),
        (member(1, ledgerMembers="n1"), ("membership", "failed")),
        (member(1, ledgerClusterId="77aa"), ("membership", "failed")),
        (member(1, commitLogDiskRatio="0.81"), ("disk space", "warning")),
        (member(1, commitLogDiskRatio="0.97"), ("disk space", "failed")),
        (member(1, ledgerTerm="3"), ("term", "warning")),
        (member(1, commitLogMaxOffset="1000"), ("broker", "warning")),
        (member(1, ledgerTimeAheadMs="60000"), ("clock", "warning")),
        (member(1, ledgerSyncMs="300"), ("disk", "warning")),
        (member(1, ledgerClock="the clock of this machine is 9 s"), ("broker", "failed")),
        (member(1, ledgerSettings="flushDiskType differs: n0 A"), ("settings", "warning")),
    ],
)
def test_what_is_wrong_is_found(sick: BrokerState, found: tuple[str, str]) -> None:
    assert findings(member(0), sick, member(2)) == GOOD | {found}


def test_finding_names_both_member_lists_and_their_members() -> None:
    found = check_group_of_brokers([member(0, ledgerMembers="n0"), member(1), member(2)])
    (text,) = [one.text for one in found if one.check == "membership"]
    assert "n0: n0; n1, n2: n0,n1,n2" in text and "dLegerPeers" in text


def test_members_that_report_no_list_are_not_compared() -> None:
    """Apache's brokers, and members that have not bootstrapped yet."""
    silent = member(1, ledgerMembers="", ledgerClusterId="")
    assert findings(member(0), silent, member(2)) == GOOD


def test_a_group_without_a_leader_or_with_a_wrong_one() -> None:
    assert ("leader", "failed") in findings(member(1), member(2))
    assert ("leader", "warning") in findings(member(0, ledgerRole="FOLLOWER"), member(1))


@pytest.mark.parametrize(("silent_ms", "is_lost"), [(400, False), (9_000, False), (61_000, True)])
def test_member_that_name_servers_have_forgotten_is_told_of(silent_ms: int, is_lost: bool) -> None:
    """A group of three that has two is one loss away from standing still."""
    followers = (
        "n1 0 entries and 0 bytes behind, heard 23 ms ago;"
        f" n2 49 entries and 32155 bytes behind, heard {silent_ms} ms ago, not counted"
    )
    found = check_group_of_brokers([member(0, ledgerFollowers=followers), member(1)])
    lost = [one.text for one in found if one.verdict == "failed"]
    text = "g n0 (10.0.0.0:10911): member n2 is not there: silent for 61 s"
    assert lost == ([text] if is_lost else [])
