"""Many seeds: run one after the other, what they met counted, failures told with their replay.

The floors say what a batch must have met, for a hundred thousand simulated seconds; a simulator
that no longer meets something is as bad as one that fails.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.world import World

# Times met in 100,000 simulated seconds at least.
FLOORS: Final[Mapping[str, int]] = {
    "election": 8_000,
    "two leaders alive in different terms": 50,
    "truncation": 300,
    "truncation of 3 or more entries": 100,
    "truncation across segments": 20,
    "old-term entry committed": 20_000,
    "reset at begin index": 50,
    "segments dropped": 300,
    "torn record at tail": 250,
    "unsynced writes lost": 1_000,
    "stop inside an operation": 1_000,
    "crash in replace of identity": 20,
    "crash in replace of currterm": 20,
    "all nodes power-cut at once": 4_000,
    "power cut": 9_000,
    "kill": 10_000,
    "pause": 4_000,
    "fsync EIO hit": 1_500,
    "ENOSPC hit": 3_000,
    "clock jump while leading": 500,
    "rot in data": 100,
    "rot in index": 100,
    "rot in CQ": 30,
    "rot in checkpoint": 50,
    "rot in vote file": 50,
    "damage found at start": 50,
    "disk wiped": 800,
    "RECOVERING entered": 800,
    "RECOVERING left": 700,
    "CQ rebuilt": 2_000,
    "consumer offset read from new leader": 2_000,
    "bridge partition with leader on one arm": 100,
}


@dataclass(slots=True)
class Failure:
    """A seed that did not hold."""

    seed: int
    # Kind and facts, as the first line of a report.
    reason: str
    # Plan, last events, state and replay.
    details: str


@dataclass(slots=True)
class BatchReport:
    """What a batch of seeds came to."""

    seed_count: int = 0
    simulated_ms: float = 0.0
    event_count: int = 0
    elapsed_s: float = 0.0
    ack_count: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: "BatchReport") -> None:
        """Takes in what another process ran meanwhile."""
        self.seed_count += other.seed_count
        self.simulated_ms += other.simulated_ms
        self.event_count += other.event_count
        self.ack_count += other.ack_count
        self.elapsed_s = max(self.elapsed_s, other.elapsed_s)
        self.failures += other.failures
        for name, count in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def below_floors(self) -> dict[str, tuple[int, int]]:
        """Returns what was met too rarely: the count, and the floor for this batch."""
        scale = self.simulated_ms / 1e8
        floors = {name: int(floor * scale) for name, floor in FLOORS.items()}
        return {
            name: (self.counts.get(name, 0), floor)
            for name, floor in floors.items()
            if self.counts.get(name, 0) < floor
        }

    @property
    def hours_per_minute(self) -> float:
        """Simulated hours for each minute that passed."""
        return self.simulated_ms / 3.6e6 / max(self.elapsed_s / 60, 1e-9)


def run_batch(seeds: Iterable[int], *, seconds_max: float | None = None) -> BatchReport:
    """Runs seeds, until they or the time are over.

    Args:
        seeds: in order.
        seconds_max: of real time; None: all seeds.
    """
    report = BatchReport()
    began = time.monotonic()
    for seed in seeds:
        if seconds_max is not None and time.monotonic() - began > seconds_max:
            break
        run_one(seed, report)
    report.elapsed_s = time.monotonic() - began
    return report


def run_one(seed: int, report: BatchReport) -> None:
    """Runs one seed into a report."""
    world = World(Plan.draw(seed))
    try:
        world.run()
    except Exception as error:
        details = "\n".join(
            (str(world.plan), *world.notes, world.describe())
            + (f"repeat with: ledgermq simulate --seed {seed}",)
        )
        report.failures.append(Failure(seed, f"{type(error).__name__}: {error}", details))
    report.seed_count += 1
    report.simulated_ms += world.timeline.now_ms
    report.event_count += world.timeline.event_count
    report.ack_count += len(world.history.acks)
    for name, count in world.counts.items():
        report.counts[name] = report.counts.get(name, 0) + count
