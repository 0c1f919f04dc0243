"""Rules of access control and deliveries: in force, or passed, when that is committed, and known to
every member from then on.
"""

from ledgermq.testing.simulation.deliveries import deliver
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Stage, group


def _ask(stage: Stage, member_id: str) -> str:
    """An operator asks for other rules; returns what they are to be."""
    operator = stage.world.rules
    stage[member_id].enter(operator.ask, stage[member_id])
    stage.run(50)
    return f"rules-{operator._count}"


def _in_force(stage: Stage, member_id: str) -> str | None:
    found = stage[member_id].broker.rules.in_force
    return None if found is None else found["sealed"]


def _demand_rules(stage: Stage, sealed: str) -> None:
    for member_id in stage.ids:
        found = _in_force(stage, member_id)
        demand(found == sealed, "I46 other rules", member_id, found, sealed)


def rules_over_a_change_of_leader() -> None:
    """What a leader proposes alone is in force nowhere, then or later; two that are asked for at
    once follow one another.
    """
    stage = group(sweep_step_bytes=512)
    first = _ask(stage, "n0")
    demand(_in_force(stage, "n0") == first, "the first ones are in force")
    stage.isolate("n0")
    _ask(stage, "n0")
    _ask(stage, "n0")
    demand(_in_force(stage, "n0") == first, "I46 in force before it is committed")
    stage.lead("n1")
    demand(_in_force(stage, "n1") == first, "the new leader has what was committed")
    _ask(stage, "n1")
    stage.heal()
    for member_id in stage.ids:
        stage[member_id].sync_ms = 20.0
    operator = stage.world.rules
    stage["n1"].enter(operator.ask, stage["n1"])
    last = _ask(stage, "n1")
    stage.send_all("n1")
    stage.holds_all(*stage.ids)
    stage.run(1_000)
    _demand_rules(stage, last)
    stage.restart(*stage.ids)
    stage.lead("n2")
    stage.run(1_000)
    _demand_rules(stage, last)
    stage.settle()


def rules_that_only_a_sweep_tells() -> None:
    """The record of the change is gone by retention; a member on an empty disk has the rules with
    all else that a sweep tells.
    """
    stage = group(segment_bytes=8_192, sweep_step_bytes=512)
    known = _ask(stage, "n0")
    changed_at = stage.last_index("n0")
    demand(_in_force(stage, "n0") == known, "they are in force")
    for _ in range(24):
        stage.send_all("n0", body_bytes=1_500)
    state = stage["n0"].broker.state
    stage["n0"].enter(state.begin_sweep)
    stage.until(lambda: state.is_swept, "a sweep is over")
    stage.holds_all(*stage.ids)
    # The queues are flushed, so that nothing else keeps the log.
    stage.run(3_000)
    for _ in range(8):
        stage.clean("n0", "n1")
    stage.kill("n2")
    stage.world.faults.wipe(stage["n2"])
    stage.start("n2")
    stage.holds_all(*stage.ids)
    stage.run(1_000)
    demand(stage["n2"].store.first_index > changed_at, "retention took the record of the change")
    _demand_rules(stage, known)
    stage.restart(*stage.ids)
    _demand_rules(stage, known)
    stage.settle()


def deliveries_over_changes_of_leader() -> None:
    """A leader goes on where the log ends, whatever anybody has planned besides: I47."""
    stage = group(sweep_step_bytes=512)

    def take(member_id: str, *counts: tuple[int, int]) -> None:
        stage[member_id].enter(deliver, stage[member_id].broker, counts)
        stage.run(100)

    take("n0", (1, 2), (0, 1))
    take("n0", (0, 0), (1, 1))
    stage.isolate("n0")
    take("n0", (1, 3))
    stage.lead("n1")
    take("n1", (1, 1))
    stage.heal()
    stage.send_all("n1")
    stage.holds_all(*stage.ids)
    # With nothing but what a sweep tells, and with what stands in the files.
    stage["n1"].enter(stage["n1"].broker.state.begin_sweep)
    stage.until(lambda: stage["n1"].broker.state.is_swept, "a sweep is over")
    take("n1", (18, 2), (1, 1))
    stage.hand_over("n1", "n0")
    stage.until(lambda: stage.serves("n0"), "n0 serves")
    take("n0", (1, 1), (0, 2), (18, 1))
    stage.restart(*stage.ids)
    stage.lead("n2")
    take("n2", (1, 1), (0, 1), (18, 1))
    stage.settle()
