"""Wall clocks of members that are far apart: who stores, and with which time."""

from ledgermq.dledger.messages import TransferRequest
from ledgermq.protocol.record import decode_record
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Stage, group

_YEAR_MS = 365 * 86_400_000
_LIMIT_MS = 60_000


def _compared(member_count: int = 3) -> Stage:
    return group(member_count, clock_skew_max_ms=_LIMIT_MS)


def _last_store_time(stage: Stage, member_id: str) -> int:
    """Of the last record in a member's log."""
    store = stage[member_id].store
    assert store is not None
    (body,) = store.read(store.last_index, 1).bodies()
    return decode_record(bytes(body)).store_timestamp


def _is_right(stage: Stage, reader_id: str, judge_id: str) -> bool:
    """Whether the last store time is that of a member's clock."""
    return abs(_last_store_time(stage, reader_id) - stage[judge_id].wall_ms()) <= _LIMIT_MS


def leader_whose_clock_jumps_ahead() -> None:
    """n0 leads and its clock jumps by a year: what it stores at that moment has the majority's
    time, it takes no messages and hands over.
    """
    stage = _compared()
    stage["n0"].wall_offset_ms += _YEAR_MS
    stage.send("n0")
    stage.run(20)
    demand(_is_right(stage, "n0", "n1"), "I38 stored with the time of a wrong clock")
    stage.until(lambda: stage.serves("n1") or stage.serves("n2"), "n0 hands over")
    leader_id = "n1" if stage.serves("n1") else "n2"
    stage.send_all(leader_id, 3)
    demand(_is_right(stage, leader_id, "n1"), "I38 stored with the time of a wrong clock")
    stage.settle()


def leader_with_a_wrong_clock_that_cannot_hand_over() -> None:
    """It takes no messages, and says why; with its clock put right it takes them again."""
    stage = _compared()
    lost = [stage.hold(TransferRequest, "n0", member_id) for member_id in ("n1", "n2")]
    stage["n0"].wall_offset_ms -= _YEAR_MS
    stage.run(3_000)
    broker = stage["n0"].broker
    assert broker is not None
    before = stage.acked_count
    stage.send("n0")
    stage.run(500)
    demand(stage.is_leader("n0") and stage.acked_count == before, "n0 leads and takes nothing")
    reason = str(broker.leadership.refusal())
    demand("31536000 s behind" in reason and "ledgerClockSkewMax" in reason, "it says why", reason)
    stage["n0"].wall_offset_ms += _YEAR_MS
    stage.until(lambda: broker.leadership.takes_messages, "n0 takes messages again")
    # The attempt to hand over that was under way ends.
    stage.run(4_000)
    for held in lost:
        held.stop()
    stage.send_all("n0")
    stage.settle()


def follower_with_a_wrong_clock() -> None:
    """It is reported by all, and takes no leadership over."""
    stage = _compared()
    stage["n2"].wall_offset_ms += _YEAR_MS
    stage.run(2_000)
    for member_id in stage.ids:
        broker = stage[member_id].broker
        assert broker is not None
        demand("31536000 s" in broker.leadership.clock_alarm, "each member reports it", member_id)
    member = stage["n0"]
    member.enter(lambda: member.replica and member.replica.transfer("n2"))
    stage.run(2_000)
    demand(stage.is_leader("n0"), "n2 declines")
    stage.send_all("n0")
    stage.settle()


def log_that_ends_in_the_future() -> None:
    """All clocks are a year ahead, and are put right: store times go back with them, on this
    leader and on the next.
    """
    stage = _compared()
    for member_id in stage.ids:
        stage[member_id].wall_offset_ms += _YEAR_MS
    stage.run(1_500)
    stage.until(lambda: stage.serves("n0"), "n0 serves")
    stage.send_all("n0", 2)
    demand(_is_right(stage, "n0", "n0"), "stored with the time that all clocks have")
    for member_id in stage.ids:
        stage[member_id].wall_offset_ms -= _YEAR_MS
    stage.run(1_500)
    stage.until(lambda: stage.serves("n0"), "n0 serves")
    stage.send_all("n0", 2)
    demand(_is_right(stage, "n0", "n0"), "I38 pinned to the time of the wrong clocks")
    stage.holds_all(*stage.ids)
    stage.hand_over("n0", "n1")
    stage.send_all("n1")
    demand(_is_right(stage, "n1", "n1"), "I38 pinned to the time of the wrong clocks")
    stage.settle()


def two_members_whose_clocks_differ() -> None:
    """No majority says which is right: both go on, and report it."""
    stage = _compared(2)
    stage["n0"].wall_offset_ms += _YEAR_MS
    stage.run(2_000)
    stage.send_all("n0")
    broker = stage["n1"].broker
    assert broker is not None
    demand("no majority" in broker.leadership.clock_alarm, "n1 reports it")
    stage["n0"].wall_offset_ms -= _YEAR_MS
    stage.run(2_000)
    demand(not broker.leadership.clock_alarm, "it is over")
    stage.settle()
