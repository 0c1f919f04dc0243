"""Who waits until it is certain that a member leads: told once, in time, whatever happens."""

from __future__ import annotations

from typing import Any

import pytest

from ledgermq.dledger.errors import LeadUnconfirmedError, LedgerError, NotLeaderError
from ledgermq.dledger.messages import HeartBeatRequest
from ledgermq.dledger.replica import confirming
from ledgermq.dledger.replica.confirming import WAIT_MS, Confirming
from tests.unit.dledger.lab import Lab, beat
from tests.unit.dledger.replica.test_driver import Rig
from tests.unit.dledger.test_confirmations import beats_of, echo, settled


class Member:
    """A member on a lab's core."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.turns = 0
        self.confirming = Confirming(self, self._schedule_turn)
        self.confirming.begin(lab.raft, lambda message: None)
        self.told: list[LedgerError | None] = []

    def _schedule_turn(self) -> None:
        self.turns += 1

    @property
    def is_ready_leader(self) -> bool:
        return self.lab.raft.is_ready_leader

    @property
    def term(self) -> int:
        return self.lab.raft.term

    @property
    def leader_id(self) -> str | None:
        return self.lab.raft.leader_id

    @property
    def now_ms(self) -> float:
        return self.lab.now_ms

    def ask(self) -> None:
        self.confirming.ask(self.told.append)

    def round(self) -> list[HeartBeatRequest]:
        return beats_of(self.lab.pass_time(5))


def test_who_asks_is_told_when_a_majority_has_answered() -> None:
    member = Member(settled())
    member.ask()
    member.ask()
    assert member.turns == 2
    request = member.round()[0]
    member.confirming.look()
    assert member.told == [] and member.confirming.deadline_ms() == WAIT_MS + member.now_ms - 5
    member.lab.take(echo(request))
    member.confirming.look()
    assert member.told == [None, None]
    assert member.confirming.deadline_ms() == float("inf")


def test_all_are_told_when_the_leadership_ends() -> None:
    member = Member(settled())
    member.ask()
    member.lab.take(beat(member.term + 1))
    member.confirming.look()
    [error] = member.told
    assert isinstance(error, NotLeaderError) and error.leader_id == "n1"
    member.ask()
    assert isinstance(member.told[1], NotLeaderError) and member.turns == 1


def test_who_waits_for_too_long_is_told_why() -> None:
    member = Member(settled())
    member.ask()
    member.lab.now_ms += WAIT_MS - 1
    member.confirming.look()
    assert member.told == []
    member.lab.now_ms += 1
    member.confirming.look()
    [error] = member.told
    assert isinstance(error, LeadUnconfirmedError)
    assert str(error) == (
        "it is not certain that this member still leads term 1:"
        " no majority has answered in time, in ms (3000, limit 3000)"
    )


def test_a_confirmation_that_comes_too_late_is_none() -> None:
    """A member that had no time finds it in its sockets; a new leader's grants count on less."""
    member = Member(settled())
    member.ask()
    request = member.round()[0]
    member.lab.now_ms += WAIT_MS
    member.lab.take(echo(request))
    member.confirming.look()
    [error] = member.told
    assert isinstance(error, LeadUnconfirmedError)


def test_no_more_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirming, "WAITING_MAX", 3)
    member = Member(settled())
    for _ in range(4):
        member.ask()
    [error] = member.told
    assert isinstance(error, LeadUnconfirmedError) and (error.value, error.limit) == (3, 3)


def test_who_asks_again_when_it_is_told_waits_anew() -> None:
    member = Member(settled())

    def ask_again(error: LedgerError | None) -> None:
        member.told.append(error)
        member.ask()

    member.confirming.ask(ask_again)
    member.lab.take(echo(member.round()[0]))
    member.confirming.look()
    assert member.told == [None]
    member.confirming.end()
    assert len(member.told) == 2 and isinstance(member.told[1], NotLeaderError)
    member.ask()
    assert isinstance(member.told[2], NotLeaderError)


def test_a_replica_that_is_its_whole_group_tells_at_once() -> None:
    rig = Rig()
    told: list[Any] = []
    rig.replica.confirming.ask(told.append)
    assert isinstance(told.pop(), NotLeaderError)
    rig.start()
    rig.replica.confirming.ask(told.append)
    assert told == [None]
    rig.stop()
    rig.replica.confirming.ask(told.append)
    assert isinstance(told[1], NotLeaderError)
