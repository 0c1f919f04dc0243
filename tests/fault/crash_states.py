"""Every state in which a power cut may leave a store, and what a start makes of it.

    python -m tests.fault.crash_states [--states 100000] [--seed 0]

Workloads run on a RecordingDisk: the ledger's file store (append, roll, truncate, reset, drop,
checkpoint, reopen), the vote file, the message store with its queues, key index and checkpoints,
and the recovery of the ledger itself. At each point where the machine may stop, legal states of the
disk are made (tests/fault/recording_disk.py), and the store is opened on each: what was synced is
there and equal, nothing is invented, what was voted is remembered, queues say what the log says,
and the store takes appends. Disk jobs run in a second thread, and appends go on meanwhile: either
thread may come upon the other in the midst of a write or of a sync. Prints how many states were
looked at.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from ledgermq.dledger.storage import HardState
from ledgermq.dledger.store.vote_file import VoteFile
from tests.fault.message_workload import MessageWorkload, check_queues, open_broker
from tests.fault.recording_disk import RecordingDisk, State
from tests.fault.second_thread import SecondThread
from tests.fault.store_workload import DIRECTORY, Workload, make_store
from tests.unit.commitlog.single_member import message


class Checker(Protocol):
    """Looks at one state of the disk; raises AssertionError, or what the opening raised."""

    def __call__(self, state: State) -> None: ...


class Explorer:
    """Looks at states of a disk at each of its points, up to a number of each."""

    def __init__(self, disk: RecordingDisk, check: Checker, states_max: int, seed: int) -> None:
        self.disk = disk
        self.count = 0
        self.points = 0
        self._check = check
        self._states_max = states_max
        self._rng = random.Random(seed)
        disk.on_point = self.explore

    def explore(self, kind: str) -> None:
        self.points += 1
        number = 0
        for number, state in enumerate(self.disk.states(self._states_max, self._rng), 1):
            try:
                self._check(state)
            except Exception as error:
                error.add_note(f"state {number} at point {self.points} ({kind})")
                raise
        self.count += number


def explore_ledger(seed: int, states_max: int, steps: int = 30) -> Explorer:
    """The file store."""
    rng = random.Random(seed)
    disk, second = RecordingDisk(parts=rng), SecondThread(rng)
    workload = Workload(disk, seed, second)

    def check(state: State) -> None:
        store = workload.check(RecordingDisk(state))
        assert store.read_checkpoint() <= store.last_index
        # It goes on: the next entries are there after the next start.
        after = Workload(RecordingDisk(), seed)
        after.store, after.term = store, workload.term + 1
        after.append()
        store.sync()
        reopened = make_store(RecordingDisk(store.data._file_system.content()))
        assert reopened.open().last_index == store.last_index

    explorer = Explorer(disk, check, states_max, seed)
    disk.on_let_go = second.let_go
    workload.run(steps)
    explorer.explore("end")
    return explorer


def explore_recovery(seed: int, states_max: int, steps: int = 25) -> Explorer:
    """The opening of a file store after a cut, cut again."""
    disk = RecordingDisk()
    workload = Workload(disk, seed)
    workload.run(steps)
    workload.append()
    workload.append()
    rng = random.Random(seed)
    torn = RecordingDisk(disk.cut_power(rng))
    explorer = Explorer(
        torn, lambda state: _discard(workload.check(RecordingDisk(state))), states_max, seed
    )
    make_store(torn).open()
    explorer.explore("end")
    return explorer


def explore_votes(seed: int, states_max: int, steps: int = 12) -> Explorer:
    """The vote file: term and vote never go back."""
    rng = random.Random(seed)
    disk = RecordingDisk()
    votes = VoteFile(disk, DIRECTORY, "n0", group="g")
    assert votes.load() is None
    promised: HardState | None = None
    coming: HardState | None = None

    def check(state: State) -> None:
        file = VoteFile(RecordingDisk(state), DIRECTORY, "n0", group="g")
        found = file.load()
        assert found in (promised, coming), (found, promised, coming)
        file.save(HardState(1000, "n2"))
        assert file.load() == HardState(1000, "n2")

    explorer = Explorer(disk, check, states_max, seed)
    term, vote = 0, None
    for _ in range(steps):
        if vote is None and rng.random() < 0.5:
            vote = rng.choice(["n0", "n1", "n2"])
        else:
            term, vote = term + rng.randrange(1, 12), rng.choice([None, "n0", "n1", "n2"])
        coming = HardState(term, vote)
        votes.save(coming)
        promised = coming
    explorer.explore("end")
    return explorer


def explore_messages(seed: int, states_max: int, steps: int = 14) -> Explorer:
    """The message store on its ledger."""
    rng = random.Random(seed)
    disk, second = RecordingDisk(parts=rng), SecondThread(rng)
    workload = MessageWorkload(disk, seed, second)

    def check(state: State) -> None:
        broker = open_broker(RecordingDisk(state))
        assert broker.ledger_store.last_index >= workload.synced_index
        broker.lead()
        check_queues(broker)
        broker.send(message(b"999999 after", "T0", 0))
        check_queues(broker)

    explorer = Explorer(disk, check, states_max, seed)
    disk.on_let_go = second.let_go
    workload.run(steps)
    explorer.explore("end")
    return explorer


def _discard(_: object) -> None:
    """The store is looked at no further."""


# Each with its share of the states, and how many at one point at most.
EXPLORERS: dict[str, tuple[Callable[[int, int], Explorer], float, int]] = {
    "ledger": (explore_ledger, 0.55, 40),
    "recovery": (explore_recovery, 0.1, 60),
    "votes": (explore_votes, 0.2, 1000),
    "messages": (explore_messages, 0.15, 12),
}


def explore_all(states: int, seed: int) -> Counter[str]:
    """Looks at no fewer than so many states; returns how many of each kind."""
    counts: Counter[str] = Counter()
    for name, (explore, share, states_max) in EXPLORERS.items():
        number = seed
        while counts[name] < states * share:
            try:
                explorer = explore(number, states_max)
            except Exception as error:
                error.add_note(f"replay: explore_{name}({number}, {states_max})")
                raise
            counts[name] += explorer.count
            counts[f"{name} points"] += explorer.points
            number += 1
        counts[f"{name} workloads"] = number - seed
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--states", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.monotonic()
    counts = explore_all(options.states, options.seed)
    for name in EXPLORERS:
        sys.stdout.write(
            f"{name:10} {counts[name]:8,} states  {counts[name + ' points']:7,} points"
            f"  {counts[name + ' workloads']:5,} workloads\n"
        )
    total = sum(counts[name] for name in EXPLORERS)
    elapsed_s = time.monotonic() - begun
    sys.stdout.write(f"{total:,} crash states, all recovered, in {elapsed_s:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
