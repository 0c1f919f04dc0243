"""Members without time: who comes late itself blames nobody, and waits as the machine lets it."""

import random

from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.starvation import Ration
from tests.simulation.stage import Stage, group

# A member that is replaced when it should is replaced within this.
_REPLACED_MS = 4_000.0
_TWENTIETH = Ration(0.05, 50.0, 200.0)


def group_that_stood_still() -> None:
    """All processes are stopped for longer than any patience, and go on: so does the leader."""
    stage = group()
    term = stage["n0"].raft.term
    # Nothing is under way.
    stage.run(50)
    for _ in range(3):
        for member_id in stage.ids:
            stage[member_id].pause()
        stage.run(7_000)
        for member_id in ("n1", "n2", "n0"):
            stage[member_id].resume()
        stage.run(3_050)
    demand(stage.is_leader("n0"), "I15 the leader went")
    demand(stage["n0"].raft.term == term, "I15 an election nobody needed", stage["n0"].raft.term)
    stage.send_all("n0")
    stage.settle()


def starved_group() -> None:
    """All get a twentieth of their time: the leader stays, and a dead one is replaced."""
    stage = group()
    _starve(stage, 180_000.0)
    stage.run(120_000)
    term = max(stage[member_id].raft.term for member_id in stage.ids)
    demand(term < 3, "I15 elections that nobody needed", term)
    leader_id = next(member_id for member_id in stage.ids if stage.is_leader(member_id))
    stage.kill(leader_id)
    stage.run(40_000)
    left = [member_id for member_id in stage.ids if member_id != leader_id]
    demand(any(stage.is_leader(i) for i in left), "I15 nobody leads", stage.world.describe())
    stage.run(20_000)
    stage.settle()


def group_that_has_its_time_again() -> None:
    """What a group has waited while it starved is forgotten two minutes later."""
    stage = group()
    _starve(stage, 60_000.0)
    stage.run(180_000)
    leader_id = next(member_id for member_id in stage.ids if stage.is_leader(member_id))
    others = [member_id for member_id in stage.ids if member_id != leader_id]
    stage.favorite = others[0]
    stage.isolate(leader_id)
    stage.run(_REPLACED_MS)
    demand(any(stage.is_leader(i) for i in others), "I15 not replaced", stage.world.describe())
    stage.settle()


def _starve(stage: Stage, length_ms: float) -> None:
    rng = random.Random(1)
    for member in stage.world.members.values():
        starvation = stage.world.faults.starvation
        starvation.starve(member, _TWENTIETH, length_ms, random.Random(rng.getrandbits(48)))
