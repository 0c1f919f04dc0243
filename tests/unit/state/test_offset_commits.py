"""Commits of offsets, and locks, that are answered when the next leader knows of them, too."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from ledgermq.state.errors import (
    BrokerError,
    CommitTimeoutError,
    ServiceUnavailableError,
    SystemBusyError,
)
from ledgermq.state.offset_commits import PIECE_MAX
from ledgermq.state.offset_notes import OffsetNotes
from ledgermq.state.queue_locks import QueueKey
from ledgermq.state.topics import TopicConfig
from ledgermq.state.under_way import OnCommitted, UnderWay
from tests.unit.broker.parts import Parts

LATE = CommitTimeoutError("no majority confirmed it")
LOST = ServiceUnavailableError("another member leads")
QUEUE = QueueKey("A", "b", 0)


class Scene:
    """A leader, and what consumers were told."""

    def __init__(self) -> None:
        self.parts = Parts().lead(is_prompt=False)
        self.state = self.parts.state
        self.commits = self.state.commits
        self.told: list[BrokerError | None] = []

    def commit(self, offset: int) -> None:
        self.commits.commit("g", "A", 0, offset, self.told.append)

    @property
    def offset(self) -> int | None:
        return self.state.offsets.find("g", "A", 0)

    @property
    def is_on_its_way(self) -> bool:
        return self.commits.is_on_its_way("g", "A", 0)


def test_commits_of_a_turn_are_one_command_and_are_answered_when_it_is_applied() -> None:
    scene = Scene()
    for offset in range(100):
        scene.commit(offset)
    assert scene.parts.written == []
    scene.parts.turn.end()
    assert (scene.told, scene.offset, scene.is_on_its_way) == ([], None, True)
    (body,) = scene.parts.commit_state()
    assert b'{"A@g":{"0":99}}' in body
    assert scene.told == [None] * 100
    assert (scene.offset, scene.is_on_its_way) == (99, False)


def test_a_commit_again_is_certain_only_when_the_first_one_is() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.turn.end()
    scene.commit(5)
    scene.parts.turn.end()
    assert scene.told == []
    assert len(scene.parts.commit_state()) == 2
    assert scene.told == [None, None]
    # Everybody knows of it.
    scene.commit(5)
    scene.parts.turn.end()
    assert (scene.told, scene.parts.written) == ([None] * 3, [])


def test_an_offset_that_goes_back_while_another_is_on_its_way_counts_last() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.turn.end()
    scene.parts.commit_state()
    scene.commit(7)
    scene.parts.turn.end()
    # As in the table, which will not be so in a moment.
    scene.commit(5)
    scene.parts.turn.end()
    scene.parts.commit_state()
    assert (scene.offset, scene.told) == (5, [None] * 3)


def test_a_commit_brings_along_what_was_told_one_way_before() -> None:
    scene = Scene()
    scene.commits.tell("g", "A", 1, 7)
    scene.parts.turn.end()
    assert scene.parts.written == [] and scene.commits.is_on_its_way("g", "A", 1)
    scene.commit(5)
    scene.parts.turn.end()
    (body,) = scene.parts.commit_state()
    assert b'{"A@g":{"0":5,"1":7}}' in body or b'{"A@g":{"1":7,"0":5}}' in body


def test_who_asks_for_an_offset_that_is_on_its_way_hears_it_when_it_is_there() -> None:
    scene = Scene()
    scene.commits.tell("g", "A", 0, 7)
    found: list[int | None] = []
    scene.commits.wait(lambda error: found.append(scene.offset))
    scene.parts.turn.end()
    assert found == []
    # Told and proposed already: no other command is needed.
    scene.commits.wait(lambda error: found.append(scene.offset))
    scene.parts.turn.end()
    assert len(scene.parts.commit_state()) == 1
    assert found == [7, 7]


def test_what_took_too_long_is_proposed_again_for_who_asks_again() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.turn.end()
    [(late, _)] = scene.parts.written
    scene.parts.commit_state(LATE)
    assert scene.told == [LATE] and scene.state.alarm is None
    scene.commit(5)
    scene.parts.turn.end()
    assert len(scene.parts.written) == 1
    # Both come, in their order.
    scene.state.apply(late, 50)
    scene.parts.commit_state()
    assert (scene.told, scene.offset) == ([LATE, None], 5)


def test_who_waits_when_the_leadership_is_lost_is_told_so() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.leadership.changed("FOLLOWER", 2, "n1")
    scene.state.follow()
    scene.parts.turn.end()
    assert len(scene.told) == 1 and isinstance(scene.told[0], ServiceUnavailableError)
    assert scene.parts.written == []


def test_what_was_lost_with_a_leadership_is_proposed_by_the_next_one() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.turn.end()
    scene.state.follow()
    scene.parts.commit_state(LOST)
    scene.state.lead("n0/3")
    assert scene.offset is None
    scene.commit(5)
    scene.parts.turn.end()
    assert scene.told == [LOST]
    scene.parts.commit_state()
    assert (scene.told, scene.offset) == ([LOST, None], 5)


def test_what_the_log_refused_is_told_and_proposed_again_unless_there_is_a_newer_word() -> None:
    scene = Scene()
    scene.commits.tell("g", "A", 1, 7)
    scene.commit(5)
    scene.parts.turn.end()
    scene.commits.tell("g", "A", 0, 6)
    scene.parts.commit_state(SystemBusyError("refused"))
    assert [str(error) for error in scene.told] == ["refused"]
    assert "refused" in str(scene.state.alarm)
    scene.state.write_offsets()
    (body,) = scene.parts.commit_state()
    assert b'"0":6' in body and b'"1":7' in body
    assert scene.state.alarm is None


def tell_many(scene: Scene, count: int) -> None:
    for number in range(count):
        scene.commits.tell(f"g{number % 7}", "A", number // 7, 5 + number)


def offset_count(bodies: list[bytes]) -> int:
    puts = [json.loads(body)["put"] for body in bodies]
    return sum(len(queues) for put in puts for queues in put.values())


def test_a_great_many_go_piece_by_piece_and_who_waits_is_told_with_the_last() -> None:
    scene = Scene()
    count = 3 * PIECE_MAX + 7
    tell_many(scene, count)
    scene.commit(5)
    scene.parts.turn.end()
    sizes: list[int] = []
    while scene.parts.written:
        # All others have their turn between two of them.
        assert scene.told == ([] if len(sizes) < 4 else [None])
        sizes.append(offset_count(scene.parts.commit_state()))
        if len(sizes) == 1:
            # What is told meanwhile comes behind all that, in one more piece.
            scene.commits.tell("late", "A", 0, 1)
            scene.state.write_offsets()
        assert scene.parts.written == []
        scene.parts.turn.end()
    assert sizes == [PIECE_MAX] * 3 + [8, 1]
    assert (scene.told, scene.offset, scene.is_on_its_way) == ([None], 5, False)
    assert scene.state.offsets.find("late", "A", 0) == 1
    assert room(scene) == (0, 0) and len(scene.state.offsets) == 9


def test_a_great_many_that_the_table_has_are_proposed_no_more() -> None:
    scene = Scene()
    for _ in range(2):
        tell_many(scene, 2 * PIECE_MAX)
        scene.state.write_offsets()
        bodies = scene.parts.commit_all()
        for _ in range(2):
            scene.parts.turn.end()
    assert bodies == []
    tell_many(scene, 2 * PIECE_MAX)
    scene.commits.tell("g0", "A", 0, 1)
    scene.state.write_offsets()
    bodies = scene.parts.commit_all()
    for _ in range(3):
        scene.parts.turn.end()
        bodies += scene.parts.commit_all()
    assert offset_count(bodies) == 1
    assert room(scene) == (0, 0) and not scene.commits.is_on_its_way("g1", "A", 1)


def test_who_waits_behind_a_piece_that_the_log_refuses_is_told_so() -> None:
    scene = Scene()
    tell_many(scene, 2 * PIECE_MAX)
    scene.commit(5)
    counted = room(scene)
    scene.parts.turn.end()
    scene.parts.commit_state(SystemBusyError("refused"))
    assert [str(error) for error in scene.told] == ["refused"] and room(scene) == counted
    # The first refusal waits for nothing; all of it comes, some of it later.
    scene.parts.turn.end()
    scene.parts.commit_all()
    scene.state.write_offsets()
    scene.parts.commit_all()
    assert (scene.offset, len(scene.told), room(scene)) == (5, 1, (0, 0))
    assert sum(len(queues) for queues in scene.state.offsets.all().values()) == 2 * PIECE_MAX + 1


def test_no_piece_overtakes_the_one_that_its_waiter_waits_for() -> None:
    """A call for the next piece was due when another turn's commits came: two were under way."""
    scene = Scene()
    tell_many(scene, 2 * PIECE_MAX)
    scene.state.write_offsets()
    scene.commits.tell("late", "A", 0, 1)
    scene.state.write_offsets()
    scene.parts.commit_state()
    # In one turn the last piece goes, and somebody commits with more than a piece behind it.
    for number in range(PIECE_MAX):
        scene.commits.tell("more", "A", number, 1)
    scene.commit(77)
    scene.parts.turn.end()
    for _ in range(6):
        assert len(scene.parts.written) <= 1 or scene.told == []
        scene.parts.commit_state(SystemBusyError("refused") if scene.parts.written else None)
        scene.parts.turn.end()
    assert scene.told != [None]


