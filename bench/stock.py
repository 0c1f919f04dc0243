"""Apache's own benchmark programs against a group: its producer, and its push consumer.

They are those of 4.7.0, the last of 4.x that Maven Central has, with the client of 4.9.3: beside
that of 4.9.7 they lack a class.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.peers import Peer
from tests.interop.builds import HERE, OPENED, maven_class_path

CLIENT = "4.9.3"
PRODUCER = "org.apache.rocketmq.example.benchmark.Producer"
CONSUMER = "org.apache.rocketmq.example.benchmark.Consumer"
# It prints a line of figures each ten seconds; the first is of the time in which the JVM compiles.
PRODUCER_LINES = 2
SEND_TPS = re.compile(r"Send TPS: (\d+).*?Average RT: *([\d.]+)")
LOOK_S = 0.1
DRAIN_S = 60.0
# The part of a backlog that is clocked; before it the JVM of the consumer starts and compiles.
CLOCKED = (0.4, 0.98)


@contextmanager
def program(main_class: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Runs one of the programs, and kills it in the end."""
    class_path = maven_class_path(HERE / "java" / "benchmark-pom.xml", CLIENT)
    command = ["java", "-Xmx512m", "-XX:+UseParallelGC", *OPENED, "-cp", class_path, main_class]
    with subprocess.Popen(
        [*command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def produce(peer: Peer, topic: str) -> dict[str, float]:
    """64 threads that each wait for their answer, messages of 1 KiB."""
    found: list[tuple[float, float]] = []
    words = ("-t", topic, "-w", "64", "-s", "1024", "-n", peer.namesrv)
    with program(PRODUCER, *words) as process:
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line
            found = [(float(tps), float(ms)) for tps, ms in SEND_TPS.findall(text)]
            if len(found) >= PRODUCER_LINES:
                break
    if len(found) < PRODUCER_LINES:
        raise RuntimeError(f"Apache's producer ended early:\n{text[-2000:]}")
    rate, mean_ms = found[-1]
    return {"messages_per_second": rate, "mean_ms": mean_ms}


def consume(peer: Peer, topic: str, count: int) -> dict[str, float]:
    """A new consumer group reads a topic of so many messages; the leader counts them.

    Its figures are of the time between two fifths of the messages and almost all.
    """
    before = peer.pulled_count()
    low, high = (int(count * share) for share in CLOCKED)
    first: tuple[float, int, float] | None = None
    pause = threading.Event()
    deadline = time.perf_counter() + DRAIN_S
    with program(CONSUMER, "-t", topic, "-n", peer.namesrv) as process:
        assert process.stdout is not None
        while True:
            taken, now = peer.pulled_count() - before, time.perf_counter()
            if first is None and taken >= low:
                first = now, taken, peer.cpu_seconds()
            elif first is not None and taken >= high:
                break
            if now > deadline or process.poll() is not None:
                process.kill()
                text = process.stdout.read()[-1500:]
                raise RuntimeError(f"Apache's consumer got {taken:,} of {count:,}:\n{text}")
            pause.wait(LOOK_S)
    used_s, messages = peer.cpu_seconds() - first[2], taken - first[1]
    return {
        "messages": messages,
        "messages_per_second": messages / (now - first[0]),
        "cpu_us": used_s * 1e6 / messages,
    }
