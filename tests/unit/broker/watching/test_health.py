"""What the four questions about health make of facts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ledgermq.broker.watching import health
from ledgermq.broker.watching.health import Facts, Member
from ledgermq.broker.watching.health_views import add_health
from ledgermq.broker.watching.progress import HealthWatch
from ledgermq.http.application import Application
from ledgermq.http.replies import Reply
from ledgermq.http.requests import Request
from ledgermq.http.routes import Routes

PEERS = (Member("n1", True, True, 0), Member("n2", True, True, 0))
LEADER = Facts(
    self_id="n0",
    step="started",
    is_started=True,
    role="LEADER",
    leader_id="n0",
    is_serving=True,
    members=PEERS,
    quorum_count=2,
)
FOLLOWER = replace(LEADER, role="FOLLOWER", leader_id="n1", is_serving=False)
MINORITY = replace(LEADER, role="CANDIDATE", leader_id=None, is_serving=False)


def reasons(question: str, facts: Facts) -> str:
    asked = {
        "live": health.live,
        "ready": health.ready,
        "started": health.started,
        "safe": health.quorum_safe,
    }[question]
    return "; ".join(check.reason for check in asked(facts) if check.reason)


@pytest.mark.parametrize("question", ["live", "ready", "started", "safe"])
@pytest.mark.parametrize("facts", [LEADER, FOLLOWER])
def test_member_that_is_well_is_well_in_every_respect(question: str, facts: Facts) -> None:
    assert reasons(question, facts) == ""


def test_minority_that_waits_lives_and_is_not_restarted() -> None:
    assert reasons("live", MINORITY) == ""
    assert reasons("started", MINORITY) == ""
    assert "knows no leader" in reasons("ready", MINORITY)
    assert "no leader is known" in reasons("safe", MINORITY)


def test_disk_that_hangs_is_not_live() -> None:
    assert reasons("live", replace(FOLLOWER, disk_seconds=29.0)) == ""
    assert "31 s" in reasons("live", replace(FOLLOWER, disk_seconds=31.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"is_stopping": True}, "is stopping"),
        ({"failure": "DiskError"}, "DiskError"),
        ({"repair": "a bad crc"}, "a bad crc"),
        ({"is_recovering": True}, "catches up"),
        ({"leader_silent_s": 11.0}, "has not heard"),
        ({"behind_entries": 10_001, "behind_seconds": 11.0}, "10001 entries behind"),
        ({"behind_entries": 10_001, "behind_seconds": None}, "10001 entries behind"),
    ],
)
def test_follower_that_cannot_take_over_is_not_ready(change: dict[str, object], words: str) -> None:
    assert words in reasons("ready", replace(FOLLOWER, **change))  # type: ignore[arg-type]


def test_follower_is_ready_by_entries_or_by_time() -> None:
    assert reasons("ready", replace(FOLLOWER, behind_entries=10_000, behind_seconds=None)) == ""
    assert reasons("ready", replace(FOLLOWER, behind_entries=10**6, behind_seconds=9.0)) == ""


def test_leader_is_ready_when_it_serves() -> None:
    assert "first entry" in reasons("ready", replace(LEADER, is_serving=False))
    assert reasons("ready", replace(LEADER, behind_entries=10**6, behind_seconds=None)) == ""


def test_start_says_how_far_it_is() -> None:
    opening = replace(LEADER, is_started=False, step="opens its files", done=3, total=9)
    assert reasons("started", opening) == "opens its files, 3 of 9"
    assert "opens its files" in reasons("ready", opening)
    assert reasons("live", opening) == ""


@pytest.mark.parametrize(
    "last",
    [
        Member("n2", False, True, 0),
        Member("n2", True, False, 0),
        Member("n2", True, True, 10_001),
    ],
)
def test_member_that_is_needed_must_not_stop(last: Member) -> None:
    reason = reasons("safe", replace(LEADER, members=(PEERS[0], last)))
    assert reason == ("without n0 1 of 2 needed members are there; missing: n2")


def test_single_member_has_no_majority_to_lose() -> None:
    assert reasons("safe", replace(LEADER, members=(), quorum_count=1)) == ""
    assert reasons("safe", replace(LEADER, is_group=False, members=())) == ""


class Disk:
    begun_count = 0
    is_busy = False


def test_watch_notes_since_when_the_disk_is_at_one_job() -> None:
    disk = Disk()
    watch = HealthWatch(disk)
    disk.is_busy, disk.begun_count = True, 1
    watch.look(10.0, -1)
    watch.look(50.0, -1)
    assert watch.disk_seconds(50.0) == 40.0
    disk.begun_count = 2
    assert watch.disk_seconds(50.0) == 0.0
    watch.look(51.0, -1)
    disk.is_busy = False
    assert watch.disk_seconds(99.0) == 0.0


def test_watch_tells_how_long_ago_all_was_committed_that_is_applied() -> None:
    watch = HealthWatch(Disk())
    for second in range(20):
        watch.look(float(second), second * 100)
    assert watch.behind_seconds(19.0, 1900) == 0.0
    assert watch.behind_seconds(19.0, 1250) == 7.0
    assert watch.behind_seconds(19.0, -1) is None


def answered(facts: Facts, path: str, **query: str) -> Reply:
    routes = Routes()
    add_health(routes, lambda: facts)
    request = Request(segments=(path,), query={name: [value] for name, value in query.items()})
    reply = Application(routes).answer(request)
    assert isinstance(reply, Reply)
    return reply


def test_progress_of_the_opening_is_told_in_numbers_too() -> None:
    step = "opens its files: replays its log"
    opening = replace(LEADER, is_started=False, step=step, done=3, total=40, unit="entries")
    reply = answered(opening, "startupz")
    assert isinstance(reply.body, bytes)
    told = json.loads(reply.body)
    assert told["progress"] == {"done": 3, "total": 40, "unit": "entries"}
    assert told["reasons"] == [{"check": "start", "reason": f"{step}, 3 of 40 entries"}]
    assert "progress" not in json.loads(answered(MINORITY, "readyz").body)  # type: ignore[arg-type]


def test_views_are_short_for_probes_and_long_for_people() -> None:
    assert answered(LEADER, "readyz").body == b"ok"
    reply = answered(MINORITY, "readyz")
    assert reply.status == 503
    assert b'"check":"group","reason":"is CANDIDATE' in reply.body  # type: ignore[operator]
    reply = answered(MINORITY, "readyz", verbose="")
    assert reply.status == 503
    text = reply.body.decode()  # type: ignore[union-attr]
    assert "[+]ledger ok\n" in text
    assert "[-]group failed: is CANDIDATE" in text
    assert text.endswith("readyz check failed\n")
    assert answered(LEADER, "livez", verbose="perhaps").status == 400
