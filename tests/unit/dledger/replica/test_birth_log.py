"""What a person is told while a group waits for its birth, and when there are two."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import LogLevel, formatEvent, globalLogPublisher

from ledgermq.dledger.birth import Birth, Standing
from ledgermq.dledger.membership import members_digest
from ledgermq.dledger.messages import BirthReport, PeerDialect
from ledgermq.dledger.replica.birth_log import BirthLog, birth_text
from tests.unit.dledger.lab import Lab

BIRTH = Birth("0f" * 16, ("n0", "n1", "n2"), is_agreed=True)
OTHER = Birth("0e" * 16, ("n0", "n1", "n2"), is_agreed=True)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    found: list[Any] = []
    globalLogPublisher.addObserver(found.append)
    yield found
    globalLogPublisher.removeObserver(found.append)


def lines(events: list[Any]) -> list[str]:
    found = [formatEvent(event) for event in events if event["log_level"] >= LogLevel.info]
    events.clear()
    return found


def hear(lab: Lab, sender: str, standing: Standing, birth: Birth | None = None) -> None:
    """A peer says what it is, in the way that makes it count."""
    asked = next(m for m in lab.reports if isinstance(m, BirthReport) and m.target == sender)
    lab.take(
        BirthReport(
            term=0,
            sender=sender,
            target="n0",
            life=5,
            number=7,
            answers=asked.number,
            wants_answer=False,
            standing=standing,
            birth=birth,
            members_digest=members_digest(("n0", "n1", "n2")),
        )
    )


def test_a_group_that_waits_says_for_whom_after_a_while_and_each_minute(events: list[Any]) -> None:
    lab = Lab(is_new=True)
    log = BirthLog(lab.raft, 0)
    log.look(2_900)
    assert lines(events) == []
    log.look(3_000)
    waits = "n0: the group is not born yet and has no leader, it waits for"
    assert lines(events) == [f"{waits} n1 (not reached), n2 (not reached)"]
    log.look(3_500)
    log.look(62_900)
    assert lines(events) == []
    log.look(63_000)
    assert len(lines(events)) == 1
    # News come sooner.
    hear(lab, "n1", Standing.NEW)
    log.look(67_900)
    assert lines(events) == []
    log.look(68_000)
    assert lines(events) == [f"{waits} n2 (not reached)"]


def test_the_birth_is_told_once(events: list[Any]) -> None:
    lab = Lab(is_new=True)
    log = BirthLog(lab.raft, 0)
    hear(lab, "n1", Standing.NEW)
    hear(lab, "n2", Standing.NEW)
    held = lab.raft.birth
    assert held is not None and not held.is_agreed
    assert birth_text(lab.raft) == "the group is being born"
    hear(lab, "n1", Standing.NEW, held)
    hear(lab, "n2", Standing.NEW, held)
    log.look(500)
    log.look(1_000)
    assert lines(events) == [f"n0: the group is born: {held.group_id}, by n0, n1, n2"]


def test_an_older_group_has_a_leader_and_waits_all_the_same() -> None:
    lab = Lab([1], term=1)
    hear(lab, "n1", Standing.OLDER)
    hear(lab, "n2", Standing.LOST)
    assert birth_text(lab.raft) == "no birth yet, it waits for n2 (recovers what it lost)"


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (Standing.OLDER, "has an older store"),
        (Standing.LOST, "recovers what it lost"),
    ],
)
def test_a_new_member_says_what_is_in_its_way(standing: Standing, reason: str) -> None:
    lab = Lab(is_new=True)
    hear(lab, "n1", Standing.NEW)
    hear(lab, "n2", standing)
    assert birth_text(lab.raft).endswith(f"it waits for n2 ({reason})")


def test_a_new_disk_in_a_group_that_is_born_waits_for_its_leader() -> None:
    lab = Lab(is_new=True)
    hear(lab, "n1", Standing.NEW)
    hear(lab, "n2", Standing.OLDER, BIRTH)
    reason = f"n2 (holds birth {BIRTH.group_id}, which its leader must bring here)"
    assert birth_text(lab.raft).endswith(f"it waits for {reason}")


def test_a_member_that_lost_its_state_waits_for_its_leader() -> None:
    lab = Lab([1], recovering=True)
    assert birth_text(lab.raft) == "no birth yet: this member recovers, and its leader brings it"


def test_a_group_with_a_java_member_has_none() -> None:
    lab = Lab(is_new=True, dialect=PeerDialect.JAVA)
    assert birth_text(lab.raft) == "the group has no birth, for a Java member is in it"


def test_two_births_are_an_error_told_once_with_both_ids(events: list[Any]) -> None:
    lab = Lab(birth=BIRTH)
    log = BirthLog(lab.raft, 0)
    lab.raft.census.note_birth("n2", OTHER)
    log.look(500)
    log.look(1_000)
    (event,) = [e for e in events if e["log_level"] is LogLevel.error]
    text = formatEvent(event)
    assert BIRTH.group_id in text and OTHER.group_id in text and "n2" in text
    assert OTHER.group_id in birth_text(lab.raft)
