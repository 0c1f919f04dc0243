"""Making a failure smaller: fewer kinds of faults, then fewer faults of the schedule.

A smaller run counts when it breaks the same statement. Kinds of faults are taken away one by one;
then halves, quarters and so on of the schedule, as long as that works (ddmin).
"""

from collections.abc import Sequence
from typing import NamedTuple

from ledgermq.testing.simulation.faults import Fault, draw_schedule
from ledgermq.testing.simulation.plan import FAULT_KINDS, Plan
from ledgermq.testing.simulation.world import World


class Shrunk(NamedTuple):
    """The smallest failing run that was found."""

    plan: Plan
    schedule: list[Fault]
    reason: str
    run_count: int


def reason_of(plan: Plan, schedule: Sequence[Fault]) -> str | None:
    """Returns how a run fails, None when it does not."""
    try:
        World(plan, schedule).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def shrink(plan: Plan, *, runs_max: int = 200) -> Shrunk | None:
    """Returns a smaller run that breaks the same statement; None when the plan does not fail."""
    schedule = draw_schedule(plan)
    reason = reason_of(plan, schedule)
    if reason is None:
        return None
    kind = _kind(reason)
    run_count = 1
    for name in FAULT_KINDS:
        smaller = plan.without(name)
        left = [fault for fault in schedule if fault.kind != name]
        if smaller == plan and len(left) == len(schedule):
            continue
        found = reason_of(smaller, left)
        run_count += 1
        if found is not None and _kind(found) == kind:
            plan, schedule, reason = smaller, left, found
    parts = 2
    while len(schedule) > 1 and parts <= len(schedule) and run_count < runs_max:
        size = -(-len(schedule) // parts)
        for start in range(0, len(schedule), size):
            left = schedule[:start] + schedule[start + size :]
            found = reason_of(plan, left)
            run_count += 1
            if found is not None and _kind(found) == kind:
                schedule, reason, parts = left, found, max(parts - 1, 2)
                break
        else:
            parts = len(schedule) + 1 if size == 1 else min(parts * 2, len(schedule))
    return Shrunk(plan, schedule, reason, run_count)


def _kind(reason: str) -> str:
    """The number of the statement, or the class of the error."""
    head, _, facts = reason.partition(": ")
    return facts.split(" ", 1)[0] if head == "Violation" else head
