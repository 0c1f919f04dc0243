"""Faults of brokers that are real processes, each on a host of its own.

    python -m tests.fault.hosts.run [--runs 1] [--seed 0] [--faults all] [--rate 200] [--no-limits]

Three brokers, a name server and two producers run in network namespaces that a router joins, each
broker with a disk of its own. One fault after the other is done and undone, in an order that is
drawn, while the producers go on and an observer reads each broker directly. In the end every
acknowledged message is at its queue and offset on all three brokers, without a gap, every term had
one leader at most, the stores are equal byte by byte, and nothing was restarted by hand. The times
that each fault took are printed; with limits the exit code minds them, too. Needs root on Linux.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.fault.hosts.cluster import HOSTS, Cluster
from tests.fault.hosts.faults import NAMES, Fault, Scene, chosen
from tests.fault.hosts.isolation import find_obstacle, isolated
from tests.fault.hosts.judge import Verdict, judge_cluster
from tests.fault.hosts.load import Load
from tests.fault.hosts.network import Network
from tests.fault.hosts.observer import Observer
from tests.fault.hosts.report import exceeded, spread, table
from tests.fault.hosts.trial import Outcome, Trials
from tests.fault.up_group import stop_and_verify

# Seconds of calm between two faults.
_CALM_S = (2.0, 6.0)
_INSIDE = "--inside"


class Run:
    """One cluster, all chosen faults once, and the judgment."""

    def __init__(self, folder: Path, options: argparse.Namespace, seed: int) -> None:
        self._folder = folder
        self._options = options
        self._rng = random.Random(seed)
        self.outcomes: list[Outcome] = []
        self.complaints: list[str] = []

    def play(self) -> None:
        """Plays it; what was found wrong is in `complaints`."""
        with Network(HOSTS) as network, Cluster(self._folder, network) as cluster:
            try:
                self._play_on(cluster)
            except AssertionError as error:
                self.complaints.append(f"the run was given up: {error}")
            if self.complaints:
                shutil.copytree(cluster.data, self._folder / "stores", dirs_exist_ok=True)
            _say(f"packets: {network.passed:,} passed, {network.dropped:,} dropped")

    def _play_on(self, cluster: Cluster) -> None:
        cluster.make_topic()
        with (
            Load(cluster, self._options.rate) as load,
            Observer(cluster) as observer,
            open(self._folder / "story", "w") as story,
        ):
            scene = Scene(cluster, cluster.network, self._rng)
            trials = Trials(scene, load, observer, story)
            trials.wait_until_whole(time.monotonic())
            for fault in self._drawn():
                self._one(trials, fault)
            said = load.producer.end()
            trials.wait_until_whole(load.acks.all[-1].at_s - 1e-6)
            load.consumer.end()
            acks, deliveries = load.acks.all, load.deliveries.all
            verdict = judge_cluster(cluster, acks, deliveries, said["sent"], observer.seen)
            self.complaints += verdict.complaints + observer.complaints
            _say(_told(said, verdict, load))
        stop_and_verify(cluster)

    def _drawn(self) -> list[Fault]:
        parts = chosen(self._options.faults)
        self._rng.shuffle(parts)
        return [fault for part in parts for fault in part]

    def _one(self, trials: Trials, fault: Fault) -> None:
        """One fault, and a line about it."""
        calm_s = self._rng.uniform(*_CALM_S)
        outcome = trials.play(fault, self._options.hold or fault.hold_s, calm_s)
        self.outcomes.append(outcome)
        first, healed, replaced = map(
            spread, ([outcome.first_s], [outcome.healed_s], [outcome.replaced_s])
        )
        _say(
            f"{outcome.title}: no ack for {outcome.gap_s:.1f} s, no delivery for"
            f" {outcome.silent_s:.1f} s, first ack after {first} s, healed after {healed} s, new"
            f" leader after {replaced} s, {outcome.acks_s:.0f} acks/s, {outcome.end_count} ended,"
            f" load {outcome.load:.1f}"
        )


def _told(said: dict[str, Any], verdict: Verdict, load: Load) -> str:
    failed = ", ".join(f"{count} {kind}" for kind, count in said["failed"].items()) or "none"
    return (
        f"{sum(said['sent']):,} sent, {len(load.acks.all):,} acknowledged, failed: {failed};"
        f" {verdict.unknown_count} stored at places that nobody was told of,"
        f" {verdict.copies_count} of them copies; {verdict.again_count} delivered again"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def play_all(options: argparse.Namespace) -> int:
    """All runs, in a world of their own; returns the exit code."""
    outcomes: list[Outcome] = []
    complaints: list[str] = []
    for number in range(options.runs):
        seed = options.seed + number
        folder = Path(tempfile.mkdtemp(prefix="ledgermq-faults-"))
        _say(f"run {number + 1} of {options.runs}, seed {seed}, in {folder}")
        run = Run(folder, options, seed)
        run.play()
        outcomes += run.outcomes
        complaints += [f"seed {seed}: {complaint}" for complaint in run.complaints]
        if not run.complaints and not any(one.by_hand for one in run.outcomes):
            shutil.rmtree(folder, ignore_errors=True)
    for line in table(outcomes):
        _say(line)
    if not options.no_limits:
        complaints += exceeded(outcomes)
    for complaint in complaints:
        _say(f"WRONG: {complaint}")
    _say("all is well" if not complaints else f"{len(complaints)} complaints")
    return 1 if complaints else 0


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1, help="each with a new cluster")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--faults", default="all", help=f"all, or some of: {', '.join(NAMES)}")
    parser.add_argument("--rate", type=int, default=200, help="messages a second")
    parser.add_argument("--hold", type=float, help="seconds that each fault lasts")
    parser.add_argument("--no-limits", action="store_true", help="times do not count")
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    try:
        chosen(options.faults)
    except ValueError as error:
        parser.error(str(error))
    return options


def main(words: list[str]) -> int:
    """Makes a world of its own, and plays in it; returns the exit code."""
    options = _parse(words)
    if options.inside:
        return play_all(options)
    obstacle = find_obstacle()
    if obstacle is not None:
        sys.stderr.write(f"no hosts can be made here: {obstacle}\n")
        return 1
    command = [sys.executable, "-m", "tests.fault.hosts.run", _INSIDE, *words]
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    with subprocess.Popen(isolated(command)) as world:
        try:
            return world.wait()
        finally:
            world.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
