"""What a leader pushes to one follower: states, window, second attempts, stale answers."""

from ledgermq.dledger.dispatcher import EntryDispatcher, PushState
from ledgermq.dledger.entry import EntryId, EntrySlice
from ledgermq.dledger.errors import ColdDataError
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.messages import (
    AppendRequest,
    CompareRequest,
    PeerDialect,
    PushRequest,
    TruncateRequest,
)
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore
from tests.unit.dledger.lab import CODEC, SEGMENT_BYTES, answer_to, config_of, disk_of


class Desk:
    """A dispatcher of a leader of term 9 and its clock."""

    def __init__(
        self, terms: list[int], dialect: PeerDialect = PeerDialect.LEDGERMQ, **changes: object
    ) -> None:
        self.disk = disk_of(terms) if terms else DLedgerMemoryStore(SEGMENT_BYTES)
        self.log = RaftLog(self.disk, CODEC, 0)
        self.now_ms = 0.0
        self.pusher = EntryDispatcher(
            config_of(3, **changes), self.log, peer_id="n1", term=9, dialect=dialect
        )

    def propose(self, count: int = 1) -> None:
        for _ in range(count):
            self.log.encode([b"x"], 9)
            changes = self.log.take_changes()
            assert changes is not None
            for run in changes.entries:
                self.disk.append(run)

    def pushes(self, after_ms: float = 0.0) -> list[PushRequest]:
        self.now_ms += after_ms
        self.pusher.tick(self.now_ms)
        return self.pusher.make_pushes(7, self.now_ms)

    def only_append(self, after_ms: float = 0.0) -> AppendRequest:
        (push,) = self.pushes(after_ms)
        assert isinstance(push, AppendRequest)
        return push

    def only_question(self, after_ms: float = 0.0) -> CompareRequest | TruncateRequest:
        (push,) = self.pushes(after_ms)
        assert isinstance(push, CompareRequest | TruncateRequest)
        return push

    def answer(
        self,
        request: AppendRequest | CompareRequest | TruncateRequest,
        code: int,
        end_index: int,
        begin_index: int = 0,
    ) -> None:
        response = answer_to(request, code, end_index=end_index, begin_index=begin_index)
        self.pusher.respond(response, self.now_ms)


def ranges(pushes: list[PushRequest]) -> list[tuple[int, int]]:
    return [
        (p.entries.first_index, p.entries.last_index)
        for p in pushes
        if isinstance(p, AppendRequest)
    ]


def test_ledgermq_follower_is_tried_with_one_frame_at_once() -> None:
    desk = Desk([1, 1], push_bytes_max=1)
    desk.propose(3)
    first = desk.only_append()
    assert (first.previous, first.entries.first_index, first.commit_index) == (EntryId(1, 1), 2, 7)
    desk.answer(first, 200, 2)
    assert ranges(desk.pushes()) == [(3, 3), (4, 4)]


def test_window_bounds_the_frames_in_flight() -> None:
    desk = Desk([1], push_bytes_max=1, push_frames_max=2)
    desk.propose(6)
    desk.answer(desk.only_append(), 200, 1)
    frames = desk.pushes()
    assert ranges(frames) == [(2, 2), (3, 3)]
    assert desk.pushes() == []
    assert isinstance(frames[1], AppendRequest)
    # An answer to the second frame stands for the first one, too.
    desk.answer(frames[1], 200, 3)
    assert desk.pusher.match_index == 3
    assert ranges(desk.pushes()) == [(4, 4), (5, 5)]


def test_frames_without_an_answer_are_sent_again_and_late_answers_count() -> None:
    desk = Desk([1], push_timeout_ms=1000)
    desk.propose()
    first = desk.only_append()
    assert desk.pushes(999) == []
    again = desk.only_append(2)
    assert again.request_id != first.request_id
    assert again.entries == first.entries
    desk.answer(first, 200, 1)
    assert desk.pusher.match_index == 1
    assert desk.pushes() == []


def test_a_silent_follower_gets_one_frame_until_it_answers() -> None:
    desk = Desk([1], push_bytes_max=1, push_frames_max=4, push_timeout_ms=1000)
    desk.propose(9)
    desk.answer(desk.only_append(), 200, 1)
    window = desk.pushes()
    assert ranges(window) == [(2, 2), (3, 3), (4, 4), (5, 5)]
    for _ in range(10):
        assert ranges(desk.pushes(1000)) == [(2, 2)]
    # An answer that comes late opens the window again.
    assert isinstance(window[1], AppendRequest)
    desk.answer(window[1], 200, 3)
    assert ranges(desk.pushes()) == [(4, 4), (5, 5), (6, 6), (7, 7)]


