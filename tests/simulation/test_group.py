"""A whole group on production code: seeds, what they met, determinism.

Many more seeds: make simulate.
"""

import functools
import os
import subprocess
import sys
import threading

import pytest

from ledgermq.testing.simulation.batch import BatchReport, run_one
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.shrink import shrink
from ledgermq.testing.simulation.world import World, run_seed
from tests.simulation.mutation import planted
from tests.simulation.planted_mistakes import MUTATIONS

BATCHES = 10
SEEDS_PER_BATCH = 18
# What all batches together must have met, so that a quiet simulation is noticed.
FLOORS = {
    "election": 100,
    "kill": 300,
    "power cut": 300,
    "all nodes power-cut at once": 50,
    "stop inside an operation": 20,
    "truncation": 5,
    "reset at begin index": 1,
    "stopped in order": 50,
    "starved": 40,
    "all members starved at once": 30,
    "segments dropped": 10,
    "write EIO hit": 20,
    "fsync EIO hit": 20,
    "ENOSPC hit": 50,
    "unsynced writes lost": 30,
    "torn record at tail": 5,
    "RECOVERING left": 10,
    "CQ rebuilt": 50,
    "group born": 70,
    "birth brought by a leader": 50,
    "majority on empty disks": 3,
    "older store born": 2,
    "next format written": 2,
    "way back before the next format was written": 2,
}


@functools.cache
def report_of(batch: int) -> BatchReport:
    """What the seeds of a batch came to; they are run once in a process."""
    report = BatchReport()
    for seed in range(batch * SEEDS_PER_BATCH, (batch + 1) * SEEDS_PER_BATCH):
        run_one(seed, report)
    return report


# Each found something that had to be mended, as plans are drawn now; with what it was.
FINDERS = {
    460: "a log begun afresh right behind what was dispatched left units before it",
    1210: "entries were told to the broker after the log had begun afresh",
    4424: "a commit was answered when a later write was refused",
    100932: "a commit was answered when the snapshot that was to hold it was refused",
    2593: "a store time fell behind an opening record in the midst of a term",
    3583: "a commit was noted while the cut before it waited for the disk",
    9954: "a bit that flipped soon after a start passed for a torn write",
    1656: "a bit of the first entry's term flipped, and no entry before it told",
    5935: "a follower answered from a part of the state, before a sweep had told the rest",
    25102: "a leader removed what it had applied, and then counted what it no longer had",
    27547: "a save of term and vote was cut between its files, and no start ended it",
    9699: "a mark stood before its flush was whole, and the flush was done once more",
    5705: "a leader asked an empty log for what lies before its beginning, without end",
}


@pytest.mark.parametrize("seed", FINDERS)
def test_a_seed_that_found_something_finds_it_no_more(seed: int) -> None:
    run_seed(seed)


def test_a_run_leaves_no_thread() -> None:
    """Ten thousand seeds would have 30,000, and keep their worlds in memory."""
    before = threading.active_count()
    for seed in range(3):
        run_seed(seed)
    assert threading.active_count() == before


@pytest.mark.parametrize("batch", range(BATCHES))
def test_all_statements_hold(batch: int) -> None:
    failures = report_of(batch).failures
    assert not failures, "\n".join(
        f"seed {failure.seed}: {failure.reason}\n{failure.details}" for failure in failures
    )


def test_the_faults_were_met() -> None:
    met = BatchReport()
    for batch in range(BATCHES):
        met.add(report_of(batch))
    missed = {
        name: met.counts.get(name, 0)
        for name, floor in FLOORS.items()
        if met.counts.get(name, 0) < floor
    }
    assert not missed, missed


@pytest.mark.parametrize(
    "seed",
    [
        # Drawn by plans of their time; what they found has scripts, or tests of the disk, by now.
        1,
        6,
        10,
        28,
        52,
        225,
        282,
        1019,
        1102,
        # A unit of a queue with its sign flipped was passed over, and with it the message.
        5020,
        # A flipped position in a unit of the index was no damage, but a failure.
        1531,
        # A record that had rotted stopped each start of its broker, and nobody repaired it.
        630,
        # An empty disk counted as trustworthy after a vote; a claim without its checkpoint as none.
        3925,
        3721,
        # A member that had voted for itself stayed suspect for ever in a new group.
        202,
        # Stopped in order after a flush that had failed, the simulated broker began another.
        5550,
        # A leader heard of commits, of its successor and of a failed flush in one step.
        21350,
        # A leader that was paused read what a member had said of a disk that was taken out since.
        623697,
    ],
)
def test_seed_that_found_a_defect(seed: int) -> None:
    run_seed(seed)


def digests(hash_seed: str, seeds: tuple[int, ...]) -> list[str]:
    script = (
        "import sys\n"
        "from ledgermq.testing.simulation.world import run_seed\n"
        "print('\\n'.join(run_seed(int(seed)).digest() for seed in sys.argv[1:]))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, *map(str, seeds)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return found.stdout.split()


def test_a_seed_fixes_everything() -> None:
    seeds = (0, 2, 5, 9, 17, 31)
    first = digests("1", seeds)
    assert len(set(first)) == len(seeds)
    assert digests("2", seeds) == first


def test_a_failure_is_made_smaller() -> None:
    mutation = next(m for m in MUTATIONS if m.name == "M3")
    with planted(mutation):
        found = shrink(Plan.draw(0), runs_max=30)
    assert found is not None
    assert len(found.schedule) < len(World(Plan.draw(0)).schedule)
    assert found.reason.startswith("Violation: I")
