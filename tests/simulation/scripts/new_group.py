"""A new group that some of its members found: the last starts late, and the leader dies."""

from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Stage

# Two heart beats; what ends the recovery is said at once, so that this is far more than it takes.
_SOON_MS = 300.0
_FOUNDERS = ("n0", "n1")


def last_starter_counts_soon() -> None:
    """A member that starts late cannot tell a new group from one whose disk it lost.

    It counts when it holds what was committed without it, tens of milliseconds after it has the
    log of its leader; when that one dies then, the others go on.
    """
    stage = Stage(founder_ids=_FOUNDERS)
    stage.start("n0", "n1")
    stage.lead("n0")
    stage.start("n2")
    stage.until(lambda: stage.last_index("n2") >= stage.commit_index("n0"), "n2 has the log")
    began_ms = stage.world.timeline.now_ms
    stage.until(lambda: not _is_recovering(stage, "n2"), "n2 counts")
    took_ms = stage.world.timeline.now_ms - began_ms
    demand(took_ms < _SOON_MS, "n2 counts late", took_ms)
    stage.kill("n0")
    stage.lead("n1")
    stage.send_all("n1")
    stage.settle()


def leader_dies_before_the_last_starter_counts() -> None:
    """Until it counts, it gives no vote: the group waits for its leader, and loses nothing."""
    stage = Stage(founder_ids=_FOUNDERS)
    stage.start("n0", "n1")
    stage.lead("n0")
    stage.send_all("n0", 3)
    stage.start("n2")
    stage.until(lambda: _follows(stage, "n2"), "n2 meets its leader")
    demand(_is_recovering(stage, "n2"), "n2 recovers")
    stage.kill("n0")
    stage.favorite = "n1"
    stage.run(5_000)
    demand(not stage.is_leader("n1") and not stage.is_leader("n2"), "nobody leads")
    stage.start("n0")
    stage.until(lambda: not _is_recovering(stage, "n2"), "n2 counts")
    stage.settle()


def members_stopped_before_they_met() -> None:
    """A checkpoint beside an empty log told of a lost vote: two such members, and nobody leads."""
    stage = Stage()
    for member_id in stage.ids:
        stage.start(member_id)
        stage.stop_in_order(member_id)
    stage.start()
    stage.lead("n0")
    stage.send_all("n0")
    stage.settle()


def _follows(stage: Stage, member_id: str) -> bool:
    raft = stage[member_id].raft
    return raft is not None and raft.leader_id is not None


def _is_recovering(stage: Stage, member_id: str) -> bool:
    raft = stage[member_id].raft
    return raft is not None and raft.recovering
