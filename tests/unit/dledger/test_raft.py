"""Raft's safety statements, paper 5.1 to 5.4, a test for each; and the face of the core."""

import pytest

from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.errors import (
    DropReason,
    EntryTooLargeError,
    NotLeaderError,
    ProposalDroppedError,
)
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import (
    CommitRequest,
    CompareRequest,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    PeerDialect,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.storage import HardState
from tests.unit.dledger.lab import (
    Lab,
    acked,
    answer_to,
    append,
    appends_of,
    beat,
    disk_of,
    granted,
    joined,
    only_beat_response,
    only_push_response,
    only_vote_response,
    run_of,
    vote,
)

JAVA = PeerDialect.JAVA


def beat_answer(
    term: int, sender: str = "n1", code: int = 200, recovering: bool = False, life: int = 0
) -> HeartBeatResponse:
    return HeartBeatResponse(
        term=term,
        sender=sender,
        target="n0",
        code=DLedgerCode(code),
        recovering=recovering,
        life=life,
    )


# -- 5.1 terms


def test_5_1_higher_term_is_entered_and_a_leader_steps_down() -> None:
    lab = Lab()
    lab.elect()
    lab.take(vote(9, EntryId(9, 9)))
    assert (lab.raft.role, lab.raft.term) == (Role.CANDIDATE, 9)
    assert lab.hard_state == HardState(9, "n1")


def test_5_1_request_of_a_past_term_is_refused() -> None:
    lab = Lab(term=5)
    response = only_beat_response(lab.take(beat(4)))
    assert (response.code, response.term, lab.raft.leader_id) == (403, 5, None)


def test_5_1_answer_of_a_past_term_changes_nothing() -> None:
    lab = Lab()
    first = appends_of(lab.elect())[0]
    lab.take(beat(2, sender="n2"))
    lab.take(acked(first))
    assert lab.raft.commit_index == -1


# -- 5.2 leader election


def test_5_2_at_most_one_vote_in_a_term() -> None:
    lab = Lab()
    assert only_vote_response(lab.take(vote(3, EntryId(-1, -1)))).result is VoteResult.ACCEPT
    refused = only_vote_response(lab.take(vote(3, EntryId(-1, -1), sender="n2")))
    assert refused.result is VoteResult.REJECT_ALREADY_VOTED
    again = only_vote_response(lab.take(vote(3, EntryId(-1, -1))))
    assert again.result is VoteResult.ACCEPT


def test_5_2_the_vote_is_saved_before_it_is_told() -> None:
    lab = Lab()
    lab.raft.receive(vote(3, EntryId(-1, -1)), 0.0)
    ready = lab.raft.take_ready()
    assert ready is not None
    assert ready.hard_state == HardState(3, "n1")
    assert not ready.messages
    assert isinstance(ready.messages_after_persist[0], VoteResponse)


def test_5_2_a_vote_survives_a_restart() -> None:
    lab = Lab(term=3, voted_for="n1")
    refused = only_vote_response(lab.take(vote(3, EntryId(-1, -1), sender="n2")))
    assert refused.result is VoteResult.REJECT_ALREADY_VOTED


def test_5_2_candidate_with_a_majority_leads_and_says_so_at_once() -> None:
    lab = Lab(member_count=5)
    messages = lab.elect()
    assert lab.raft.role is Role.LEADER
    targets = [m.target for m in messages if isinstance(m, HeartBeatRequest)]
    assert targets == ["n1", "n2", "n3", "n4"]


def test_5_2_votes_of_another_round_do_not_count() -> None:
    lab = Lab()
    request = lab.until_asked(pre_vote=True)[0]
    lab.take(granted(request, "n1"))
    old = VoteRequest(term=0, sender="n0", target="n1", last_index=-1, last_term=-1)
    lab.take(granted(old, "n1"))
    assert lab.raft.role is Role.CANDIDATE


def test_5_2_candidate_follows_a_leader_of_its_term() -> None:
    lab = Lab()
    request = lab.until_asked(pre_vote=True)[0]
    lab.take(granted(request, "n1"))
    lab.take(beat(lab.raft.term, sender="n2"))
    assert (lab.raft.role, lab.raft.leader_id) == (Role.FOLLOWER, "n2")


def test_5_2_silence_of_the_leader_starts_an_election() -> None:
    lab = Lab(term=1)
    lab.take(beat(1))
    assert not [m for m in lab.pass_time(1499) if isinstance(m, VoteRequest)]
    assert [m for m in lab.pass_time(400) if isinstance(m, VoteRequest)]
    assert lab.raft.term == 1


def test_5_2_split_vote_is_tried_again_after_a_random_wait() -> None:
    lab = Lab()
    asked = lab.until_asked(pre_vote=True)[0]
    lab.take(granted(asked, "n1"))
    term = lab.raft.term
    for peer_id in ("n1", "n2"):
        lab.take(
            VoteResponse(
                term=term,
                sender=peer_id,
                target="n0",
                result=VoteResult.REJECT_ALREADY_VOTED,
                round_term=term,
            )
        )
    assert lab.raft.role is Role.CANDIDATE
    assert 150 <= lab.raft.deadline_ms() - lab.now_ms <= 450


# -- 5.3 log replication


def test_5_3_a_leader_only_appends() -> None:
    lab = Lab([1, 1], term=1)
    lab.elect()
    lab.raft.propose([b"a"], 0.0)
    lab.work()
    assert [lab.disk.term_at(i) for i in range(4)] == [1, 1, 2, 2]


def test_5_3_follower_refuses_entries_behind_what_it_lacks() -> None:
    lab = Lab([1], term=2)
    response = only_push_response(lab.take(append(2, run_of([1, 1, 2])[2], EntryId(1, 1))))
    assert (response.code, response.end_index) == (406, 0)


def test_5_3_leader_goes_back_until_the_logs_agree() -> None:
    """Figure 7 (b): the follower lacks entries; the frame that continues its log follows."""
    lab = Lab([1, 1, 1], term=1)
    first = appends_of(lab.elect())[0]
    assert first.previous == EntryId(1, 2)
    retry = appends_of(lab.take(answer_to(first, 406, end_index=0)))[0]
    assert (retry.previous, retry.entries.first_index, retry.entries.last_index) == (
        EntryId(1, 0),
        1,
        2,
    )


def test_5_3_leader_searches_for_the_last_common_entry() -> None:
    """Figure 7 (f): the follower has other entries under the same numbers."""
    lab = Lab([1, 1, 1, 1], term=3)
    out = lab.take(answer_to(appends_of(lab.elect())[0], 406, end_index=9))
    asked: list[int] = []
    while not appends_of(out):
        (question,) = [m for m in out if isinstance(m, CompareRequest)]
        index = question.entry.first_index
        asked.append(index)
        out = lab.take(answer_to(question, 200 if index == 0 else 406, end_index=9))
    assert asked == [2, 0, 1]
    assert appends_of(out)[0].previous == EntryId(1, 0)


def test_5_3_an_entry_is_committed_by_a_majority() -> None:
    lab = Lab(member_count=5)
    frames = lab.elect()
    lab.take(acked(appends_of(frames, "n1")[0]))
    assert lab.raft.commit_index == -1
    lab.take(acked(appends_of(frames, "n3")[0]))
    assert lab.raft.commit_index == 0
    assert lab.committed == [(0, 1)]


def test_5_3_followers_learn_the_commit_index() -> None:
    lab = Lab()
    lab.take(acked(appends_of(lab.elect())[0]))
    beats = [m for m in lab.pass_time(600) if isinstance(m, HeartBeatRequest)]
    assert {b.commit_index for b in beats} == {0}


def test_5_3_what_was_not_answered_is_sent_again() -> None:
    lab = Lab()
    first = appends_of(lab.elect())[0]
    lab.take(beat_answer(1))
    (again,) = appends_of(lab.pass_time(1100))
    assert again.entries == first.entries
    lab.take(acked(first))
    assert lab.raft.commit_index == 0


# -- 5.4 safety


def test_5_4_1_vote_goes_to_a_log_that_is_up_to_date() -> None:
    lab = Lab([1, 3], term=3)
    older = only_vote_response(lab.take(vote(5, EntryId(2, 9))))
    assert older.result is VoteResult.REJECT_EXPIRED_LEDGER_TERM
    shorter = only_vote_response(lab.take(vote(5, EntryId(3, 0))))
    assert shorter.result is VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    newer = only_vote_response(lab.take(vote(5, EntryId(4, 0))))
    assert newer.result is VoteResult.ACCEPT


def test_5_4_2_figure_8_an_old_entry_is_not_committed_by_counting() -> None:
    """Figure 8 (c): the entry of term 2 is on a majority, but the leader is one of term 4."""
    lab = Lab([1, 2], term=3, checkpoint=0, opening=False)
    lab.elect()
    assert lab.raft.term == 4
    out = lab.take(beat_answer(4))
    lab.raft.unreachable("n1")
    out = lab.pass_time(1100)
    (question,) = [m for m in out if isinstance(m, CompareRequest) and m.target == "n1"]
    lab.take(answer_to(question, 200, end_index=1))
    assert lab.raft.commit_index == 0
    # (e): an entry of its own term takes the older one along.
    lab.raft.propose([b"x"], lab.now_ms)
    (frame,) = appends_of(lab.work())
    lab.take(acked(frame))
    assert lab.raft.commit_index == 2


def test_5_4_2_the_record_that_opens_the_term_commits_what_is_older() -> None:
    lab = Lab([1, 1], term=1)
    frames = lab.elect()
    assert (lab.raft.opening_index, lab.raft.is_ready_leader) == (2, False)
    lab.take(acked(appends_of(frames)[0]))
    assert (lab.raft.commit_index, lab.raft.is_ready_leader) == (2, True)


def test_5_4_3_only_durable_entries_of_the_leader_count() -> None:
    lab = Lab()
    lab.until_asked(pre_vote=True)
    lab.take(granted(lab.until_asked(pre_vote=True)[0], "n1"))
    lab.raft.receive(granted(vote(1, EntryId(-1, -1), sender="n0"), "n1"), lab.now_ms)
    ready = lab.raft.take_ready()
    assert ready is not None and ready.persist_id == EntryId(1, 0)
    frame = appends_of(lab.carry_out(ready))[0]
    lab.raft.receive(acked(frame), lab.now_ms)
    assert lab.raft.commit_index == -1
    lab.raft.persisted(ready.persist_id)
    assert lab.raft.commit_index == 0


# -- thesis 6.2, 9.6: check-quorum and pre-vote


def test_leader_without_a_majority_steps_down() -> None:
    lab = Lab(member_count=5)
    lab.elect()
    lab.pass_time(1000)
    lab.take(beat_answer(1, "n1"))
    lab.pass_time(499)
    assert lab.raft.role is Role.LEADER
    lab.pass_time(2)
    assert (lab.raft.role, lab.raft.leader_id) == (Role.CANDIDATE, None)


def test_member_that_returns_does_not_raise_the_term() -> None:
    lab = Lab(term=7)
    lab.pass_time(60_000)
    assert lab.raft.term == 7


def test_pre_vote_is_refused_while_the_leader_is_alive() -> None:
    lab = Lab(term=3)
    lab.take(beat(3))
    request = vote(4, EntryId(-1, -1), sender="n2", pre_vote=True)
    refused = only_vote_response(lab.take(request))
    assert refused.result is VoteResult.REJECT_ALREADY_HAS_LEADER
    lab.pass_time(1501)
    assert only_vote_response(lab.take(request)).result is VoteResult.ACCEPT
    assert (lab.raft.term, lab.hard_state.voted_for) == (3, None)


# -- with Java members: the order of DLedger 0.3.1.2


def test_java_vote_of_a_higher_term_is_told_to_ask_again() -> None:
    lab = Lab(dialect=JAVA)
    response = only_vote_response(lab.take(vote(4, EntryId(-1, -1))))
    assert (response.result, response.term) == (VoteResult.REJECT_TERM_NOT_READY, 0)
    assert lab.raft.term == 4
    assert only_vote_response(lab.take(vote(4, EntryId(-1, -1)))).result is VoteResult.ACCEPT


def test_java_vote_with_a_shorter_log_does_not_raise_the_term() -> None:
    lab = Lab([1], term=1, dialect=JAVA)
    lab.take(vote(4, EntryId(-1, -1)))
    assert lab.raft.term == 1


@pytest.mark.parametrize(
    ("term", "sender", "code", "answer_term", "leader_id"),
    [
        (5, "x", 401, 5, None),
        (5, "n0", 402, 5, None),
        (4, "n1", 403, 5, None),
        (5, "n1", 200, 5, "n1"),
        (6, "n1", 416, 6, None),
    ],
)
def test_java_heart_beat_codes(
    term: int, sender: str, code: int, answer_term: int, leader_id: str | None
) -> None:
    lab = Lab(term=5, dialect=JAVA)
    response = only_beat_response(lab.take(beat(term, sender=sender)))
    assert (response.code, response.term, lab.raft.leader_id) == (code, answer_term, leader_id)


def test_java_heart_beat_of_another_leader_is_refused() -> None:
    lab = Lab(term=5, dialect=JAVA)
    lab.take(beat(5))
    assert only_beat_response(lab.take(beat(5, sender="n2"))).code == 409


def test_java_heart_beat_of_a_higher_term_is_followed_the_second_time() -> None:
    lab = Lab(term=5, dialect=JAVA)
    lab.take(beat(6))
    assert only_beat_response(lab.take(beat(6))).code == 200
    assert lab.raft.role is Role.FOLLOWER


def test_java_group_asks_in_the_present_term_first() -> None:
    lab = Lab(term=5, dialect=JAVA)
    asked = lab.until_asked(pre_vote=False)
    assert {(m.term, m.pre_vote) for m in asked} == {(5, False)}


def test_java_term_voted_for_itself_before_a_restart_is_not_led_again() -> None:
    lab = Lab(term=5, voted_for="n0", dialect=JAVA)
    asked = lab.until_asked(pre_vote=False)[0]
    out = lab.take(granted(asked, "n1"))
    assert lab.raft.role is Role.CANDIDATE
    assert {m.term for m in out if isinstance(m, VoteRequest)} == {6}


def test_java_leader_steps_down_on_any_higher_term() -> None:
    """DLedger 0.3.1.2 ignores it while it has a majority, and the other member stays out."""
    lab = Lab(dialect=JAVA)
    lab.elect()
    assert lab.raft.role is Role.LEADER
    lab.take(beat_answer(50, "n2", 403))
    assert (lab.raft.role, lab.raft.term) == (Role.CANDIDATE, 50)


def test_java_times_hold_with_a_java_member() -> None:
    lab = Lab(term=1, dialect=JAVA)
    lab.take(beat(1))
    assert not [m for m in lab.pass_time(5999) if isinstance(m, VoteRequest)]
    assert [m for m in lab.pass_time(701) if isinstance(m, VoteRequest)]


def test_java_follower_is_compared_before_anything_is_appended() -> None:
    lab = Lab([1], term=1, dialect=JAVA)
    out = lab.elect()
    assert not appends_of(out)
    assert [m.entry.first_index for m in out if isinstance(m, CompareRequest)] == [1, 1]


def test_idle_java_follower_hears_the_commit_index() -> None:
    lab = Lab(dialect=JAVA)
    (question, _) = [m for m in lab.elect() if isinstance(m, CompareRequest)]
    lab.take(answer_to(question, 200, end_index=0))
    commits = [m for m in lab.pass_time(2500) if isinstance(m, CommitRequest)]
    assert [m.commit_index for m in commits] == [0, 0]


# -- lost state


def test_recovering_member_gives_no_vote_and_asks_for_none() -> None:
    lab = Lab(term=3, recovering=True)
    response = only_vote_response(lab.take(vote(9, EntryId(9, 9))))
    assert response.result is VoteResult.UNKNOWN
    assert not [m for m in lab.pass_time(60_000) if isinstance(m, VoteRequest)]


def test_log_without_a_hard_state_to_match_is_recovering() -> None:
    assert Lab(disk=disk_of([1, 4]), term=2).raft.recovering
    assert Lab(disk=disk_of([1, 4]), term=2).raft.term == 4
    assert not Lab(disk=disk_of([1, 4]), term=4).raft.recovering


def test_recovering_follower_is_counted_for_nothing() -> None:
    lab = Lab()
    frame = appends_of(lab.elect())[0]
    lab.take(answer_to(frame, 200, end_index=0, recovering=True))
    assert lab.raft.commit_index == -1
    lab.pass_time(1600)
    assert lab.raft.role is Role.CANDIDATE


def test_recovery_ends_with_what_was_committed_without_the_member() -> None:
    """Entries that it may have acknowledged and lost are in its log by then."""
    lab = Lab(term=1, recovering=True)
    runs = run_of([1, 1])
    lab.take(append(1, joined(runs), EntryId(-1, -1), commit_index=1))
    (answer,) = (m for m in lab.take(beat(1)) if isinstance(m, HeartBeatResponse))
    lab.take(beat(1, commit_index=1, read_round=7))
    assert lab.raft.recovering
    # What the leader heard was said by a process before this one, with another disk perhaps.
    lab.take(beat(1, commit_index=1, read_round=0, life=answer.life + 1))
    lab.take(beat(1, commit_index=1, read_round=0))
    assert lab.raft.recovering and answer.life
    lab.take(beat(1, commit_index=1, read_round=0, life=answer.life))
    assert not lab.raft.recovering
    # Its vote of this term may be forgotten; it is given to the leader for good.
    assert lab.hard_state == HardState(1, "n1")


def test_leader_tells_a_recovering_member_nothing_that_it_may_have_counted() -> None:
    lab = Lab()
    frames = lab.elect()
    lab.take(beat_answer(1, "n2", recovering=True, life=7))
    lab.take(acked(appends_of(frames, "n1")[0]))

    def told() -> list[tuple[int, int | None, int]]:
        lab.take(beat_answer(1, "n1"))
        beats = [m for m in lab.pass_time(501) if isinstance(m, HeartBeatRequest)]
        return [(m.read_round, m.commit_index, m.life) for m in beats if m.target == "n2"]

    assert told() == [(0, None, 7)]
    lab.raft.propose([b"a"], lab.now_ms)
    lab.take(acked(appends_of(lab.work(), "n1")[0]))
    assert told() == [(0, 1, 7)]
    # Another process, which may have lost more since.
    lab.take(beat_answer(1, "n2", recovering=True, life=8))
    assert told() == [(0, None, 8)]
    lab.raft.propose([b"b"], lab.now_ms)
    lab.take(acked(appends_of(lab.work(), "n1")[0]))
    assert told() == [(0, 2, 8)]


# -- the face


def test_single_member_commits_what_is_persisted() -> None:
    lab = Lab(member_count=1)
    lab.raft.tick(0.0)
    lab.work()
    assert (lab.raft.role, lab.raft.commit_index) == (Role.LEADER, 0)
    lab.raft.propose([b"a", b"b"], 0.0)
    lab.work(persist=False)
    assert lab.raft.commit_index == 0
    lab.raft.persisted(EntryId(1, 2))
    lab.work()
    assert lab.committed == [(0, 1), (1, 3)]


def test_proposal_to_a_follower_names_the_leader() -> None:
    lab = Lab(term=2)
    lab.take(beat(2, sender="n2"))
    with pytest.raises(NotLeaderError) as caught:
        lab.raft.propose([b"a"], 0.0)
    assert (caught.value.leader_id, caught.value.term) == ("n2", 2)


def test_proposals_are_bounded_in_number() -> None:
    lab = Lab(proposals_max=3)
    lab.elect()
    lab.raft.propose([b"a", b"b"], 0.0)
    with pytest.raises(ProposalDroppedError) as caught:
        lab.raft.propose([b"c"], 0.0)
    assert (caught.value.reason, caught.value.value, caught.value.limit) == (
        DropReason.PENDING_FULL,
        4,
        3,
    )
    assert lab.raft.last_index == 2


def test_proposals_are_bounded_in_bytes() -> None:
    lab = Lab(proposal_bytes_max=300)
    lab.elect()
    lab.raft.propose([b"." * 100], 0.0)
    with pytest.raises(ProposalDroppedError) as caught:
        lab.raft.propose([b"." * 100], 0.0)
    assert caught.value.reason is DropReason.BYTES_PENDING


def test_room_returns_with_the_commit_index() -> None:
    lab = Lab(proposal_bytes_max=300)
    (frame,) = appends_of(lab.elect())
    lab.raft.propose([b"." * 100], 0.0)
    (frame,) = appends_of(lab.take(acked(frame)))
    with pytest.raises(ProposalDroppedError):
        lab.raft.propose([b"." * 200], 0.0)
    lab.take(acked(frame))
    assert lab.raft.propose([b"." * 200], 0.0)


def test_entry_larger_than_a_segment_is_refused_before_anything_is_appended() -> None:
    lab = Lab()
    lab.elect()
    with pytest.raises(EntryTooLargeError):
        lab.raft.propose([b"a", b"." * (4096 - 48 - 7)], 0.0)
    assert lab.raft.last_index == 0
    lab.raft.propose([b"." * (4096 - 48 - 8)], 0.0)


def test_batch_over_a_segment_border_comes_back_as_two_runs() -> None:
    lab = Lab()
    lab.elect()
    runs = lab.raft.propose([b"." * 1500] * 3, 0.0)
    assert [(run.first_index, run.count, run.position) for run in runs] == [
        (1, 2, runs[0].position),
        (3, 1, 4096),
    ]
    lab.work()


def test_no_bodies_are_no_entries() -> None:
    lab = Lab()
    lab.elect()
    assert lab.raft.propose([], 0.0) == []


def test_message_for_another_member_is_not_read() -> None:
    lab = Lab(member_count=1)
    lab.raft.receive(beat(9), 0.0)
    lab2 = Lab()
    message = HeartBeatRequest(term=9, sender="n1", target="n2")
    assert lab2.take(message) == []
    assert lab2.raft.term == 0


def test_retention_and_checkpoint_give_the_commit_index_at_the_start() -> None:
    assert Lab([1, 1, 1], term=1, checkpoint=1).raft.commit_index == 1
    assert Lab([1, 1, 1], term=1, checkpoint=9).raft.commit_index == 2


def test_role_changes_are_told_with_readiness() -> None:
    lab = Lab()
    frames = lab.elect()
    lab.raft.receive(acked(appends_of(frames)[0]), lab.now_ms)
    ready = lab.raft.take_ready()
    assert ready is not None and ready.role is not None
    assert (ready.role.role, ready.role.leader_id, ready.role.is_ready_leader) == (
        Role.LEADER,
        "n0",
        True,
    )


def test_nothing_to_do_is_none() -> None:
    lab = Lab()
    lab.work()
    assert lab.raft.take_ready() is None
