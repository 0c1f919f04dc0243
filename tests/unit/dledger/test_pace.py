"""A member that comes late itself blames nobody; what it measures stretches its waits."""

from dataclasses import replace

import pytest

from ledgermq.dledger.config import FAST_TIMING
from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import (
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.pace import LATE_MIN_MS, READING_MS, Pace, Wait
from tests.unit.dledger.lab import (
    Lab,
    beat,
    granted,
    only_vote_response,
    vote,
)

TIMEOUT_MS = FAST_TIMING.election_timeout_ms
WAIT_MAX_MS = FAST_TIMING.vote_wait_max_ms
# The largest patience of a follower that is punctual, its random part included.
PATIENCE_MAX_MS = TIMEOUT_MS + WAIT_MAX_MS - FAST_TIMING.vote_wait_min_ms


def starved(share: float, length_ms: float, *, gap_ms: float = 2_000.0) -> Pace:
    """The pace of a member that got a share of its time for so long."""
    pace, now_ms = Pace(0.0), 0.0
    while now_ms < length_ms:
        now_ms += gap_ms
        pace.enter(now_ms, now_ms - gap_ms * (1 - share))
    return pace


def answered_after(pace: Pace, milliseconds: float) -> None:
    pace.answered(pace.own_ms - milliseconds)


def beat_answer(request: HeartBeatRequest) -> HeartBeatResponse:
    return HeartBeatResponse(
        term=request.term,
        sender=request.target,
        target=request.sender,
        code=DLedgerCode.SUCCESS,
        round=request.read_round,
    )


# -- what is measured


def test_a_punctual_member_keeps_to_its_times_exactly() -> None:
    pace = Pace(0.0)
    for turn in range(1, 2_000):
        assert pace.enter(turn * 500.0 + LATE_MIN_MS - 1, turn * 500.0) == 0
    answered_after(pace, 1.0)
    assert pace.stretch(FAST_TIMING) == 1.0
    assert pace.majority_stretch(FAST_TIMING) == 1.0
    assert pace.vote_stretch(FAST_TIMING) == 1.0


def test_one_long_stop_stretches_little() -> None:
    pace = Pace(0.0)
    assert pace.enter(6_500.0, 500.0) == 6_000.0
    assert pace.stretch(FAST_TIMING) == 1.0
    pace.enter(20_500.0, 7_000.0)
    assert 1.0 < pace.stretch(FAST_TIMING) < 3.0


@pytest.mark.parametrize(("share", "stretch"), [(0.5, 2.0), (0.25, 4.0), (0.05, 10.0), (0.0, 10.0)])
def test_patience_grows_as_the_share_of_time_shrinks_and_is_bounded(
    share: float, stretch: float
) -> None:
    pace = starved(share, 300_000.0)
    assert pace.stretch(FAST_TIMING) == pytest.approx(stretch, rel=0.01)
    assert pace.stretch(replace(FAST_TIMING, stretch_max=3)) == pytest.approx(
        min(stretch, 3), rel=0.01
    )


def test_patience_falls_back() -> None:
    pace = starved(0.05, 300_000.0)
    for turn in range(1, 240):
        pace.enter(300_000.0 + turn * 500.0, 300_000.0 + turn * 500.0)
    assert pace.stretch(FAST_TIMING) == 1.0


def test_a_turn_that_was_due_long_ago_is_late_since_the_last_one_only() -> None:
    pace = Pace(1_000.0)
    assert pace.enter(1_400.0, float("-inf")) == 400.0
    assert pace.enter(1_400.0, float("-inf")) == 0.0


def test_slow_answers_stretch_rounds_and_quick_ones_undo_it() -> None:
    pace = Pace(0.0)
    answered_after(pace, 600.0)
    assert pace.vote_stretch(FAST_TIMING) == 4.0
    assert pace.majority_stretch(FAST_TIMING) == 1.0
    assert pace.stretch(FAST_TIMING) == 1.0
    answered_after(pace, 3_000.0)
    assert pace.vote_stretch(FAST_TIMING) == 10.0
    assert pace.majority_stretch(FAST_TIMING) == 4.0
    for _ in range(5):
        answered_after(pace, 1.0)
    assert pace.vote_stretch(FAST_TIMING) == 1.0


def test_a_leader_remembers_the_slowest_answer_for_followers_answer_in_bursts() -> None:
    pace = Pace(0.0)
    for late_ms in (3_000.0, 2_500.0, 2_000.0, 1_000.0, 1.0, 1.0, 1.0, 1.0):
        answered_after(pace, late_ms)
    assert pace.majority_stretch(FAST_TIMING) == 4.0
    for turn in range(1, 120):
        pace.enter(turn * 500.0, turn * 500.0)
    assert pace.majority_stretch(FAST_TIMING) == 1.0


def test_slow_answers_are_forgotten_with_time() -> None:
    pace = Pace(0.0)
    answered_after(pace, 20_000.0)
    for turn in range(1, 400):
        pace.enter(turn * 500.0, turn * 500.0)
    assert pace.vote_stretch(FAST_TIMING) == 1.0


def test_time_that_a_member_lost_itself_is_no_slow_answer() -> None:
    pace = Pace(0.0)
    asked_ms = pace.own_ms
    pace.enter(5_500.0, 500.0)
    pace.answered(asked_ms)
    assert pace.majority_stretch(FAST_TIMING) == 1.0


def test_split_votes_after_the_first_double_the_waits_until_there_is_a_leader() -> None:
    pace, found = Pace(0.0), []
    for _ in range(7):
        pace.vote_split()
        found.append(pace.vote_stretch(FAST_TIMING))
    assert found == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    pace.leader_found()
    assert pace.vote_stretch(FAST_TIMING) == 1.0


# -- what is excused


def test_own_lateness_is_no_silence_up_to_a_bound() -> None:
    wait = Wait(1_000.0)
    wait.excuse(700.0, 2_000.0, FAST_TIMING)
    assert wait.end_ms(1_500.0) == 3_200.0
    wait.excuse(1e9, 3_000.0, FAST_TIMING)
    assert wait.end_ms(1_500.0) == 2_500.0 + FAST_TIMING.excused_max_ms == 17_500.0
    wait.begin(5_000.0)
    assert wait.end_ms(1_500.0) == 6_500.0


def test_what_lies_unread_is_read_once_before_somebody_is_blamed() -> None:
    wait = Wait(0.0)
    wait.excuse(60_000.0, 60_000.0, FAST_TIMING)
    assert wait.end_ms(1_500.0) == 60_000.0 + READING_MS
    assert not wait.is_over(1_500.0, 60_000.0)
    wait.excuse(10_000.0, 70_000.0, FAST_TIMING)
    assert wait.end_ms(1_500.0) == 60_000.0 + READING_MS
    assert wait.is_over(1_500.0, 70_000.0)


# -- what a member makes of it


def test_a_member_asks_to_be_called_within_a_heart_beat() -> None:
    lab = Lab(term=3, recovering=True)
    assert lab.raft.deadline_ms() == FAST_TIMING.heart_beat_ms
    lab = Lab(term=3)
    lab.take(beat(3))
    for turn in range(1, 4):
        lab.now_ms = turn * 400.0
        lab.take(beat(3))
        assert lab.raft.deadline_ms() == lab.now_ms + FAST_TIMING.heart_beat_ms


def test_late_follower_reads_before_it_blames_its_leader() -> None:
    lab = Lab(term=3)
    lab.take(beat(3))
    lab.now_ms = 400_000.0
    lab.raft.tick(lab.now_ms)
    assert lab.raft.role is Role.FOLLOWER
    lab.take(beat(3))
    lab.pass_time(TIMEOUT_MS)
    assert lab.raft.role is Role.FOLLOWER


def test_late_follower_without_unread_heart_beats_asks_for_votes() -> None:
    lab = Lab(term=3)
    lab.take(beat(3))
    lab.now_ms = 400_000.0
    lab.raft.tick(lab.now_ms)
    lab.pass_time(READING_MS)
    assert lab.raft.role is Role.CANDIDATE


def test_time_that_a_follower_was_not_there_is_not_silence_of_its_leader() -> None:
    lab = Lab(term=3)
    lab.take(beat(3))
    lab.now_ms = 4_000.0
    lab.raft.tick(lab.now_ms)
    # It was there for half a second of it.
    lab.pass_time(TIMEOUT_MS - 501)
    assert lab.raft.role is Role.FOLLOWER
    lab.pass_time(WAIT_MAX_MS)
    assert lab.raft.role is Role.CANDIDATE


def test_punctual_follower_waits_as_long_as_ever() -> None:
    lab = Lab(term=3)
    lab.take(beat(3))
    lab.pass_time(TIMEOUT_MS - 1)
    assert lab.raft.role is Role.FOLLOWER
    lab.pass_time(PATIENCE_MAX_MS - TIMEOUT_MS + 1)
    assert lab.raft.role is Role.CANDIDATE


def test_late_voter_reads_before_it_takes_a_leader_for_dead() -> None:
    lab = Lab(term=3)
    lab.take(beat(3))
    lab.now_ms = 60_000.0
    request = vote(4, EntryId(-1, -1), sender="n2", pre_vote=True)
    refused = only_vote_response(lab.take(request))
    assert refused.result is VoteResult.REJECT_ALREADY_HAS_LEADER
    # Once: who asks is punctual, perhaps, and must not wait for those who are not.
    lab.now_ms = 70_000.0
    assert only_vote_response(lab.take(request)).result is VoteResult.ACCEPT


def test_late_leader_reads_before_it_gives_up() -> None:
    lab = Lab()
    lab.elect()
    lab.now_ms += 400_000.0
    lab.raft.tick(lab.now_ms)
    assert lab.raft.role is Role.LEADER
    # The beats of so long a stop are due, too.
    assert any(isinstance(message, HeartBeatRequest) for message in lab.work())
    lab.pass_time(READING_MS)
    assert lab.raft.role is Role.CANDIDATE


def test_late_leader_that_is_answered_leads_on() -> None:
    lab = Lab()
    lab.elect()
    for _ in range(5):
        lab.now_ms += 20_000.0
        lab.raft.tick(lab.now_ms)
        asked = [m for m in lab.work() if isinstance(m, HeartBeatRequest) and m.target == "n1"]
        lab.pass_time(READING_MS / 2)
        for request in asked:
            lab.take(beat_answer(request))
    assert lab.raft.role is Role.LEADER


def test_leader_without_a_majority_stands_in_nobodys_way() -> None:
    lab = Lab()
    lab.elect()
    term, last_id = lab.raft.term, EntryId(lab.raft.term, lab.raft.last_index)
    request = vote(term + 1, last_id, sender="n2", pre_vote=True)
    refused = only_vote_response(lab.take(request))
    assert refused.result is VoteResult.REJECT_ALREADY_HAS_LEADER
    # Slow answers have made it patient, which is its own affair.
    answered_after(lab.raft._pace, 5_000.0)
    lab.pass_time(TIMEOUT_MS + 1)
    assert lab.raft.role is Role.LEADER
    assert only_vote_response(lab.take(request)).result is VoteResult.ACCEPT
    lab.pass_time(FAST_TIMING.stretch_max * TIMEOUT_MS)
    assert lab.raft.role is Role.CANDIDATE


def test_answers_to_heart_beats_measure_the_way_there_and_back() -> None:
    lab = Lab()
    lab.elect()
    (asked,) = [
        m
        for m in lab.pass_time(FAST_TIMING.heart_beat_ms)
        if isinstance(m, HeartBeatRequest) and m.target == "n1"
    ]
    sent_ms = lab.now_ms
    lab.pass_time(900.0)
    lab.take(beat_answer(asked))
    expected = 2 * (lab.now_ms - sent_ms) / TIMEOUT_MS
    assert lab.raft._pace.majority_stretch(FAST_TIMING) == pytest.approx(expected)


def test_answers_to_votes_measure_it_too_and_late_ones_are_what_counts() -> None:
    lab = Lab(term=3)
    asked = lab.until_asked(pre_vote=True)[0]
    asked_ms = lab.now_ms
    lab.pass_time(2_000.0)
    late = VoteResponse(
        term=3,
        sender=asked.target,
        target="n0",
        result=VoteResult.REJECT_SMALL_LEDGER_END_INDEX,
        round_term=asked.term,
        pre_vote=True,
    )
    lab.take(late)
    lasted_ms = lab.now_ms - asked_ms
    stretch = lab.raft._pace.vote_stretch(FAST_TIMING)
    assert stretch == pytest.approx(min(2 * lasted_ms / FAST_TIMING.vote_round_ms, 10.0))


def test_a_new_connection_measures_anew() -> None:
    lab = Lab(term=3)
    asked = lab.until_asked(pre_vote=True)[0]
    lab.pass_time(60_000.0)
    lab.raft.unreachable(asked.target)
    lab.raft.set_dialect(asked.target, lab.dialects[asked.target])
    lab.take(granted(asked, asked.target))
    assert lab.raft._pace.vote_stretch(FAST_TIMING) == 1.0


def test_a_late_round_of_votes_waits_for_what_lies_unread() -> None:
    lab = Lab(term=3)
    asked = lab.until_asked(pre_vote=True)[0]
    lab.now_ms += 100_000.0
    lab.raft.tick(lab.now_ms)
    voted = [m for m in lab.take(granted(asked, asked.target)) if isinstance(m, VoteRequest)]
    assert voted and not voted[0].pre_vote
