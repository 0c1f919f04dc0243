"""Groups on machines that have no time for them: members get a twentieth of their time.

    python -m tests.simulation.starved_groups [--seeds 100] [--seed 0]

All members starve, or all but one, or one alone. Nothing fails and nothing is lost; all is only
late. So terms must stay below one a minute; and as soon as the members have their time again, the
group is whole (I15).
"""

import argparse
import random
import sys
import time
from dataclasses import replace

from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.starvation import Ration
from ledgermq.testing.simulation.world import World

MINUTES = 10
# Slices from the shortest that a scheduler gives to a second; a gap is 19 times as long.
_SLICES_MS = ((5.0, 20.0), (50.0, 50.0), (50.0, 200.0), (50.0, 1_000.0), (1_000.0, 1_000.0))


def draw(seed: int) -> tuple[Plan, Ration, tuple[str, ...]]:
    """Returns the plan of a seed, what a starved member gets, and who starves."""
    plan, rng = Plan.draw(seed), random.Random(f"starved {seed}")
    plan = replace(
        plan,
        member_count=max(plan.member_count, 3),
        is_sync_flush=True,
        java_ids=(),
        chaos_ms=MINUTES * 60_000.0,
        delay_ms=rng.choice((0.5, 2.0, 10.0)),
        tail=0.0,
        loss=0.0,
        duplication=0.0,
        sync_ms=rng.choice((0.1, 2.0, 20.0)),
        fault_weights=(),
        trigger_chance=0.0,
        stop_chance=0.0,
        strand_chance=0.0,
        preferred_ids=(),
        victims=(),
        producer_count=1,
        queue_count=1,
        send_every_ms=4_000.0,
        pull_every_ms=4_000.0,
    )
    ration, count = Ration(0.05, *rng.choice(_SLICES_MS)), plan.member_count
    starved_count = rng.choice((count, count, count, count - 1, 1))
    return plan, ration, tuple(sorted(rng.sample(plan.ids, starved_count)))


def run(seed: int) -> int:
    """Runs a seed; returns the last term that somebody led while all starved.

    Raises:
        Violation: a statement does not hold; it is noted what the members were like.
    """
    plan, ration, starved_ids = draw(seed)
    world = World(plan, ())
    rng = random.Random(f"slices {seed}")
    for member_id in starved_ids:
        member, slices = world.members[member_id], random.Random(rng.getrandbits(48))
        world.faults.starvation.starve(member, ration, plan.chaos_ms, slices)
    terms: list[int] = []
    world.timeline.at(plan.chaos_ms - 1.0, lambda: terms.append(_term_of(world)))
    try:
        world.run()
        demand(terms[0] < MINUTES, "too many terms", ration, terms[0], MINUTES)
    except Exception as error:
        error.add_note("\n".join((f"seed {seed}", str(world.plan), *world.notes)))
        error.add_note(world.describe())
        raise
    return terms[0]


def _term_of(world: World) -> int:
    return max(member.raft.term for member in world.members.values() if member.raft is not None)


def main() -> None:
    """Runs many; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.monotonic()
    terms = [run(seed) for seed in range(options.seed, options.seed + options.seeds)]
    sys.stdout.write(
        f"{options.seeds} groups, {MINUTES} simulated minutes each with a twentieth of their time:"
        f" {sum(terms) / len(terms):.1f} terms on average, {max(terms)} at most,"
        f" in {time.monotonic() - begun:.0f} s\n"
    )


if __name__ == "__main__":
    main()
