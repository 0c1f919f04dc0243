"""Questions to a leader: what proves that it led when they came (Raft thesis 6.4)."""

import random

import pytest

from ledgermq.dledger.confirmations import READ_BEAT_MS, ReadPoint
from ledgermq.dledger.messages import (
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PeerDialect,
    PushResponse,
)
from tests.unit.dledger.lab import Lab, acked, appends_of, beat
from tests.unit.dledger.test_transfer import leading


def beats_of(messages: list[Message]) -> list[HeartBeatRequest]:
    return [m for m in messages if isinstance(m, HeartBeatRequest)]


def echo(
    request: HeartBeatRequest, *, term: int | None = None, recovering: bool = False
) -> HeartBeatResponse:
    return HeartBeatResponse(
        term=request.term if term is None else term,
        sender=request.target,
        target="n0",
        code=DLedgerCode.SUCCESS,
        round=request.read_round,
        recovering=recovering,
        life=7 if recovering else 0,
    )


def settled(**changes: object) -> Lab:
    """A leader of three or more whose rounds are all answered."""
    lab = leading(**changes)
    for request in beats_of(lab.pass_time(lab.raft.config.timing.heart_beat_ms)):
        lab.take(echo(request))
    return lab


def outcome(lab: Lab, point: ReadPoint) -> bool | None:
    return lab.raft.reads.find_outcome(point, lab.raft.commit_index)


def asked(lab: Lab) -> tuple[ReadPoint, list[HeartBeatRequest]]:
    """A question, and the round that begins for it."""
    lab.now_ms += READ_BEAT_MS
    point = lab.raft.reads.ask(lab.now_ms)
    assert outcome(lab, point) is None
    return point, beats_of(lab.pass_time(0))


def test_a_round_begins_at_once_and_one_answer_of_three_members_confirms() -> None:
    lab = settled()
    point, requests = asked(lab)
    assert [request.target for request in requests] == ["n1", "n2"]
    assert outcome(lab, point) is None
    lab.take(echo(requests[1]))
    assert outcome(lab, point) is True


def test_five_members_need_two_answers() -> None:
    lab = Lab(member_count=5)
    out = lab.elect()
    for request in appends_of(out, "n1") + appends_of(out, "n2"):
        lab.take(acked(request))
    for request in beats_of(lab.pass_time(500)):
        lab.take(echo(request))
    point, requests = asked(lab)
    lab.take(echo(requests[0]))
    lab.take(echo(requests[0]))
    assert outcome(lab, point) is None
    lab.take(echo(requests[3]))
    assert outcome(lab, point) is True


def test_a_round_that_began_before_the_question_proves_nothing() -> None:
    lab = settled()
    first = beats_of(lab.pass_time(lab.raft.config.timing.heart_beat_ms))
    point = lab.raft.reads.ask(lab.now_ms)
    # On its way: no other round begins before it is answered.
    assert beats_of(lab.pass_time(100)) == []
    out = lab.take(echo(first[0]))
    assert outcome(lab, point) is None
    (second, _) = beats_of(out + lab.pass_time(0))
    assert second.read_round == first[0].read_round + 1
    lab.take(echo(second))
    assert outcome(lab, point) is True


def test_questions_of_one_turn_share_a_round_and_rounds_keep_their_distance() -> None:
    lab = settled()
    lab.now_ms += READ_BEAT_MS
    points = [lab.raft.reads.ask(lab.now_ms) for _ in range(100)]
    requests = beats_of(lab.pass_time(0))
    assert len(requests) == 2
    lab.take(echo(requests[0]))
    assert all(outcome(lab, point) for point in points)
    rounds = 0
    for _ in range(100):
        lab.raft.reads.ask(lab.now_ms)
        requests = beats_of(lab.pass_time(1))
        rounds += len(requests) // 2
        for request in requests:
            lab.take(echo(request))
    assert 15 <= rounds <= 100 // READ_BEAT_MS


def test_lost_answers_are_made_up_for_by_the_next_regular_round() -> None:
    lab = settled()
    point, lost = asked(lab)
    assert lost and beats_of(lab.pass_time(lab.raft.config.timing.heart_beat_ms - 1)) == []
    requests = beats_of(lab.pass_time(1))
    lab.take(echo(requests[0]))
    assert outcome(lab, point) is True


def test_an_entry_appended_behind_the_question_and_committed_proves_it() -> None:
    lab = settled()
    lab.raft.propose([b"before"], lab.now_ms)
    before = appends_of(lab.work(), "n1")
    point = lab.raft.reads.ask(lab.now_ms)
    lab.take(acked(before[0]))
    assert lab.raft.commit_index == lab.raft.last_index
    # Acknowledged, perhaps, before the question came.
    assert outcome(lab, point) is None
    lab.raft.propose([b"behind"], lab.now_ms)
    for request in appends_of(lab.work(), "n1"):
        lab.take(acked(request))
    assert outcome(lab, point) is True


