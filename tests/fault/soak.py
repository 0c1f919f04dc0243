"""Clients of ours under steady load while a cluster is hurt, for as long as one likes.

    python -m tests.fault.soak [--minutes 30] [--seed 0] [--rate 300]

A name server and three brokers run as processes. A producer sends, two members of one group share
the topic, a member of another group consumes it in order. Meanwhile the leader is killed, the name
server is killed, a node is stopped (SIGSTOP) and goes on: one of them at a time, drawn at random.
In the end each acknowledged message must have reached both groups from the offset that was told,
every offset of every queue must have been delivered, in the orderly group for the first time in
order, and the memory of the four clients must not have grown.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.e2e.up_cluster import UpCluster
from tests.fault.soak_programs import NOTE
from tests.waiting import wait_until

TOPIC = "Soak"
QUEUES = 4
# Seconds between the end of one fault and the next.
CALM_S = (8.0, 25.0)
PAUSE_S = (5.0, 20.0)
SAMPLE_S = 5.0
# What may be more in the last quarter than in the second: a tenth, and what one allocator block
# more or less makes.
GROWTH = 1.1
GROWTH_MB = 4.0
PATIENCE_S = 120.0
# Never set: only waited for.
PAUSE = threading.Event()


class SoakError(AssertionError):
    """Something that was promised did not hold."""


class Client:
    """One of the programs."""

    def __init__(self, folder: Path, name: str, words: list[str], rest: list[str]) -> None:
        self.name = name
        self.path = folder / f"{name}.notes"
        self._log = (folder / f"{name}.log").open("wb")
        command = [sys.executable, "-m", "tests.fault.soak_programs", *words, str(self.path), *rest]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        self.memory_mb: list[float] = []

    def sample(self) -> None:
        """Notes how much memory it has of its own."""
        if self.process.poll() is not None:
            raise SoakError(f"{self.name} ended with code {self.process.returncode}")
        self.memory_mb.append(own_mb(self.process.pid))

    def notes(self) -> list[tuple[int, int, int]]:
        """Number, queue and offset of all it noted; the last one may be written in part."""
        data = self.path.read_bytes()
        return list(NOTE.iter_unpack(data[: len(data) // NOTE.size * NOTE.size]))

    def end(self) -> dict[str, Any]:
        """Lets it end in order; returns what it says."""
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        self._log.close()
        if self.process.returncode:
            raise SoakError(f"{self.name} ended with code {self.process.returncode}")
        found: dict[str, Any] = json.loads(out)
        return found

    def kill(self) -> None:
        """Ends it anyhow."""
        self.process.kill()
        self.process.wait()
        self._log.close()

    def check_memory(self) -> str:
        """Compares the last quarter with the second."""
        quarter = len(self.memory_mb) // 4
        second = statistics.median(self.memory_mb[quarter : 2 * quarter])
        last = statistics.median(self.memory_mb[-quarter:])
        text = f"{self.name}: {second:.1f} MB in the second quarter, {last:.1f} MB in the last"
        if last > second * GROWTH + GROWTH_MB:
            raise SoakError(f"memory grew: {text}")
        return text


def own_mb(pid: int) -> float:
    """Resident memory that is no file's, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise SoakError(f"process {pid} shows no memory")


