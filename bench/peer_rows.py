"""What `bench.peer` measures of a group, one entry of a table for each: a name and a function.

Rows run in their order against a group that was just started and is warm; the last kills its
leader. A row that fails says why, and the rows after it still run.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from bench import cold, stock
from bench.availability import QUEUES as KILL_QUEUES
from bench.availability import TOPIC as KILL_TOPIC
from bench.availability import Senders
from bench.catch_up import LOOK_S, NEAR_BYTES, log_end
from bench.peer_table import WARM_UP, Outcome
from bench.peers import PAUSE, Peer, java
from bench.warmth import LIMIT_S, WINDOW_S, warm
from ledgermq.cli.remote import Remote

TOPIC = "PeerTopic"
BACKLOG = "PeerBacklog"
QUEUES = 4
KILL_REST_S = 3.0
# Of what is pulled and consumed, at least, unless a group is too slow for it.
BACKLOG_MESSAGES = 120_000
BACKLOG_S = 20.0
READERS_END_S = 120.0
# Seconds of a load that are not counted: a JVM has not compiled yet what only this load runs.
LEAD_IN_S = 3.0
# What a follower lacks that is to catch up, by a load that Apache's leader takes also while a
# member is silent (with more in flight it begins to refuse), and how long either half may take.
LACK_BYTES = 1 << 30
CATCH_UP_LIMIT_S = 180.0
# One JVM alone on the machine is warm sooner than three.
SYNC_LIMIT_S = 24.0
REASON_MAX = 300
# Heaps of Apache's members, from the smallest; and how many times as long as others this load is.
HEAPS_MB = (256, 384, 512, 768)
HEAP_WINDOWS = 4
# Rows that are not of a warm group of three, by their short names.
SYNC, HEAP, CATCH_UP = "sync", "heap", "catch-up"
Figures = dict[str, float]


@dataclass(frozen=True)
class Load:
    """One way to send."""

    name: str
    body_bytes: int = 1024
    batch: int = 0
    connections: int = 4
    in_flight: int = 64


@dataclass(frozen=True)
class Plan:
    """What all rows of a run share."""

    # Seconds of one load.
    seconds: float


@dataclass(frozen=True)
class Row:
    """One measurement of one group."""

    # The short name, for `--only`.
    key: str
    # The name in the table.
    title: str
    run: Callable[[Peer, Plan], Figures]


FULL = Load("1 KiB, 256 in flight")
LOADS = {
    "1k-256": FULL,
    "1k-16": Load("1 KiB, 16 in flight", connections=1, in_flight=16),
    "1k-1": Load("1 KiB, 1 in flight", connections=1, in_flight=1),
    "100b-256": Load("100 B, 256 in flight", body_bytes=100),
    "10k-256": Load("10 KiB, 256 in flight", body_bytes=10_240),
    "batch": Load("1 KiB, batches of 32, 32 in flight", batch=32, in_flight=8),
}
FILL = Load("10 KiB, 16 in flight", body_bytes=10_240, connections=1, in_flight=16)
READERS = {1: "one group", 4: "4 groups", 16: "16 groups"}


def command_of(module: str, *words: object) -> list[str]:
    """The command line of a load program."""
    return [sys.executable, "-m", f"bench.{module}", *map(str, words)]


def finished(command: list[str], done: subprocess.CompletedProcess[str]) -> Figures:
    """What a load program printed.

    Raises:
        RuntimeError: it failed, or messages were refused.
    """
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-500:]}{done.stderr[-500:]}")
    result: Figures = json.loads(done.stdout)
    refused, reason = result.pop("refused", 0), result.pop("first_refusal", "")
    if refused:
        raise RuntimeError(f"{refused} refused: {reason}")
    return result


def run_json(module: str, *words: object) -> Figures:
    """Runs a load program; returns what it printed."""
    command = command_of(module, *words)
    return finished(command, subprocess.run(command, capture_output=True, text=True))


def costed(peer: Peer, run: Callable[[], Figures]) -> Figures:
    """Runs a load and adds what a message cost the members together."""
    before = peer.cpu_seconds()
    result = run()
    used_s = peer.cpu_seconds() - before
    return {**result, "cpu_us": used_s * 1e6 / max(1, result["messages"])}


def words_of(peer: Peer, load: Load, topic: str, seconds: float) -> tuple[object, ...]:
    """The arguments of the load program."""
    return (
        "--address", peer.leader(), "--topic", topic, "--seconds", seconds,
        "--body-bytes", load.body_bytes, "--batch", load.batch,
        "--connections", load.connections, "--in-flight", load.in_flight,
    )  # fmt: skip


def send(load: Load, peer: Peer, plan: Plan) -> Figures:
    """Sends to the leader; of what the warm-up was not, a little before it counts."""
    if load != FULL:
        run_json("load", *words_of(peer, load, TOPIC, LEAD_IN_S))
    words = words_of(peer, load, TOPIC, plan.seconds)
    return costed(peer, lambda: run_json("load", *words))


def warm_up(peer: Peer, limit_s: float = LIMIT_S) -> Figures:
    """Makes the topic and sends until the group's rate rises no more."""
    peer.create_topic(TOPIC, QUEUES)

    def window() -> float:
        return run_json("load", *words_of(peer, FULL, TOPIC, WINDOW_S))["messages_per_second"]

    return warm(window, limit_s, peer.warm_windows)