def test_a_silent_java_follower_gets_one_frame_until_it_answers() -> None:
    desk = Desk([1], PeerDialect.JAVA, java_push_bytes_max=1, push_timeout_ms=1000)
    question = desk.only_question()
    desk.answer(question, 200, 0)
    desk.propose(5)
    assert ranges(desk.pushes()) == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]
    again = desk.only_append(1000)
    assert (again.entries.first_index, desk.pushes()) == (1, [])
    desk.answer(again, 200, 1)
    assert ranges(desk.pushes()) == [(2, 2), (3, 3), (4, 4), (5, 5)]


def test_what_was_sent_without_a_connection_goes_out_when_it_opens() -> None:
    """A member that starts late is brought up at once, not when the next attempt is due."""
    desk = Desk([1])
    desk.propose()
    first = desk.only_append()
    desk.pusher.set_dialect(PeerDialect.LEDGERMQ)
    assert desk.pusher.deadline_ms() < desk.now_ms
    assert desk.only_append().entries == first.entries
    desk.pusher.unreachable(desk.now_ms)
    assert desk.pushes(999) == []
    desk.pusher.set_dialect(PeerDialect.LEDGERMQ)
    question = desk.only_question()
    assert desk.pushes() == []
    desk.pusher.set_dialect(PeerDialect.LEDGERMQ)
    assert desk.only_question().request_id == question.request_id


def test_answer_of_an_attempt_that_was_given_up_is_ignored() -> None:
    desk = Desk([1])
    desk.propose()
    first = desk.only_append()
    desk.pusher.unreachable(desk.now_ms)
    desk.answer(first, 200, 1)
    assert desk.pusher.match_index == -1


def test_after_a_broken_connection_the_follower_is_compared_again() -> None:
    """Its log may be another one by now; until then it counts for nothing."""
    desk = Desk([1])
    desk.propose()
    desk.answer(desk.only_append(), 200, 1)
    desk.pusher.unreachable(desk.now_ms)
    assert desk.pusher.match_index == -1
    assert desk.pushes(500) == []
    question = desk.only_question(501)
    assert question.entry.first_index == 1
    desk.answer(question, 200, 1)
    assert desk.pusher.match_index == 1


def test_a_sign_of_life_ends_the_pause() -> None:
    desk = Desk([1])
    desk.pusher.unreachable(desk.now_ms)
    desk.pusher.heard()
    assert desk.pushes()


def test_question_is_asked_again_under_its_old_id() -> None:
    desk = Desk([1], PeerDialect.JAVA)
    first = desk.only_question()
    assert desk.pushes(500) == []
    again = desk.only_question(501)
    assert again.request_id == first.request_id
    desk.answer(first, 200, 0)
    assert desk.pusher.state is PushState.APPEND


def test_java_follower_that_matches_at_its_end_goes_to_append() -> None:
    desk = Desk([1, 1], PeerDialect.JAVA)
    desk.answer(desk.only_question(), 200, 1)
    assert (desk.pusher.state, desk.pusher.match_index) == (PushState.APPEND, 1)


def test_java_follower_with_a_longer_log_is_truncated() -> None:
    desk = Desk([1, 1], PeerDialect.JAVA)
    desk.answer(desk.only_question(), 200, 5)
    cut = desk.only_question()
    assert isinstance(cut, TruncateRequest)
    assert cut.entry.first_index == 1
    desk.answer(cut, 200, 1)
    assert desk.pusher.state is PushState.APPEND


def test_empty_java_follower_is_truncated_to_the_first_entry() -> None:
    desk = Desk([1, 1], PeerDialect.JAVA)
    desk.answer(desk.only_question(), 406, -1)
    cut = desk.only_question()
    assert isinstance(cut, TruncateRequest)
    assert cut.entry.first_index == 0


def test_empty_ledgermq_follower_gets_the_log_from_its_begin() -> None:
    desk = Desk([1, 1])
    desk.propose()
    desk.answer(desk.only_append(), 406, -1)
    assert desk.only_append().previous == EntryId(-1, -1)


