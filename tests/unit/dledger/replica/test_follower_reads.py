"""Who asks a follower is told when it has applied what its leader had committed, or why not."""

from __future__ import annotations

import pytest

from ledgermq.dledger.errors import (
    LedgerError,
    NotLeaderError,
    ReadUncertainError,
    UncertainReason,
)
from ledgermq.dledger.messages import (
    PeerDialect,
    ReadIndexRequest,
    ReadIndexResponse,
    ReadMessage,
)
from ledgermq.dledger.replica import follower_reads
from ledgermq.dledger.replica.follower_reads import (
    ASK_AGAIN_MS,
    READ_WAIT_MS,
    FollowerReads,
    OnRead,
)


class Member:
    """A member whose numbers a test sets; it follows n1."""

    def __init__(self) -> None:
        self.self_id, self.term = "n0", 3
        self.leader_id: str | None = "n1"
        self.now_ms = 1_000.0
        self.commit_index = self.applied_index = 10
        self.dialect = PeerDialect.LEDGERMQ
        self.sent: list[ReadMessage] = []
        self.told: list[LedgerError | None] = []
        # Who waits to know whether this member leads.
        self.confirming: list[OnRead] = []
        self.turns = 0
        self.reads = FollowerReads(self, self.confirming.append, self._schedule_turn)
        self.reads.begin(self.sent.append)

    def _schedule_turn(self) -> None:
        self.turns += 1

    def dialect_of(self, peer_id: str) -> PeerDialect:
        return self.dialect

    def ask(self) -> None:
        self.reads.ask(self.told.append)

    def turn(self, pass_ms: float = 0) -> None:
        self.now_ms += pass_ms
        self.reads.look()

    def answer(self, number: int, commit_index: int | None, sender: str = "n1") -> None:
        self.reads.receive(
            ReadIndexResponse(
                term=3, sender=sender, target="n0", number=number, commit_index=commit_index
            )
        )
        self.turn()

    @property
    def asked(self) -> list[tuple[str, int]]:
        return [(one.target, one.number) for one in self.sent if isinstance(one, ReadIndexRequest)]

    def reasons(self) -> list[UncertainReason]:
        return [error.reason for error in self.told if isinstance(error, ReadUncertainError)]


def test_who_asks_is_told_when_as_much_is_applied_as_the_leader_had_committed() -> None:
    member = Member()
    member.ask()
    assert member.turns == 1
    member.turn()
    assert member.asked == [("n1", 1)] and member.told == []
    member.answer(1, 12)
    assert member.told == [] and len(member.sent) == 1
    member.applied_index = 11
    member.turn()
    assert member.told == []
    member.applied_index = 12
    member.turn()
    assert member.told == [None]
    assert member.reads.deadline_ms() == float("inf")
    assert (member.reads.certain_count, member.reads.uncertain_count) == (1, 0)


def test_questions_of_a_turn_share_one_and_later_ones_wait_for_the_next() -> None:
    """What is on its way may have been confirmed before the later ones came."""
    member = Member()
    member.ask()
    member.ask()
    member.turn()
    member.ask()
    member.turn(5)
    assert member.asked == [("n1", 1)]
    member.answer(1, 10)
    # It was put for the two; the third has its own, which tells of more.
    assert member.told == [None, None] and member.asked == [("n1", 1), ("n1", 2)]
    member.answer(2, 11)
    assert len(member.told) == 2
    member.applied_index = 11
    member.turn()
    assert member.told == [None, None, None]


def test_a_question_that_nobody_answers_is_put_again() -> None:
    member = Member()
    member.ask()
    member.turn()
    assert member.reads.deadline_ms() == member.now_ms + ASK_AGAIN_MS
    member.turn(ASK_AGAIN_MS - 1)
    assert len(member.sent) == 1
    member.turn(1)
    assert member.asked == [("n1", 1), ("n1", 2)]
    # An answer to the first one is late, and as true.
    member.answer(1, 10)
    assert member.told == [None]