def backlog(peer: Peer) -> int:
    """Makes a topic of messages of 1 KiB, unless it is there; returns how many they are."""
    peer.create_topic(BACKLOG, QUEUES)
    begun = time.perf_counter()
    while (count := peer.message_count(BACKLOG, QUEUES)) < BACKLOG_MESSAGES:
        if time.perf_counter() > begun + BACKLOG_S:
            break
        run_json("load", *words_of(peer, LOADS["batch"], BACKLOG, 2.0))
    return count


def pull(peer: Peer, plan: Plan) -> Figures:
    """Reads what lies in memory, 32 messages a request."""
    backlog(peer)
    words = ("--address", peer.leader(), "--topic", BACKLOG, "--seconds")
    run_json("pull_load", *words, LEAD_IN_S)
    return costed(peer, lambda: run_json("pull_load", *words, plan.seconds))


def pull_cold(peer: Peer, plan: Plan) -> Figures:
    """Reads a topic once from its begin, after the log was taken out of the page cache."""
    backlog(peer)
    leader = peer.leader()
    dropped = cold.drop(peer.members[leader], peer.folder)
    words = ("--address", leader, "--topic", BACKLOG, "--seconds", plan.seconds, "--once")
    return {**dropped, **costed(peer, lambda: run_json("pull_load", *words))}