def test_a_log_that_refuses_costs_no_turn_what_all_offsets_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are joined with what was told since, which is little."""
    scene = Scene()
    tell_many(scene, 3 * PIECE_MAX)
    scene.state.write_offsets()
    scene.parts.commit_state(SystemBusyError("refused"))
    copied: list[int] = []
    put_back = OffsetNotes.put_back

    def counted(self: OffsetNotes, former: OffsetNotes, newer: Sequence[OffsetNotes] = ()) -> None:
        copied.append(sum(map(len, former.told.values())))
        put_back(self, former, newer)

    monkeypatch.setattr(OffsetNotes, "put_back", counted)
    scene.parts.turn.end()
    scene.parts.commit_state(SystemBusyError("refused"))
    scene.parts.turn.end()
    assert scene.parts.written == [] and max(copied) <= PIECE_MAX


def test_pieces_that_wait_for_a_log_that_refuses_are_gathered_again() -> None:
    scene = Scene()
    tell_many(scene, 3 * PIECE_MAX)
    counted = room(scene)
    scene.state.write_offsets()
    for _ in range(3):
        scene.parts.commit_state(SystemBusyError("refused"))
        scene.parts.turn.end()
        scene.state.write_offsets()
    assert scene.parts.written == [] and room(scene) == counted
    scene.commits.tell("g0", "A", 0, 77)
    scene.parts.now_ms += 120_000
    scene.state.write_offsets()
    scene.parts.commit_all()
    assert scene.state.offsets.find("g0", "A", 0) == 77 and room(scene) == (0, 0)
    assert sum(len(queues) for queues in scene.state.offsets.all().values()) == 3 * PIECE_MAX


def test_pieces_of_a_lost_leadership_are_forgotten() -> None:
    scene = Scene()
    tell_many(scene, 2 * PIECE_MAX)
    scene.commit(5)
    scene.parts.turn.end()
    scene.state.follow()
    scene.parts.commit_state(LOST)
    scene.state.lead("n0/3")
    scene.parts.turn.end()
    assert scene.parts.written == [] and len(scene.told) == 1 and room(scene) == (0, 0)
    assert isinstance(scene.told[0], ServiceUnavailableError)


def test_a_refused_proposal_ends_before_those_that_are_under_way() -> None:
    told: list[BrokerError | None] = []
    under_way = UnderWay()
    first = under_way.begin(told.append)
    # Refused at once, as all is while the leadership is handed over.
    under_way.begin(None)(SystemBusyError("refused"))
    under_way.join(told.append)
    assert told == []
    first(None)
    assert told == [None, None]
    under_way.join(told.append)
    assert told == [None] * 3


def lock(scene: Scene, client_id: str = "c") -> list[object]:
    """What becomes of asking for a lock."""
    ended: list[object] = []
    scene.state.lock_requests.lock(
        "g", [QUEUE], client_id, lambda held, error: ended.append(error or held)
    )
    return ended


def test_a_lock_again_waits_for_the_first_one() -> None:
    scene = Scene()
    first, second = lock(scene), lock(scene)
    other = lock(scene, "other")
    assert first == [] and second == [] and len(scene.parts.written) == 1
    scene.parts.commit_state()
    assert (first, second, other) == ([[QUEUE]], [[QUEUE]], [[]])
    # Everybody knows of it.
    assert lock(scene) == [[QUEUE]] and scene.parts.written == []


def test_a_lock_that_was_given_back_before_the_answer_is_none() -> None:
    scene = Scene()
    assert lock(scene) == []
    scene.parts.commit_state()
    scene.state.put_topic(TopicConfig("Slow"))
    # It is renewed, and waits for what is under way.
    renewed = lock(scene)
    scene.state.lock_requests.unlock("g", [QUEUE], "c", scene.told.append)
    other = lock(scene, "other")
    # A majority was slow: all is applied in one turn, and told at its end.
    written, scene.parts.written = scene.parts.written, []
    for index, (body, _) in enumerate(written, start=50):
        scene.state.apply(body, index)
    for _, done in written:
        done(None)
    assert (renewed, other, scene.told) == ([[]], [[QUEUE]], [None])


def test_a_lock_is_renewed_when_it_is_certain_that_this_member_leads() -> None:
    """The next leader may have been told that the client gives the queue back."""
    scene = Scene()
    waiting: list[OnCommitted] = []
    scene.state.confirm_lead = waiting.append
    assert lock(scene) == []
    # A lock that changes hands is committed: nothing else has to be asked.
    scene.parts.commit_state()
    assert waiting == []
    first, second, other = lock(scene), lock(scene), lock(scene, "other")
    assert scene.parts.written == [] and first == second == other == []
    deposed = ServiceUnavailableError("another member leads")
    for done, error in zip(waiting, (None, deposed, None), strict=True):
        done(error)
    assert (first, second, other) == ([[QUEUE]], [deposed], [[]])


def test_a_lock_under_way_is_renewed_when_it_is_there_and_that_is_certain() -> None:
    """A majority may have acknowledged it long ago, and elected another leader since then."""
    scene = Scene()
    waiting: list[OnCommitted] = []
    scene.state.confirm_lead = waiting.append
    first, second = lock(scene), lock(scene)
    scene.parts.commit_state()
    assert first == [[QUEUE]] and second == [] and len(waiting) == 1
    # What is lost with the leadership is not asked for either.
    scene.state.put_topic(TopicConfig("Lost"))
    third = lock(scene)
    scene.parts.commit_state(ServiceUnavailableError("another member leads"))
    [error] = third
    assert isinstance(error, ServiceUnavailableError) and len(waiting) == 1


def test_giving_back_what_is_not_held_and_looking_for_old_locks_change_nothing() -> None:
    scene = Scene()
    waiting: list[OnCommitted] = []
    scene.state.confirm_lead = waiting.append
    scene.state.lock_requests.expire()
    assert waiting == []
    scene.state.lock_requests.unlock("g", [QUEUE], "c", scene.told.append)
    assert scene.told == [] and len(waiting) == 1
    waiting[0](None)
    assert scene.told == [None]


def test_a_lock_that_took_too_long_is_nobody_elses() -> None:
    scene = Scene()
    assert lock(scene) == []
    [(late, _)] = scene.parts.written
    scene.parts.commit_state(LATE)
    assert lock(scene, "other") == [[]]
    scene.state.apply(late, 50)
    assert lock(scene) == [[QUEUE]] and scene.state.locks.holder("g", QUEUE) == "c"


def test_a_lock_that_was_refused_is_free() -> None:
    scene = Scene()
    first = lock(scene)
    scene.parts.commit_state(SystemBusyError("refused"))
    assert isinstance(first[0], SystemBusyError)
    second = lock(scene, "other")
    scene.parts.commit_state()
    assert second == [[QUEUE]]
    assert scene.state.locks.holder("g", QUEUE) == "other"


def room(scene: Scene) -> tuple[int, int]:
    """What is counted besides the table: pairs and bytes."""
    commits = scene.commits
    more = commits._gathered.room.plus(commits._proposed_room).plus(commits._late_room)
    if commits._leaving is not None:
        more = more.plus(commits._leaving.notes.room)
    return more.pairs, more.bytes


def fill(scene: Scene, first: int = 0) -> int:
    """Commits of ever more groups, each turn a command; how many were taken."""
    for number in range(first, 2000):
        try:
            scene.commits.commit(f"g{number}", "A", 0, 1, scene.told.append)
        except SystemBusyError:
            return number
        if number % 7 == 0:
            scene.parts.turn.end()
    raise AssertionError("there is no limit")


def test_offsets_on_their_way_count_against_the_limit_of_pairs() -> None:
    """What one command had taken along was forgotten by the next: together they passed it."""
    scene = Scene()
    taken = fill(scene)
    assert taken == 1000 and len(scene.state.offsets) == 0
    # The same again takes nothing more.
    scene.commits.tell("g3", "A", 0, 9)
    with pytest.raises(SystemBusyError, match="there are 1000 pairs of topic and group"):
        scene.commits.tell("late", "A", 0, 1)
    scene.parts.turn.end()
    scene.parts.commit_state()
    assert len(scene.state.offsets) == 1000 and room(scene) == (0, 0)
    with pytest.raises(SystemBusyError):
        scene.commits.tell("late", "A", 0, 1)
    # One more queue of a pair that is there has room.
    scene.commits.tell("g3", "A", 1, 1)


def test_offsets_that_the_log_refused_count_once() -> None:
    scene = Scene()
    scene.commits.tell("g", "A", 0, 1)
    counted = room(scene)
    scene.state.write_offsets()
    assert room(scene) == counted
    scene.parts.commit_state(SystemBusyError("refused"))
    assert room(scene) == counted
    scene.parts.now_ms += 120_000
    scene.commits.tell("g", "A", 0, 2)
    scene.state.write_offsets()
    scene.parts.commit_state()
    assert room(scene) == (0, 0) and len(scene.state.offsets) == 1


def test_offsets_that_took_too_long_count_until_all_is_settled() -> None:
    scene = Scene()
    scene.commit(5)
    scene.parts.turn.end()
    [(late, _)] = scene.parts.written
    counted = room(scene)
    scene.parts.commit_state(LATE)
    assert room(scene) == counted
    scene.state.apply(late, 50)
    scene.commits.tell("h", "A", 0, 1)
    assert room(scene) == counted


def test_bytes_of_offsets_on_their_way_are_those_that_the_table_will_have() -> None:
    scene = Scene()
    for number, queue_id in ((1, 0), (1, 1), (100, 0), (1, 0), (20, 5)):
        scene.commits.tell("g" * number, "A", queue_id, 3)
        if number == 100:
            scene.state.write_offsets()
    pairs, size = room(scene)
    scene.state.write_offsets()
    scene.parts.commit_state()
    assert (pairs, size) == (len(scene.state.offsets), scene.state.offsets.json_bytes)