def test_the_next_leader_is_asked_at_once() -> None:
    member = Member()
    member.ask()
    member.turn()
    member.leader_id = None
    member.turn(5)
    member.leader_id = "n2"
    member.turn(5)
    assert member.asked == [("n1", 1), ("n2", 2)]
    # Who was asked first does not lead any more.
    member.answer(1, None)
    assert member.told == []
    member.answer(2, 10, "n2")
    assert member.told == [None]


def test_nothing_is_due_while_nobody_can_be_asked() -> None:
    """A time that has passed would have the member take one turn after the other."""
    member = Member()
    member.ask()
    end_ms = member.now_ms + READ_WAIT_MS
    member.turn()
    member.leader_id = None
    member.turn(2 * ASK_AGAIN_MS)
    assert member.reads.deadline_ms() == end_ms
    member.leader_id = "n1"
    member.turn()
    assert member.asked == [("n1", 1), ("n1", 2)]
    assert member.reads.deadline_ms() == member.now_ms + ASK_AGAIN_MS


def test_answers_to_what_was_not_asked_change_nothing() -> None:
    member = Member()
    member.answer(1, 0)
    member.ask()
    member.turn()
    member.answer(2, 0)
    assert member.told == []


def test_who_waits_for_too_long_is_told_why() -> None:
    member = Member()
    member.ask()
    member.turn()
    member.answer(1, 11)
    member.ask()
    member.turn(READ_WAIT_MS - 1)
    assert member.told == []
    member.turn(1)
    assert member.reasons() == [UncertainReason.TOO_LATE] * 2
    assert str(member.told[0]) == (
        "this member may be behind its leader: no leader has answered in time, or what it told is"
        " not applied yet, in ms (1000, limit 1000)"
    )
    assert member.reads.deadline_ms() == float("inf")


def test_who_asks_while_nobody_leads_waits_for_the_next_leader() -> None:
    member = Member()
    member.leader_id = None
    member.ask()
    member.turn()
    assert member.sent == [] and member.told == []
    member.leader_id = "n2"
    member.turn(200)
    member.answer(1, 10, "n2")
    assert member.told == [None]


def test_a_member_that_becomes_the_leader_answers_by_itself() -> None:
    member = Member()
    member.ask()
    member.turn()
    member.leader_id = "n0"
    member.turn()
    member.ask()
    assert member.reasons() == [UncertainReason.NO_WAY]
    assert isinstance(member.told[1], NotLeaderError)


def test_a_java_leader_is_not_asked() -> None:
    member = Member()
    member.ask()
    member.dialect = PeerDialect.JAVA
    member.turn()
    member.ask()
    assert member.sent == [] and member.reasons() == [UncertainReason.NO_WAY] * 2


def test_no_more_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_reads, "READS_MAX", 2)
    member = Member()
    for _ in range(3):
        member.ask()
    assert member.reasons() == [UncertainReason.TOO_MANY]


def test_all_are_told_when_the_member_ends() -> None:
    member = Member()
    member.ask()
    member.turn()
    member.answer(1, 11)
    member.ask()
    member.reads.end()
    member.ask()
    assert [type(error) for error in member.told] == [NotLeaderError] * 3
    assert len(member.sent) == 1


def test_a_leader_tells_what_was_committed_when_it_was_asked_once_that_is_confirmed() -> None:
    member = Member()
    member.leader_id = "n0"
    asked = ReadIndexRequest(term=3, sender="n2", target="n0", number=7, asked_on=4)
    member.reads.receive(asked)
    member.reads.receive(asked)
    assert member.sent == []
    member.commit_index = 20
    first, second = member.confirming
    first(None)
    second(NotLeaderError("n1", 4))
    told = [one for one in member.sent if isinstance(one, ReadIndexResponse)]
    assert [(one.number, one.commit_index, one.asked_on) for one in told] == [
        (7, 10, 4),
        (7, None, 4),
    ]
    assert {one.target for one in told} == {"n2"}
    member.reads.receive(asked)
    member.reads.end()
    member.confirming[2](None)
    assert len(member.sent) == 2
