"""A leader that cannot do its work (its disk is full) hands over, if there is somebody who can."""

from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import DLedgerCode, TransferRequest, TransferResponse
from ledgermq.dledger.transfer import UNFIT_PAUSE_MAX_MS, UNFIT_PAUSE_MIN_MS
from tests.unit.dledger.lab import Lab, acked, appends_of, beat
from tests.unit.dledger.test_transfer import answer_beats, asked, leading, pass_time_answering


def decline(lab: Lab, declines: bool = True) -> list[TransferRequest]:
    """Tells the member that it is not fit, and does what is due then."""
    lab.raft.preferred.set_unfit(declines, lab.now_ms)
    return asked(lab.pass_time(0))


def refuse(lab: Lab, request: TransferRequest) -> list[TransferRequest]:
    """The peer that was asked is not fit either."""
    lab.take(
        TransferResponse(
            term=request.term,
            sender=request.target,
            target="n0",
            code=DLedgerCode.TAKE_LEADERSHIP_FAILED,
            request_id=request.request_id,
        )
    )
    return asked(lab.pass_time(0))


def test_leader_asks_a_follower_that_holds_all_at_once() -> None:
    (request,) = decline(leading())
    assert (request.target, request.last_index) == ("n1", 0)


def test_one_that_cannot_lead_either_is_followed_by_the_next() -> None:
    lab = leading()
    (first,) = decline(lab)
    (second,) = refuse(lab, first)
    assert {first.target, second.target} == {"n1", "n2"}


def test_leader_leads_on_when_nobody_can_and_asks_ever_more_rarely() -> None:
    lab = leading()
    (first,) = decline(lab)
    (second,) = refuse(lab, first)
    assert refuse(lab, second) == []
    assert lab.raft.propose([b"x"], lab.now_ms) != []
    for peer_id in ("n1", "n2"):
        for append in appends_of(lab.work(), peer_id):
            lab.take(acked(append))
    times: list[float] = []
    for _ in range(3000):
        # As the driver tells it each time that it looks.
        lab.raft.preferred.set_unfit(True, lab.now_ms)
        requests = pass_time_answering(lab, 100, "n1", "n2")
        while requests:
            times += [lab.now_ms] if requests[0].target == "n1" else []
            requests = refuse(lab, requests[0])
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert len(times) <= 10
    assert gaps[0] >= 2 * UNFIT_PAUSE_MIN_MS
    assert UNFIT_PAUSE_MAX_MS <= max(gaps) <= UNFIT_PAUSE_MAX_MS + 2000
    assert (lab.raft.role, lab.raft.term) == (Role.LEADER, 1)


def test_leader_that_is_fit_again_asks_nobody_and_later_begins_anew() -> None:
    lab = leading()
    (first,) = decline(lab)
    (second,) = refuse(lab, first)
    refuse(lab, second)
    assert decline(lab, False) == []
    assert pass_time_answering(lab, 100_000, "n1", "n2") == []
    assert len(decline(lab)) == 1


def test_silent_follower_is_not_asked() -> None:
    lab = leading()
    for _ in range(12):
        answer_beats(lab, lab.pass_time(100), "n2")
    (request,) = decline(lab)
    assert request.target == "n2"


def test_one_that_did_not_answer_is_given_up_and_another_is_asked() -> None:
    lab = leading()
    (first,) = decline(lab)
    requests = pass_time_answering(lab, lab.config.transfer_timeout_ms + 200, "n1", "n2")
    assert [request.target for request in requests] == ["n2"] != [first.target]


def test_member_that_becomes_leader_all_the_same_hands_over_within_a_second_and_a_bit() -> None:
    lab = Lab()
    decline(lab)
    out = lab.elect()
    for peer_id in ("n1", "n2"):
        for request in appends_of(out, peer_id):
            out += lab.take(acked(request))
    assert lab.raft.is_ready_leader
    assert len(pass_time_answering(lab, 1100, "n1", "n2")) == 1


def test_follower_has_nothing_to_hand_over() -> None:
    lab = Lab([1, 1], term=1)
    lab.take(beat(1))
    assert decline(lab) == []
    assert asked(lab.pass_time(1000)) == []


def test_preferred_leader_that_is_not_fit_hands_over_too() -> None:
    lab = leading(preferred_leader_ids=("n0",))
    assert len(decline(lab)) == 1


def test_member_that_is_not_fit_stands_for_election_after_all_others() -> None:
    fit, unfit = Lab(), Lab()
    unfit.raft.set_unfit(True, unfit.now_ms)
    fit.until_asked(pre_vote=True)
    unfit.until_asked(pre_vote=True)
    assert unfit.now_ms > fit.now_ms + 4 * fit.raft.config.timing.vote_wait_max_ms


def test_follower_that_is_not_fit_lets_the_others_stand_first() -> None:
    fit, unfit = Lab(), Lab()
    unfit.raft.set_unfit(True, unfit.now_ms)
    for lab in (fit, unfit):
        lab.take(beat(1))
        assert lab.raft.role is Role.FOLLOWER
        lab.until_asked(pre_vote=True)
    assert unfit.now_ms > fit.now_ms + 4 * fit.raft.config.timing.vote_wait_max_ms
    # Where none of them can win it leads, so that they get the log, and hands over.
    unfit.elect()
    assert unfit.raft.role is Role.LEADER
