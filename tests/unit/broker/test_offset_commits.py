"""Commits of offsets, and locks, that are answered when the next leader knows of them, too."""

from __future__ import annotations

from ledgermq.broker.errors import (
    BrokerError,
    CommitTimeoutError,
    ServiceUnavailableError,
    SystemBusyError,
)
from ledgermq.broker.offset_commits import OffsetCommits
from ledgermq.broker.queue_locks import QueueKey
from ledgermq.broker.under_way import UnderWay
from tests.unit.broker.parts import Parts

LATE = CommitTimeoutError("no majority confirmed it")
LOST = ServiceUnavailableError("another member leads")
QUEUE = QueueKey("A", "b", 0)


class Scene:
    """A leader whose snapshot is committed, and what consumers were told."""

    def __init__(self) -> None:
        self.parts = Parts().lead()
        self.parts.commit_state()
        self.state = self.parts.state
        self.told: list[BrokerError | None] = []
        self.commits = OffsetCommits(
            self.state,
            call_at_end_of_turn=self.parts.turn.soon,
            refusal=self.parts.leadership.refusal,
        )

    def commit(self, offset: int) -> None:
        self.state.offsets.commit("g", "A", 0, offset)
        self.commits.wait(self.told.append)


def test_commits_of_a_turn_are_one_write_and_are_answered_when_it_is_committed() -> None:
    scene = Scene()
    for offset in range(100):
        scene.commit(offset)
    assert scene.parts.written == []
    scene.parts.turn.end()
    assert scene.told == []
    (body,) = scene.parts.commit_state()
    assert b'{"A@g":{"0":99}}' in body
    assert scene.told == [None] * 100


def test_a_commit_again_waits_for_the_first_one() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.turn.end()
    scene.commit(5)
    scene.parts.turn.end()
    assert scene.told == []
    assert len(scene.parts.commit_state()) == 1
    assert scene.told == [None, None]
    # Everybody knows of it.
    scene.commit(5)
    scene.parts.turn.end()
    assert (scene.told, scene.parts.written) == ([None] * 3, [])


def test_a_commit_waits_for_what_was_told_one_way_before() -> None:
    scene = Scene()
    scene.state.offsets.commit("g", "A", 0, 5)
    scene.state.write_offsets()
    scene.commit(5)
    scene.parts.turn.end()
    assert scene.told == []
    scene.parts.commit_state()
    assert scene.told == [None]


def test_what_took_too_long_is_written_again_for_who_asks_again() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.turn.end()
    scene.parts.commit_state(LATE)
    scene.state.write_offsets()
    assert scene.parts.written == []
    scene.commit(5)
    scene.parts.turn.end()
    assert scene.told == [LATE]
    (body,) = scene.parts.commit_state()
    assert b'{"A@g":{"0":5}}' in body
    assert scene.told == [LATE, None]


def test_what_is_committed_later_makes_an_earlier_one_certain() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.turn.end()
    scene.parts.commit_state(LATE)
    scene.state.offsets.commit("other", "A", 0, 1)
    scene.state.write_offsets()
    scene.parts.commit_state()
    scene.commit(5)
    scene.parts.turn.end()
    assert (scene.told, scene.parts.written) == ([LATE, None], [])


def test_a_refused_write_ends_before_those_that_are_under_way() -> None:
    told: list[BrokerError | None] = []
    writes = UnderWay()
    first = writes.begin(told.append, lambda: None)
    # Refused at once, as all is while the leadership is handed over.
    writes.begin(None, lambda: None)(SystemBusyError("refused"))
    writes.join(told.append)
    assert told == []
    first(None)
    assert told == [None, None]


def test_a_snapshot_that_took_too_long_is_written_again_for_who_asks() -> None:
    scene = Scene()
    scene.state.offsets.commit("g", "A", 0, 5)
    scene.state.write_snapshot()
    scene.parts.commit_state(LATE)
    scene.commit(5)
    scene.parts.turn.end()
    assert scene.told == []
    assert any(b'"snapshot"' in body for body in scene.parts.commit_state())
    assert scene.told == [None]


def test_nobody_is_answered_while_the_snapshot_of_a_new_leader_is_refused() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.turn.end()
    scene.state.follow()
    scene.parts.commit_state(LOST)
    scene.state.lead("n0/3")
    scene.parts.commit_state(SystemBusyError("refused"))
    scene.commit(5)
    scene.state.locks.lock("g", [QUEUE], "c1", 0)
    scene.state.write_locks(scene.told.append)
    scene.parts.turn.end()
    assert scene.parts.written == []
    assert scene.told[0] == LOST
    assert all(isinstance(error, SystemBusyError) for error in scene.told[1:])
    assert len(scene.told) == 3
    # The next snapshot has it.
    scene.state.write_snapshot()
    scene.commit(5)
    scene.parts.turn.end()
    scene.parts.commit_state()
    assert scene.told[3:] == [None]


def test_who_waits_when_the_leadership_is_lost_is_told_so() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.leadership.changed("FOLLOWER", 2, "n1")
    scene.state.follow()
    scene.parts.turn.end()
    assert len(scene.told) == 1 and isinstance(scene.told[0], ServiceUnavailableError)
    assert scene.parts.written == []


def test_what_was_lost_with_a_leadership_is_answered_when_the_next_one_has_it() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.turn.end()
    scene.state.follow()
    scene.parts.commit_state(LOST)
    scene.state.lead("n0/3")
    # It stands in this member's table; nobody else knows of it yet.
    scene.commit(5)
    scene.parts.turn.end()
    assert scene.told == [LOST]
    scene.parts.commit_state()
    assert scene.told == [LOST, None]


def test_a_lock_again_waits_for_the_first_one() -> None:
    scene = Scene()
    state = scene.state
    assert state.locks.lock("g", [QUEUE], "c", 1) == [QUEUE]
    state.write_locks(scene.told.append)
    assert state.locks.lock("g", [QUEUE], "c", 2) == [QUEUE]
    state.write_locks(scene.told.append)
    assert scene.told == []
    assert len(scene.parts.commit_state()) == 1
    assert scene.told == [None, None]


def test_a_lock_that_took_too_long_is_written_again_for_who_asks_again() -> None:
    scene = Scene()
    scene.state.locks.lock("g", [QUEUE], "c", 1)
    scene.state.write_locks(scene.told.append)
    scene.parts.commit_state(LATE)
    scene.state.locks.lock("g", [QUEUE], "c", 2)
    scene.state.write_locks(scene.told.append)
    assert scene.told == [LATE]
    (body,) = scene.parts.commit_state()
    assert b'["A","b",0,"c"]' in body
    assert scene.told == [LATE, None]
