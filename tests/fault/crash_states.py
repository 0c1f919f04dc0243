"""Every state in which a power cut may leave a store, and what a start makes of it.

    python -m tests.fault.crash_states [--states 100000] [--seed 0]

Workloads run on a RecordingDisk: the ledger's file store (append, roll, truncate, reset, drop,
checkpoint, reopen), the vote file, the message store with its queues, key index and checkpoints,
and the recovery of the ledger itself. At each point where the machine may stop, legal states of the
disk are made (tests/fault/recording_disk.py), and the store is opened on each: what was synced is
there and equal, nothing is invented, what was voted is remembered, queues say what the log says,
and the store takes appends. Disk jobs run in a second thread, and appends go on meanwhile: either
thread may come upon the other in the midst of a write or of a sync.

"files" is the ledger's store once more, but on real files: the calls of the operating system are
recorded (tests/fault/recorded_os.py), so that the steps of `RealFileSystem` itself are judged; the
vote file and the broker's JSON files are looked at in that way alone. Prints how many states were
looked at.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ledgermq.broker.storage.state_files import StateFile
from ledgermq.broker.storage.state_loading import LoadRule
from ledgermq.dledger.storage import HardState
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.vote_file import VoteFile
from ledgermq.protocol.file_seal import sealed
from tests.fault.message_workload import MessageWorkload, check_queues, open_broker
from tests.fault.recorded_os import RecordedOs
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
    disk.on_let_go = second.let_go
    workload = Workload(disk, seed, second)
    explorer = Explorer(disk, _ledger_check(workload, seed), states_max, seed)
    workload.run(steps)
    explorer.explore("end")
    return explorer


def explore_files(seed: int, states_max: int, steps: int = 20) -> Explorer:
    """The file store on real files."""
    rng = random.Random(seed)
    disk, second = RecordingDisk(parts=rng), SecondThread(rng)
    disk.on_let_go = second.let_go
    with recorded_files(disk) as system:
        workload = Workload(RealFileSystem(), seed, second, system.root)
        check = _ledger_check(workload, seed)
        explorer = Explorer(
            disk, lambda state: check(system.content_below(state)), states_max, seed
        )
        workload.run(steps)
        explorer.explore("end")
        disk.on_point = None
        workload.store.abandon()
    return explorer


@contextmanager
def recorded_files(disk: RecordingDisk) -> Iterator[RecordedOs]:
    """An empty directory whose files are recorded, for the length of a `with` block."""
    with tempfile.TemporaryDirectory(prefix="crash-states-") as root:
        with RecordedOs(os.path.realpath(root), disk) as system:
            yield system


def _ledger_check(workload: Workload, seed: int) -> Checker:
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

    return check


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
    promised: HardState | None = None
    coming: HardState | None = None

    def check(state: State) -> None:
        disk = RecordingDisk(system.content_below(state))
        file = VoteFile(disk, DIRECTORY, "n0", group="g")
        found = file.load()
        assert found in (promised, coming), (found, promised, coming)
        file.save(HardState(1000, "n2"))
        assert file.load() == HardState(1000, "n2")

    with recorded_files(RecordingDisk()) as system:
        votes = VoteFile(RealFileSystem(), system.root + DIRECTORY, "n0", group="g")
        assert votes.load() is None
        explorer = Explorer(system.disk, check, states_max, seed)
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
        system.disk.on_point = None
    return explorer


def explore_state_file(seed: int, states_max: int, steps: int = 12) -> Explorer:
    """A state file of the broker: a start believes what was written to last, or something later."""
    rng = random.Random(seed)
    promised, number = 0, 0

    def check(state: State) -> None:
        names = {os.path.basename(path): content for path, content in state.items()}
        for name in os.listdir(scratch):
            os.unlink(os.path.join(scratch, name))
        for name, content in names.items():
            Path(scratch, name).write_bytes(content)
        indexes = {"topics.json": promised} if promised else {}
        rule = LoadRule(owner="o", store_id="1", needs_seals=True, indexes=indexes)
        one = rule.find(StateFile(Path(scratch, "topics.json")))
        content = one.content
        found = content["n"] if content is not None else 0
        assert promised <= found <= number, (promised, found, number, one.problem)

    with tempfile.TemporaryDirectory(prefix="crash-states-") as scratch:
        with recorded_files(RecordingDisk()) as system:
            file = StateFile(Path(system.root, "topics.json"))
            explorer = Explorer(system.disk, check, states_max, seed)
            for number in range(1, steps + 1):
                if rng.random() < 0.1:
                    file = StateFile(Path(system.root, "topics.json"))
                is_durable = rng.random() < 0.6
                content = StateFile.encode({"n": number, "text": "x" * rng.randrange(900)})
                file.write(sealed([content], "o/1", number), is_durable=is_durable)
                promised = number if is_durable else promised
            explorer.explore("end")
            system.disk.on_point = None
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

    disk.on_let_go = second.let_go
    explorer = Explorer(disk, check, states_max, seed)
    workload.run(steps)
    explorer.explore("end")
    return explorer


def _discard(_: object) -> None:
    """The store is looked at no further."""


# Each with its share of the states, and how many at one point at most.
EXPLORERS: dict[str, tuple[Callable[[int, int], Explorer], float, int]] = {
    "ledger": (explore_ledger, 0.45, 40),
    "files": (explore_files, 0.1, 20),
    "recovery": (explore_recovery, 0.1, 60),
    "votes": (explore_votes, 0.15, 1000),
    "state file": (explore_state_file, 0.05, 200),
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
