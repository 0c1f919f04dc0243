"""Offsets that go piece by piece: what is on its way counts, and nothing older comes behind it."""

from __future__ import annotations

import pytest

from ledgermq.state.consumer_offsets import NO_ROOM, Room
from ledgermq.state.errors import BrokerError, SystemBusyError
from ledgermq.state.offset_commits import PIECE_MAX
from ledgermq.state.offset_notes import OffsetNotes
from tests.unit.broker.parts import Parts


class Scene:
    """A leader that was told more than a piece; the first one told goes with the last piece."""

    def __init__(self) -> None:
        self.parts = Parts().lead(is_prompt=False)
        self.state = self.parts.state
        self.commits = self.state.commits
        self.told: list[BrokerError | None] = []

    def tell_pieces(self, count: int, offset: int = 5) -> None:
        for number in range(count * PIECE_MAX):
            self.commits.tell(f"g{number % 7}", "A", number // 7, offset)

    def refuse_first(self) -> None:
        """The log refuses the first command that is on its way, and no other."""
        _, done = self.parts.written.pop(0)
        done(SystemBusyError("refused"))

    def commit_all(self) -> None:
        """Has all committed that there is, what waits for the log to be asked again included."""
        self.parts.now_ms += 120_000
        for _ in range(5):
            self.state.write_offsets()
            self.parts.commit_all()
            self.parts.turn.end()


def test_one_piece_is_on_its_way_whatever_is_told_and_waited_for_meanwhile() -> None:
    scene = Scene()
    scene.tell_pieces(4)
    scene.state.write_offsets()
    for number in range(3):
        scene.commits.commit("g", "A", number, 1, scene.told.append)
        scene.parts.turn.end()
        scene.state.write_offsets()
        scene.commits.wait(scene.told.append)
        scene.parts.turn.end()
        assert len(scene.parts.written) == 1
    # Who waits would not hear of a piece that was refused while another one was on its way.
    scene.refuse_first()
    for _ in range(9):
        scene.parts.turn.end()
        scene.parts.commit_state()
    assert len(scene.told) == 6


def test_what_waits_for_its_piece_is_on_its_way_and_takes_room_once() -> None:
    scene = Scene()
    scene.tell_pieces(2)
    scene.state.write_offsets()
    assert scene.state.offsets.find("g0", "A", 0) is None
    assert scene.commits.is_on_its_way("g0", "A", 0)
    assert not scene.commits.is_on_its_way("g0", "A", 9999)
    # Told again, it takes nothing more.
    scene.commits.tell("g0", "A", 0, 6)
    assert scene.commits._gathered.room == NO_ROOM
    scene.commit_all()
    assert scene.state.offsets.find("g0", "A", 0) == 6
    assert not scene.commits.is_on_its_way("g0", "A", 0)


def test_what_waits_for_its_piece_counts_against_the_limit_of_pairs() -> None:
    scene = Scene()
    for number in range(1000):
        scene.commits.tell(f"g{number}", "A", 0, 1)
    scene.state.write_offsets()
    with pytest.raises(SystemBusyError, match="there are 1000 pairs of topic and group"):
        scene.commits.tell("late", "A", 0, 1)
    scene.commit_all()
    assert len(scene.state.offsets) == 1000


def test_an_offset_that_the_log_refused_does_not_come_behind_a_newer_one() -> None:
    scene = Scene()
    scene.commits.tell("g0", "A", 0, 5)
    scene.state.write_offsets()
    scene.commits.tell("g0", "A", 0, 9)
    scene.state.write_offsets()
    assert len(scene.parts.written) == 2
    scene.refuse_first()
    scene.commit_all()
    assert scene.state.offsets.find("g0", "A", 0) == 9


def test_an_offset_that_the_log_refused_does_not_come_behind_one_that_waits_for_its_piece() -> None:
    scene = Scene()
    scene.commits.tell("g0", "A", 0, 5)
    scene.state.write_offsets()
    scene.tell_pieces(2, offset=9)
    scene.state.write_offsets()
    assert len(scene.parts.written) == 2
    scene.refuse_first()
    scene.commit_all()
    assert scene.state.offsets.find("g0", "A", 0) == 9


def test_what_a_pair_takes_counts_until_the_last_of_it_is_taken_out() -> None:
    notes, needed = OffsetNotes(), Room(1, 100)
    for queue_id in range(10):
        notes.put("A@old", queue_id, 1, Room(0, 10))
    for queue_id in range(10):
        notes.put("A@new", queue_id, 1, needed if not queue_id else NO_ROOM)
    first = notes.take(4)
    assert (first.room, notes.room) == (NO_ROOM, Room(1, 200))
    assert [len(queues) for queues in first.told.values()] == [4]
    second = notes.take(9)
    assert (second.room, notes.room) == (needed, Room(0, 100))
    third = notes.take(100)
    assert (third.room, notes.room) == (Room(0, 100), NO_ROOM)
    assert not notes.told
    taken = [len(part.told[key]) for part in (first, second, third) for key in part.told]
    assert sum(taken) == 20
