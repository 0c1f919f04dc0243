"""Many seeds: run one after the other, what they met counted, failures told with their replay.

What a batch must have met stands in coverage.py.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from ledgermq.testing.simulation.coverage import floors_of
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.world import World


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
        """Takes in a part of the batch; the time is the owner's to set."""
        self.seed_count += other.seed_count
        self.simulated_ms += other.simulated_ms
        self.event_count += other.event_count
        self.ack_count += other.ack_count
        self.failures += other.failures
        for name, count in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def below_floors(self) -> dict[str, tuple[int, int]]:
        """Returns what was met too rarely: the count, and the floor for this batch."""
        return {
            name: (self.counts.get(name, 0), floor)
            for name, floor in floors_of(self.seed_count).items()
            if self.counts.get(name, 0) < floor
        }

    @property
    def hours_per_minute(self) -> float:
        """Simulated hours for each minute that passed."""
        return self.simulated_ms / 3.6e6 / max(self.elapsed_s / 60, 1e-9)


def run_batch(
    seeds: Iterable[int], *, deadline: float | None = None, days: float | None = None
) -> BatchReport:
    """Runs seeds, until they or the time are over.

    Args:
        seeds: in order.
        deadline: on the monotonic clock of the machine, after which no seed is begun; None: all.
        days: simulated days of chaos in each run; None: as long as each seed says.
    """
    report = BatchReport()
    for seed in seeds:
        if deadline is not None and time.monotonic() > deadline:
            break
        run_one(seed, report, days=days)
    return report


def run_one(seed: int, report: BatchReport, *, days: float | None = None) -> None:
    """Runs one seed into a report."""
    world = World(Plan.draw(seed) if days is None else Plan.draw_days(seed, days))
    length = "" if days is None else f" --days {days:g}"
    try:
        world.run()
    except Exception as error:
        details = "\n".join(
            (str(world.plan), *world.notes, world.describe())
            + (f"repeat with: ledgermq simulate --seed {seed}{length}",)
        )
        report.failures.append(Failure(seed, f"{type(error).__name__}: {error}", details))
    report.seed_count += 1
    report.simulated_ms += world.timeline.now_ms
    report.event_count += world.timeline.event_count
    report.ack_count += len(world.history.acks)
    for name, count in world.counts.items():
        report.counts[name] = report.counts.get(name, 0) + count
