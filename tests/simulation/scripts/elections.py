"""Elections: who may vote, who may lead, and what ends a leadership."""

from ledgermq.dledger.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    VoteRequest,
    VoteResponse,
)
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Stage, group

_FIVE = ("n0", "n1", "n2", "n3", "n4")
_YEAR_MS = 365 * 86_400_000
# What the disk is asked for while a term and then a vote are saved.
_STEPS = 8


def stop_inside_the_vote_file() -> None:
    """D2: wherever a machine stops while it saves a later term, it remembers its vote of before."""
    for step in range(1, _STEPS + 1):
        stage = Stage(member_count=5, java_ids=_FIVE)
        for target in ("n1", "n2"):
            stage.hold((HeartBeatRequest, AppendRequest, CompareRequest), "n0", target)
        # n0 leads the first term by the votes of n1 and n2; their logs stay empty.
        stage.split(("n0", "n1", "n2"), ("n3",), ("n4",))
        stage.start()
        stage.elect("n0")
        term = stage["n0"].raft.term
        # n4 raises the term of n2, and the machine stops.
        disk, first = stage["n2"].disk, stage["n2"].incarnation
        disk.stop_at = disk.step_count + step
        stage.favorite = "n4"
        stage.split(("n1", "n2", "n4"), ("n0",), ("n3",))
        stage.run(4_000)
        disk.stop_at = None
        # n3 has heard of nobody yet: it asks for a vote in the first term.
        demand(stage["n3"].raft.term <= term, "n3 is late", stage["n3"].raft.term)
        stage.favorite = "n3"
        stage.split(("n2", "n3"), ("n0",), ("n1",), ("n4",))
        stage.run(4_000)
        demand(stage["n2"].incarnation > first, "the machine stopped", step)


def candidate_with_a_present_term_and_an_old_log() -> None:
    """D16: the term of the log decides, not the one that its owner has heard of."""
    stage = group()
    stage.hand_over("n0", "n2")
    stage.holds_all("n0", "n1", "n2")
    stage.isolate("n2")
    stage.send("n2", 12)
    stage.lead("n0")
    stage.send_all("n0")
    stage.hold((AppendRequest, CompareRequest), "n0", "n2")
    stage.heal()
    term = stage["n0"].raft.term
    stage.until(lambda: stage["n2"].raft.term == term, "n2 hears of the term")
    stage.run(1_000)
    stage.kill("n0")
    stage.favorite = "n2"
    stage.run(4_000)
    demand(not stage.is_leader("n2"), "I6 n2 leads without what is committed")
    stage.lead("n1")
    stage.settle()


def candidate_that_cannot_win() -> None:
    """A member with a short log and little patience does not keep the others from electing."""
    stage = group()
    stage.isolate("n2")
    stage.send_all("n0", 3)
    stage.holds_all("n0", "n1")
    stage.favorite = "n2"
    stage.heal()
    stage.hold(AppendRequest, "n0", "n2")
    stage.restart("n0")
    stage.until(lambda: stage.serves("n0") or stage.serves("n1"), "n0 or n1 leads")
    stage.settle()


def leader_that_comes_back() -> None:
    """A deposed leader ends its leadership, at the latest when it hears of the next one."""
    stage = group()
    stage.isolate("n0")
    stage.send("n0")
    stage.lead("n1")
    stage.send_all("n1")
    stage.heal()
    stage.until(lambda: not stage.is_leader("n0"), "n0 gives up")
    stage.settle()


def member_with_a_higher_term() -> None:
    """D12: a lagging member of a higher term comes back, and the group goes on (Java's order)."""
    stage = group(java_ids=("n0", "n1", "n2"))
    stage.isolate("n2")
    stage.send_all("n0", 3)
    # A dead group of two raises its term again and again.
    stage.kill("n0")
    stage.split(("n1", "n2"), ("n0",))
    stage.favorite = "n2"
    stage.hold(VoteRequest, "n1", "n2")
    stage.run(8_000)
    demand(not stage.is_leader("n2"), "I6 n2 leads without what is committed")
    for held in stage.held:
        held.stop()
    stage.heal()
    stage.start("n0")
    stage.favorite = "n0"
    stage.until(lambda: stage.serves("n0") or stage.serves("n1"), "n0 or n1 leads")
    stage.settle()


def wall_clock_that_jumps() -> None:
    """D10: wall clocks jump by years, both ways, and elections come neither sooner nor later."""
    stage = group()
    term = stage["n0"].raft.term
    for jump_ms in (_YEAR_MS, -_YEAR_MS, 10 * _YEAR_MS, -10 * _YEAR_MS):
        for member_id in stage.ids:
            stage[member_id].wall_offset_ms += jump_ms
        stage.run(3_000)
        stage.send_all("n0")
    demand(stage["n0"].raft.term == term, "I15 a clock has begun an election")
    # Nor does a clock that was set back put off the election of another leader.
    for member_id in stage.ids:
        stage[member_id].wall_offset_ms -= _YEAR_MS
    stage.isolate("n0")
    stage.lead("n1")
    stage.settle()


def vote_answer_of_another_round() -> None:
    """A late answer to a round of votes counts for that round alone."""
    stage = group()
    stage.isolate("n0")
    late = stage.hold(VoteResponse, "n2", "n1", is_copy=True)
    asked = stage.hold(VoteRequest, "n1", "n2", lambda m: not m.pre_vote)
    stage.favorite = "n1"
    stage.until(lambda: bool(asked.letters), "n1 asks for a vote")
    term = stage["n1"].raft.term
    # n2 hears nothing of it; what it answered to the round before comes again.
    stage.isolate("n1")
    late.release()
    stage.run(10)
    stage.lead("n2")
    demand(stage["n2"].raft.term == term, "n2 leads the same term", term)
    stage.settle()
