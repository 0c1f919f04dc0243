"""What a search in the console costs other clients: their p99, with it and without, in turns.

python -m bench.searched [15] [3] [1000000]       pairs, seconds of each, messages that are searched

A topic is filled, and a text that is in none of its messages is looked for, again and again, while
one client sends one message after the other. Both loads of a pair follow each other at once. The
processor time of the broker for a message that is looked at is told, too.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
from typing import Any, Final

from bench.cluster import Running, cluster, cpu_seconds
from bench.page import markdown
from tests.e2e.console.api_client import Api

_FULL, _OTHER = "Searched", "Other"
_BATCH: Final = 200
_ENDS: Final = ("done", "full", "budget", "stopped", "failed")
COLUMNS: Final = (
    "p99 of a send, searched / not (quarters; all)", "p99 searched, ms", "not, ms",
    "messages looked at", "of them a second", "broker µs each", "pairs",
)  # fmt: skip


def load(running: Running, topic: str, seconds: float, *words: str) -> dict[str, float]:
    """Runs the load program; returns its figures."""
    address = str(running.leader()["address"])
    options = ("--address", address, "--topic", topic, "--seconds", str(seconds), *words)
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", *options], check=True, capture_output=True, text=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


class Search:
    """A search that begins anew when it has seen all, until the block ends."""

    def __init__(self, api: Api, message_count: int) -> None:
        """Begins with the block."""
        self._api, self._count = api, message_count
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.scanned = 0

    def __enter__(self) -> Search:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        wanted = {"topic": _FULL, "text": "nowhere", "scan_max": self._count}
        while not self._ended.is_set():
            found: Any = self._api.call("start_search", wanted)
            state, scanned = "running", 0
            while state not in _ENDS and not self._ended.wait(0.2):
                seen = self._api.call("get_search", search=found.id)
                state, scanned = seen.state, seen.scanned
            self._api.call("stop_search", search=found.id)
            self.scanned += scanned


def measure(running: Running, pairs: int, seconds: float, message_count: int) -> tuple[str, ...]:
    """Fills the topic and runs the pairs; returns the row."""
    for topic in (_FULL, _OTHER):
        running.create_topic(topic, 4)
    filled = 0.0
    while filled < message_count:
        words = ("--batch", str(_BATCH), "--body-bytes", "100", "--in-flight", "4")
        filled += load(running, _FULL, 5.0, *words)["messages"]
    api = Api(running.up.console).opened()
    pid = int(str(running.leader()["pid"]))
    one = ("--connections", "1", "--in-flight", "1")
    load(running, _OTHER, seconds, *one)
    waits: tuple[list[float], list[float]] = ([], [])
    scanned, busy_s, costs = 0, 0.0, []
    for number in range(pairs):
        for at in (0, 1) if number % 2 else (1, 0):
            before = cpu_seconds(pid)
            if at:
                figures = load(running, _OTHER, seconds, *one)
                own_s = (cpu_seconds(pid) - before) / figures["messages"]
            else:
                with Search(api, message_count) as search:
                    figures = load(running, _OTHER, seconds, *one)
                scanned += search.scanned
                busy_s += seconds
                costs.append((cpu_seconds(pid) - before, figures["messages"], search.scanned))
            waits[at].append(figures["p99_ms"])
    spent = sum(cost - own_s * sent for cost, sent, _ in costs)
    ratios = sorted(with_it / without for with_it, without in zip(*waits, strict=True))
    quarters = statistics.quantiles(ratios, n=4)
    return (
        f"{statistics.median(ratios):.2f} ({quarters[0]:.2f}..{quarters[2]:.2f};"
        f" {ratios[0]:.2f}..{ratios[-1]:.2f})",
        *(f"{statistics.median(side):.2f}" for side in waits),
        f"{scanned:,}",
        f"{scanned / busy_s:,.0f}",
        f"{spent * 1e6 / max(scanned, 1):.2f}",
        str(pairs),
    )


def main() -> None:
    """Prints the table."""
    words = [*sys.argv[1:], *("15", "3", "1000000")[len(sys.argv) - 1 :]]
    with cluster(1, ("flushDiskType=ASYNC_FLUSH",), console=True) as running:
        row = measure(running, int(words[0]), float(words[1]), int(words[2]))
    print(markdown(COLUMNS, [row]))


if __name__ == "__main__":
    main()