def make_topic(name_server: str) -> None:
    """Creates the topic."""
    words = ["updateTopic", "-n", name_server, "-c", "DefaultCluster", "-t", TOPIC]
    words += ["-r", str(QUEUES), "-w", str(QUEUES)]
    command = [sys.executable, "-m", "ledgermq.cli.main", "admin", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Faults:
    """What is done to the cluster."""

    def __init__(self, cluster: UpCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._is_whole = True
        self._due_s = time.monotonic() + 5.0
        self._stopped_pid = 0
        self.counts = {"leader killed": 0, "name server killed": 0, "node paused": 0}

    def turn(self) -> None:
        """Hurts, or makes well again, when it is time."""
        if time.monotonic() < self._due_s:
            return
        if self._stopped_pid:
            os.kill(self._stopped_pid, signal.SIGCONT)
            self._stopped_pid = 0
            self._due_s = time.monotonic() + self._rng.uniform(*CALM_S)
            return
        leader = self._cluster.find_leader()
        nodes = [node for node in self._cluster.nodes() if node["pid"]]
        if leader is None or len(nodes) < 3:
            # Two failures at once are more than a group of three is for.
            return
        fault = self._rng.choice(list(self.counts))
        self.counts[fault] += 1
        self._due_s = time.monotonic() + self._rng.uniform(*CALM_S)
        if fault == "leader killed":
            self._cluster.kill(leader)
        elif fault == "name server killed":
            os.kill(self._cluster.name_server_pid(), signal.SIGKILL)
        else:
            self._stopped_pid = self._rng.choice(nodes)["pid"]
            os.kill(self._stopped_pid, signal.SIGSTOP)
            self._due_s = time.monotonic() + self._rng.uniform(*PAUSE_S)

    def end(self) -> None:
        """Lets a stopped node go on."""
        if self._stopped_pid:
            os.kill(self._stopped_pid, signal.SIGCONT)
            self._stopped_pid = 0


def check(acked: list[tuple[int, int, int]], groups: dict[str, list[Client]]) -> list[str]:
    """Compares what was acknowledged with what came; returns what is to be told."""
    lines = []
    for group, members in groups.items():
        seen: dict[tuple[int, int], int] = {}
        again = 0
        for member in members:
            for number, queue, offset in member.notes():
                if group == "orderly" and (queue, offset) not in seen:
                    if offset and (queue, offset - 1) not in seen:
                        raise SoakError(f"{group}: queue {queue} went on at {offset} out of order")
                again += seen.setdefault((queue, offset), number) == number
                if seen[queue, offset] != number:
                    raise SoakError(f"{group}: queue {queue} has two messages at {offset}")
        again -= len(seen)
        for number, queue, offset in acked:
            if seen.get((queue, offset)) != number:
                raise SoakError(f"{group}: message {number} is not at {offset} of queue {queue}")
        for queue in range(QUEUES):
            offsets = {offset for one, offset in seen if one == queue}
            if offsets != set(range(len(offsets))):
                raise SoakError(f"{group}: of queue {queue} offsets are missing")
        lines.append(f"{group}: {len(seen)} messages, none skipped, {again} delivered again")
    return lines


def soak(folder: Path, options: argparse.Namespace) -> list[str]:
    """Runs it; returns the lines of the report."""
    rng = random.Random(options.seed)
    with UpCluster(folder) as cluster:
        make_topic(cluster.name_server)
        place = [cluster.name_server, TOPIC]
        sender = Client(folder, "producer", ["send", *place], [str(options.rate)])
        shared = [
            Client(folder, f"consumer-{i}", ["consume", *place], ["shared", "concurrent"])
            for i in range(2)
        ]
        orderly = Client(folder, "orderly", ["consume", *place], ["in-order", "orderly"])
        clients = [sender, *shared, orderly]
        groups = {"shared": shared, "orderly": [orderly]}
        faults = Faults(cluster, rng)
        try:
            end_s = time.monotonic() + options.minutes * 60
            sample_s = 0.0
            while time.monotonic() < end_s:
                faults.turn()
                if time.monotonic() >= sample_s:
                    sample_s = time.monotonic() + SAMPLE_S
                    for client in clients:
                        client.sample()
                PAUSE.wait(0.25)
            faults.end()
            sent = sender.end()
            acked = sender.notes()
            told = {number for number, _, _ in acked}

            def is_complete() -> bool:
                return all(
                    told <= {number for one in members for number, _, _ in one.notes()}
                    for members in groups.values()
                )

            wait_until(is_complete, what="all deliveries", deadline_s=PATIENCE_S)
            for client in clients[1:]:
                client.end()
        finally:
            faults.end()
            for client in clients:
                client.kill()
    lines = [
        ", ".join(f"{fault} {count} times" for fault, count in faults.counts.items()),
        f"{sent['sent']} sent, {len(acked)} acknowledged, failed: {sent['failed']}",
        *check(acked, groups),
        *(client.check_memory() for client in clients),
    ]
    return lines


def main() -> int:
    """Runs a soak and prints what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=int, default=300)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ledgermq-soak-"))
    sys.stdout.write(f"{options.minutes:g} minutes, seed {options.seed}, in {folder}\n")
    sys.stdout.flush()
    sys.stdout.writelines(f"{line}\n" for line in soak(folder, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