def send_and_read(groups: int, peer: Peer, plan: Plan) -> Figures:
    """Sends while so many consumer groups read the same topic and wait for what comes."""
    topic = f"PeerMixed{groups}"
    peer.create_topic(topic, QUEUES)
    pulling = command_of(
        "pull_load", "--address", peer.leader(), "--topic", topic, "--groups", groups,
        "--seconds", READERS_END_S, "--follow",
    )  # fmt: skip
    before = peer.cpu_seconds()
    with subprocess.Popen(
        pulling, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as readers:
        try:
            result = run_json("load", *words_of(peer, FULL, topic, plan.seconds))
            # Ends their input, and so their reading.
            text, errors = readers.communicate(timeout=READERS_END_S)
        finally:
            readers.kill()
    used_s = peer.cpu_seconds() - before
    done = subprocess.CompletedProcess(pulling, readers.returncode, text, errors)
    read = finished(pulling, done)["messages"]
    return {
        **result,
        "read_per_second": read / result["seconds"],
        # 1: each group had read all when the last message was taken.
        "read_share": read / (groups * result["messages"]),
        "cpu_us": used_s * 1e6 / (result["messages"] + read),
    }


def stock_producer(peer: Peer, _: Plan) -> Figures:
    """Apache's own producer."""
    return stock.produce(peer, TOPIC)


def stock_consumer(peer: Peer, _: Plan) -> Figures:
    """Apache's own consumer over a backlog."""
    return stock.consume(peer, BACKLOG, backlog(peer))


def memory(peer: Peer, _: Plan) -> Figures:
    """Memory of the leader."""
    return {"mb": peer.resident_mb()}


def start(peer: Peer, _: Plan) -> Figures:
    """How long the group took to serve."""
    return {"s": peer.start_s}


def time_to_writable(peer: Peer, _: Plan) -> Figures:
    """Seconds without a leader that takes messages, around one ``kill -9`` of the leader."""
    peer.create_topic(KILL_TOPIC, KILL_QUEUES)
    with Senders(list(peer.members)) as senders:
        senders.rest(KILL_REST_S)
        killed = time.perf_counter()
        peer.kill_leader()
        senders.rest(0.5)
        senders.wait_for_more(100)
        return {"s": senders.longest_gap_ms(killed, time.perf_counter()) / 1000}


ROWS = (
    *(Row(key, load.name, functools.partial(send, load)) for key, load in LOADS.items()),
    Row("pull", "32 a pull, 4 connections", pull),
    *(
        Row(
            f"mixed-{groups}",
            f"1 KiB, 256 in flight, read at once by {name}",
            functools.partial(send_and_read, groups),
        )
        for groups, name in READERS.items()
    ),
    Row("producer", "Apache's producer, 64 threads", stock_producer),
    Row("consumer", "Apache's consumer over a backlog of 1 KiB", stock_consumer),
    Row("cold", "32 a pull, from the disk", pull_cold),
    Row("memory", "memory of the leader, MB", memory),
    Row("start", "start of the group, s", start),
    Row("kill", "kill -9 of the leader: s until messages are taken", time_to_writable),
)
QUICK = ("1k-256", "1k-1", "10k-256", "pull", "mixed-4", "cold", "memory", "start", "kill")


def tried(run: Callable[[], Outcome]) -> Outcome:
    """Runs a measurement; a failure is its outcome, too."""
    try:
        return run()
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return {"failed": reason[:REASON_MAX]}


def measure(peer: Peer, plan: Plan, keys: Collection[str]) -> dict[str, Outcome]:
    """Runs the chosen rows against a group that was just started."""
    found = {WARM_UP: tried(lambda: warm_up(peer))}
    for row in ROWS:
        if row.key not in keys:
            continue
        if dead := [pid for pid in peer.members.values() if not Path(f"/proc/{pid}").exists()]:
            found[row.key] = {"failed": f"the group has lost a member (process {dead[0]})"}
        else:
            found[row.key] = tried(functools.partial(row.run, peer, plan))
        print(f"{peer.name}, {row.key}: {found[row.key]}", file=sys.stderr, flush=True)
    return found


def measure_synced(peer: Peer, plan: Plan) -> Outcome:
    """Sends to one broker alone that syncs before it answers."""

    def run() -> Figures:
        warm_up(peer, SYNC_LIMIT_S)
        return send(FULL, peer, plan)

    return tried(run)


def catch_up(peer: Peer, _: Plan) -> Figures:
    """Seconds until a member that was stopped while the others took 1 GiB has all of it.

    In a group of its own: one that was stopped may be of less use to its group for a while.
    """
    peer.create_topic(TOPIC, QUEUES)
    leader = peer.leader()
    follower = next(address for address in peer.members if address != leader)
    with Remote(peer.namesrv) as remote:
        os.kill(peer.members[follower], signal.SIGSTOP)
        try:
            lacked = fill(peer, remote, leader)
        finally:
            os.kill(peer.members[follower], signal.SIGCONT)
        begun = time.perf_counter()
        while log_end(remote, leader) - log_end(remote, follower) >= NEAR_BYTES:
            if time.perf_counter() > begun + CATCH_UP_LIMIT_S:
                raise RuntimeError(f"not in step after {CATCH_UP_LIMIT_S:g} s")
            PAUSE.wait(LOOK_S)
    return {"s": time.perf_counter() - begun, "mb": lacked / 2**20}


def fill(peer: Peer, remote: Remote, leader: str) -> int:
    """Sends until the leader's log has grown by a gigabyte; returns by how much it has."""
    first, begun = log_end(remote, leader), time.perf_counter()
    while (grown := log_end(remote, leader) - first) < LACK_BYTES:
        if time.perf_counter() > begun + CATCH_UP_LIMIT_S:
            raise RuntimeError(f"{grown / 2**20:.0f} MiB taken in {CATCH_UP_LIMIT_S:g} s")
        run_json("load", *words_of(peer, FILL, TOPIC, LEAD_IN_S))
    return grown


def smallest_heap(version: str, seconds: float) -> Outcome:
    """Memory of Apache's leader with the smallest heap that carries a load.

    Raises:
        RuntimeError: none did.
    """
    reasons = []
    for heap_mb in HEAPS_MB:
        with java(version, heap_mb) as peer:
            outcome = tried(functools.partial(carried, peer, seconds))
        if "failed" not in outcome:
            return {"heap_mb": heap_mb, **outcome}
        reasons.append(f"{heap_mb} MiB: {outcome['failed']}")
    raise RuntimeError("; ".join(reasons))


def carried(peer: Peer, seconds: float) -> Figures:
    """Loads a group for a while; its memory, unless it refused messages or lacked memory."""
    peer.create_topic(TOPIC, QUEUES)
    run_json("load", *words_of(peer, FULL, TOPIC, HEAP_WINDOWS * seconds))
    for log in peer.folder.glob("*.log"):
        if "OutOfMemoryError" in log.read_text(errors="replace"):
            raise RuntimeError(f"OutOfMemoryError in {log.name}")
    return {"mb": peer.resident_mb()}