def test_answers_of_another_term_and_of_rounds_that_never_were_count_for_nothing() -> None:
    lab = settled()
    point, requests = asked(lab)
    lab.take(echo(requests[0], term=requests[0].term - 1))
    lab.raft.reads.echoed("n1", point.round + 1)
    assert outcome(lab, point) is None


def test_a_member_that_recovers_counts_for_nothing() -> None:
    lab = settled()
    point, requests = asked(lab)
    lab.take(echo(requests[0], recovering=True))
    assert outcome(lab, point) is None
    lab.take(echo(requests[1]))
    assert outcome(lab, point) is True


@pytest.mark.parametrize("code", [DLedgerCode.EXPIRED_TERM, DLedgerCode.UNKNOWN_GROUP])
def test_a_refusal_is_no_answer(code: DLedgerCode) -> None:
    lab = settled()
    point, requests = asked(lab)
    refusal = HeartBeatResponse(
        term=point.term, sender="n1", target="n0", code=code, round=requests[0].read_round
    )
    lab.take(refusal)
    assert outcome(lab, point) is None


def test_the_end_of_the_leadership_is_told_and_its_answers_are_void_in_the_next_one() -> None:
    lab = settled()
    point, requests = asked(lab)
    lab.take(beat(point.term + 1))
    assert outcome(lab, point) is False
    lab.take(echo(requests[0]))
    assert outcome(lab, point) is False
    lab.pass_time(3000)
    lab.elect()
    later = lab.raft.reads.ask(lab.now_ms)
    # Rounds are counted from 1 again; what was answered in the term before is forgotten.
    assert later.term > point.term and later.round <= point.round
    assert outcome(lab, later) is None and outcome(lab, point) is False


def test_a_member_that_is_its_whole_group_knows_it_at_once() -> None:
    lab = Lab(member_count=1)
    lab.pass_time(10)
    assert lab.raft.is_ready_leader
    assert outcome(lab, lab.raft.reads.ask(lab.now_ms)) is True


def test_answers_of_java_members_count_by_the_request_they_come_with() -> None:
    lab = Lab(dialect=PeerDialect.JAVA)
    out = lab.elect()
    for request in appends_of(out, "n1"):
        lab.take(acked(request))
    # Java followers of a new leader are compared first.
    for _ in range(3):
        for message in lab.pass_time(2000):
            if isinstance(message, HeartBeatRequest):
                lab.take(echo(message))
    point, requests = asked(lab)
    lab.take(echo(requests[0]))
    assert outcome(lab, point) is True


def test_an_early_round_does_not_count_as_lateness_of_the_member() -> None:
    """Questions come between turns, and would make an idle leader seem late by the idle time."""
    lab = settled()
    for _ in range(200):
        lab.now_ms += 300
        lab.raft.reads.ask(lab.now_ms)
        lab.raft.deadline_ms()
        for request in beats_of(lab.pass_time(0.5)):
            lab.take(echo(request))
    assert lab.raft._pace.stretch(lab.raft.config.timing) == 1.0


def test_nothing_is_confirmed_that_no_majority_could_know() -> None:
    """Drawn histories of answers, judged by the definition."""
    rng = random.Random(5)
    for _ in range(200):
        lab = settled()
        seen: dict[str, list[tuple[float, int]]] = {"n1": [], "n2": []}
        sent: dict[int, float] = {}
        on_way: list[HeartBeatRequest] = []
        points: list[tuple[float, ReadPoint]] = []
        for _ in range(30):
            step = rng.randrange(3)
            if step == 0:
                points.append((lab.now_ms, lab.raft.reads.ask(lab.now_ms)))
            new = beats_of(lab.pass_time(rng.choice((0, 1, 7, 200))))
            for request in new:
                sent[request.read_round] = lab.now_ms
            on_way += new
            if step == 1 and on_way:
                request = on_way.pop(rng.randrange(len(on_way)))
                seen[request.target].append((sent[request.read_round], request.read_round))
                lab.take(echo(request))
        if lab.raft.is_ready_leader:
            for asked_ms, point in points:
                rounds = [n for answers in seen.values() for at_ms, n in answers]
                is_known = any(n >= point.round and sent[n] >= asked_ms for n in rounds)
                assert outcome(lab, point) in ((True,) if is_known else (None,))


def test_pushes_that_are_refused_confirm_nothing() -> None:
    lab = settled()
    point = lab.raft.reads.ask(lab.now_ms)
    lab.raft.propose([b"x"], lab.now_ms)
    request = appends_of(lab.work(), "n1")[0]
    refused = acked(request)
    refused.code = DLedgerCode.INCONSISTENT_LEADER
    assert isinstance(refused, PushResponse)
    lab.take(refused)
    assert outcome(lab, point) is None