def test_follower_behind_the_first_entry_starts_afresh() -> None:
    desk = Desk([1] * 80)
    first_index = desk.disk.drop_before(SEGMENT_BYTES)
    desk.propose()
    desk.answer(desk.only_append(), 406, 3)
    cut = desk.only_question()
    assert isinstance(cut, TruncateRequest)
    assert cut.entry.first_index == first_index
    desk.answer(cut, 200, first_index, begin_index=first_index)
    first = desk.pushes()[0]
    assert isinstance(first, AppendRequest)
    assert first.previous == EntryId(1, first_index)


def test_follower_that_lost_what_it_acknowledged_no_longer_counts() -> None:
    desk = Desk([1])
    desk.propose()
    desk.answer(desk.only_append(), 200, 1)
    assert desk.pusher.match_index == 1
    desk.propose()
    desk.answer(desk.only_append(), 406, 0)
    assert (desk.pusher.match_index, desk.pusher.state) == (-1, PushState.COMPARE)


def test_questions_that_are_refused_are_paused() -> None:
    desk = Desk([1], PeerDialect.JAVA)
    desk.answer(desk.only_question(), 405, 0)
    assert desk.pushes(499) == []
    assert desk.pushes(2)


def test_java_follower_that_refuses_what_is_appended_is_compared() -> None:
    """DLedger: a stuck follower answers 413 for ever; its leader only logs it."""
    desk = Desk([1], PeerDialect.JAVA)
    desk.answer(desk.only_question(), 200, 0)
    desk.propose()
    for _ in range(3):
        desk.answer(desk.only_append(1001), 413, 0)
    assert desk.pusher.state is PushState.COMPARE


def test_peer_that_turns_out_to_be_java_is_compared_first() -> None:
    desk = Desk([1])
    desk.propose()
    desk.only_append()
    desk.pusher.set_dialect(PeerDialect.JAVA)
    assert isinstance(desk.only_question(), CompareRequest)


def test_time_from_a_push_to_its_answer_is_kept() -> None:
    desk = Desk([1, 1], push_timeout_ms=1000)
    desk.propose()
    push = desk.only_append()
    desk.now_ms += 30
    desk.answer(push, 200, 2)
    desk.propose()
    refused = desk.only_append()
    desk.answer(refused, 500, 2)
    trips = desk.pusher.round_trips
    assert (trips.count, trips.total) == (1, 0.03)
    # What was dropped on its way, and goes out again, took no time that is known.
    desk.propose()
    dropped = desk.only_append()
    desk.pusher.set_dialect(PeerDialect.LEDGERMQ)
    desk.answer(dropped, 200, 4)
    assert desk.pusher.round_trips.count == 1


class ColdStore(DLedgerMemoryStore):
    """Entries that are not in memory until they were loaded."""

    path = "cold"
    is_cold = True

    def read_cached(self, first_index: int, bytes_max: int) -> EntrySlice:
        if self.is_cold:
            raise ColdDataError([(self, first_index, bytes_max)])
        return self.read(first_index, bytes_max)

    def load(self, offset: int, size_bytes: int) -> None:
        self.is_cold = False


def cold_desk() -> tuple[Desk, ColdStore]:
    desk = Desk([1] * 5)
    store = ColdStore(SEGMENT_BYTES)
    store.append(desk.disk.read(0, 10_000))
    desk.log = RaftLog(store, CODEC, 0)
    desk.pusher = EntryDispatcher(
        config_of(3), desk.log, peer_id="n1", term=9, dialect=PeerDialect.LEDGERMQ
    )
    return desk, store


def test_entries_that_are_not_in_memory_are_pushed_once_loaded() -> None:
    desk, store = cold_desk()
    desk.pusher.next_index = 2
    assert desk.pushes() == []
    cold = desk.pusher.take_cold()
    assert cold is not None and cold.parts[0][:2] == (store, 2)
    # Nothing is asked for twice, and no clock waits for it.
    assert desk.pushes() == [] and desk.pusher.take_cold() is None
    assert desk.pusher.deadline_ms() == float("inf")
    store.load(0, 0)
    desk.pusher.loaded()
    assert ranges(desk.pushes()) == [(2, 4)]


def test_a_page_cache_that_keeps_nothing_is_not_asked_for_ever() -> None:
    desk, _ = cold_desk()
    desk.pusher.next_index = 2
    for _ in range(4):
        assert desk.pushes() == [] and desk.pusher.take_cold() is not None
        desk.pusher.loaded()
    assert ranges(desk.pushes()) == [(2, 4)]
