"""Power cuts of all members at once, again and again: the simulated half of fault/power_cuts.py.

    python -m tests.simulation.blackouts [--seeds 1000] [--seed 0]

No disk is lost and nothing rots; what was not synced is, in part or whole, and machines stop inside
their writes. So whatever was cut, and when: as soon as all members run again, one leads, all count,
and all hold the same (I15), with everything that was acknowledged (I17).
"""

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import replace

from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.world import World


def draw(seed: int) -> Plan:
    """Returns the plan of a seed: a few of its cuts come before the group has met."""
    plan, rng = Plan.draw(seed), random.Random(f"blackouts {seed}")
    return replace(
        plan,
        member_count=max(plan.member_count, 3),
        is_sync_flush=True,
        java_ids=(),
        chaos_ms=rng.choice((1_000.0, 4_000.0, 15_000.0)),
        fault_every_ms=rng.choice((150.0, 700.0, 2_500.0)),
        fault_weights=(("power_all", 4.0), ("power", 1.0), ("stop", 1.0), ("stop_inside", 1.0)),
        trigger_chance=0.0,
        strand_chance=0.0,
        victims=(),
    )


def run(seed: int) -> dict[str, int]:
    """Runs a seed; returns what it met.

    Raises:
        Violation: a statement does not hold; it is noted what the members were like.
    """
    world = World(draw(seed))
    try:
        world.run()
    except Exception as error:
        error.add_note("\n".join((f"seed {seed}", str(world.plan), *world.notes)))
        error.add_note(world.describe())
        raise
    return world.counts


def main() -> None:
    """Runs many; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun, met = time.monotonic(), Counter[str]()
    for seed in range(options.seed, options.seed + options.seeds):
        met.update(run(seed))
    sys.stdout.write(
        f"{options.seeds} groups, {met['all nodes power-cut at once']:,} cuts of all members,"
        f" {met['power cut']:,} power cuts, {met['stopped in order']:,} stops in order,"
        f" {met['unsynced writes lost']:,} with writes lost, {met['election']:,} elections: each"
        f" group whole in the end, in {time.monotonic() - begun:.0f} s\n"
    )


if __name__ == "__main__":
    main()
