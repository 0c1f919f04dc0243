"""Which entries the core asks retention to keep, and for whom."""

from ledgermq.dledger.messages import DLedgerCode, HeartBeatResponse
from tests.unit.dledger.lab import Lab, acked, appends_of, beat


def test_leader_keeps_what_a_live_follower_lacks() -> None:
    lab = Lab()
    out = lab.elect()
    assert lab.raft.needed_index(lab.now_ms) == 0
    for peer_id in ("n1", "n2"):
        for request in appends_of(out, peer_id):
            lab.take(acked(request))
    lab.raft.propose([b"a", b"b", b"c"], lab.now_ms)
    out = lab.work()
    assert lab.raft.needed_index(lab.now_ms) == 1
    for request in appends_of(out, "n1"):
        lab.take(acked(request))
    assert (lab.raft.commit_index, lab.raft.needed_index(lab.now_ms)) == (3, 1)
    silent_ms = 2 * lab.config.timing.heart_beat_ms
    lab.now_ms += silent_ms
    lab.take(HeartBeatResponse(term=1, sender="n1", target="n0", code=DLedgerCode.SUCCESS, round=1))
    assert lab.raft.needed_index(lab.now_ms) == 4, "n2 is not heard of any more"


def test_follower_keeps_what_is_not_committed() -> None:
    lab = Lab([1, 1, 1], term=1, checkpoint=1)
    lab.take(beat(1))
    assert lab.raft.needed_index(lab.now_ms) == 2
