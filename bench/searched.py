"""What a search in the console costs other clients: their p99, with it and without, in slices.

python -m bench.searched [80] [1] [1000000]   pairs of slices, seconds of each, messages searched

A topic is filled, and a text that is in none of its messages is looked for, again and again, while
one client sends one message after the other. In every second slice the console is stopped, and the
search with it; it goes on where it was. The p99 is that of all waits of a side together.

Before that the search has the broker for itself: what a message that is looked at takes of its
processor time is the time that it used more than without a search, for each of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from bench.cluster import Running, cluster, cpu_seconds
from bench.page import markdown
from bench.slices import Slice, Slices, median_of, pause, quantile_ms, quantile_ratio
from tests.e2e.console.api_client import Api

_FULL, _OTHER = "Searched", "Other"
_BATCH: Final = 200
_ENDS: Final = ("done", "full", "budget", "stopped", "failed")
_ALONE_S: Final = 15.0
# How often the console's page asks how far a search is, on one connection.
_ASKED_EACH_S: Final = 1.0
# What was under way at the console comes to its end.
_SETTLE_S: Final = 0.1
COLUMNS: Final = (
    "p99 of a send, searched / not (95 %)", "p99 searched, ms", "not, ms", "p50, searched / not",
    "broker µs of a send, searched / not (95 %)", "pairs",
)  # fmt: skip
_ALONE: Final = ("messages looked at a second", "broker µs each", "core of the broker")


def fill(running: Running, topic: str, seconds: float) -> float:
    """Runs the load program with batches; returns how many messages it stored."""
    address = str(running.leader()["address"])
    options = ("--address", address, "--topic", topic, "--seconds", str(seconds))
    words = ("--batch", str(_BATCH), "--body-bytes", "100", "--in-flight", "4")
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", *options, *words],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)["messages"])


class Search:
    """A search that begins anew when it has seen all, until the block ends."""

    def __init__(self, api: Api, message_count: int) -> None:
        """Begins with the block."""
        self._api, self._count = api, message_count
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._before = 0
        self._scanned = 0

    def __enter__(self) -> Search:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def scanned(self) -> int:
        """Messages looked at, of all searches."""
        return self._before + self._scanned

    def _run(self) -> None:
        wanted = {"topic": _FULL, "text": "nowhere", "scan_max": self._count, "seconds_max": 600}
        api = self._api
        with closing(HTTPConnection(api.host, api.port)) as page:
            while not self._ended.is_set():
                found: Any = api.call("start_search", wanted)
                path = api.target(
                    "/api/v1/clusters/{cluster}/searches/{search}", None, {"search": found.id}
                )
                state = "running"
                while state not in _ENDS and not self._ended.wait(_ASKED_EACH_S):
                    page.request("GET", path, headers={"Cookie": api.cookie})
                    seen: Any = json.loads(page.getresponse().read())
                    state, self._scanned = seen["state"], seen["scanned"]
                api.call("stop_search", search=found.id)
                self._before, self._scanned = self.scanned, 0


def console_of(running: Running) -> int:
    """Returns the process id of the console."""
    up = running.up.up.pid
    for path in Path("/proc").glob("[0-9]*/stat"):
        words = path.read_text().rpartition(")")[2].split()
        if int(words[1]) == up and b"\0console\0" in (path.parent / "cmdline").read_bytes():
            return int(path.parent.name)
    raise RuntimeError("there is no console")


def alone(pid: int, console: int, search: Search) -> str:
    """Measures the search by itself; returns the table."""
    os.kill(console, signal.SIGSTOP)
    pause(_SETTLE_S)
    before = cpu_seconds(pid)
    pause(_ALONE_S)
    idle_s = cpu_seconds(pid) - before
    os.kill(console, signal.SIGCONT)
    pause(1)
    before, seen, begun_s = cpu_seconds(pid), search.scanned, time.monotonic()
    pause(_ALONE_S)
    took_s, scanned = time.monotonic() - begun_s, search.scanned - seen
    used_s = cpu_seconds(pid) - before - idle_s * took_s / _ALONE_S
    row = (
        f"{scanned / took_s:,.0f}",
        f"{used_s * 1e6 / scanned:.2f}",
        f"{used_s / took_s:.1%}",
    )
    return markdown(_ALONE, [row])


def measure(running: Running, pairs: int, seconds: float, message_count: int) -> str:
    """Fills the topic and runs the pairs; returns the tables."""
    for topic in (_FULL, _OTHER):
        running.create_topic(topic, 4)
    filled = 0.0
    while filled < message_count:
        filled += fill(running, _FULL, 5.0)
    leader, console = running.leader(), console_of(running)
    pid, address = int(str(leader["pid"])), str(leader["address"])
    sides: tuple[list[Slice], list[Slice]] = ([], [])
    words = ("--connections", "1", "--in-flight", "1")
    with Search(Api(running.up.console).opened(), message_count) as search:
        own = alone(pid, console, search)
        with Slices(address, _OTHER, pid, *words) as slices:
            slices.run(seconds)
            try:
                for number in range(pairs):
                    for at in (0, 1) if number % 2 else (1, 0):
                        os.kill(console, signal.SIGSTOP if at else signal.SIGCONT)
                        pause(_SETTLE_S)
                        sides[at].append(slices.run(seconds))
            finally:
                os.kill(console, signal.SIGCONT)
    both = list(zip(*sides, strict=True))
    row = (
        quantile_ratio(both, 0.99),
        *(f"{quantile_ms(side, 0.99):.2f}" for side in sides),
        quantile_ratio(both, 0.5),
        median_of([with_it.cpu_us / without.cpu_us for with_it, without in both]),
        str(pairs),
    )
    return own + "\n\n" + markdown(COLUMNS, [row])


def main() -> None:
    """Prints the tables."""
    words = [*sys.argv[1:], *("80", "1", "1000000")[len(sys.argv) - 1 :]]
    with cluster(1, ("flushDiskType=ASYNC_FLUSH",), console=True) as running:
        print(measure(running, int(words[0]), float(words[1]), int(words[2])))


if __name__ == "__main__":
    main()
