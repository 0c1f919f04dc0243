"""What being watched costs a send: two groups side by side, one with port, Prometheus and console.

python -m bench.scraped [25] [2] [1] [5]    pairs, seconds of each, members, seconds between scrapes

First the ratio of the leader's processor time for one message: with `httpPort`, every member
scraped as Prometheus does it, and a console whose overview somebody looks at, to a group without
all that. All that the process does in that time counts, pages and the console's requests included.
Both groups are loaded one right after the other: only such pairs can be compared, and on a machine
that is busy otherwise a single pair does not tell percents apart; the median of many does.

The parts come before that, which such a machine tells, too: what a page takes of the leader's
processor time, what the port takes beside it (its samples of the reactor), what both are of a
second; and what all that, with the console's requests, takes of a second while there is no load.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

from bench.cluster import Running, cluster, cpu_seconds
from bench.page import markdown
from bench.signed import Side

TOPIC: Final = "Signed"
QUEUES: Final = 4
COLUMNS: Final = (
    "load", "leader µs, watched / plain (quarters; all)", "watched", "plain", "pages",
    "events of the overview", "pairs",
)  # fmt: skip
_IDLE: Final = ("leader's core without a load, watched", "plain")
# Seconds that a leader without a load is looked at, and pages that it writes then.
_IDLE_S: Final = 15.0
_PAGES: Final = 300
_ACCEPT: Final = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Scraper:
    """Reads the pages of some ports, each so often, in a thread."""

    def __init__(self, ports: list[int], every_s: float) -> None:
        """Begins with `run`."""
        self._ports, self._every_s = ports, every_s
        self._ended = threading.Event()
        self.page_count = 0

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Scrapes until the block ends."""
        thread = threading.Thread(target=self._scrape, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _scrape(self) -> None:
        while True:
            for port in self._ports:
                read_page(port)
                self.page_count += 1
            if self._ended.wait(self._every_s):
                return


class Viewer:
    """Looks at the overview of a console as a tab does: one stream of events, for its figures and
    those of the last hour.
    """

    def __init__(self, console: str) -> None:
        """Begins with `run`."""
        self._host = console.partition("://")[2].strip("/")
        self._connection: http.client.HTTPConnection | None = None
        self.event_count = 0

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Looks until the block ends."""
        connection = self._connection = http.client.HTTPConnection(self._host, timeout=60)
        connection.request("GET", "/api/v1/clusters")
        clusters = json.loads(connection.getresponse().read())["clusters"]
        path = f"/api/v1/clusters/{clusters[0]['id']}/events?parts=overview,history"
        connection.request("GET", path, headers={"Accept": "text/event-stream"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        sock = connection.sock
        thread = threading.Thread(target=self._read, args=(answer,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            if sock is not None:
                sock.shutdown(socket.SHUT_RDWR)
            thread.join()

    def _read(self, answer: http.client.HTTPResponse) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            while line := answer.readline():
                self.event_count += line.startswith(b"event: overview")


def first_free_port(nodes: int) -> int:
    """Returns a port that is free, as those ten and twenty above it."""
    for first in range(28_000, 32_000, 7):
        try:
            for at in range(nodes):
                with socket.socket() as listener:
                    listener.bind(("127.0.0.1", first + 10 * at))
            return first
        except OSError:
            continue
    raise RuntimeError("no free ports")


def cpu_between(pid: int, seconds: float) -> float:
    """Returns the processor time that a process takes while nothing is asked of it."""
    before = cpu_seconds(pid)
    threading.Event().wait(seconds)
    return (cpu_seconds(pid) - before) / seconds


def parts(scraped: Running, plain: Running, port: int, every_s: float) -> str:
    """Measures page and port by themselves, of leaders without a load; returns the table."""
    pids = [int(str(running.leader()["pid"])) for running in (scraped, plain)]
    with_port, without = (cpu_between(pid, _IDLE_S) for pid in pids)
    before, begun_s = cpu_seconds(pids[0]), time.monotonic()
    size = 0
    for _ in range(_PAGES):
        size = len(read_page(port))
    took_s = time.monotonic() - begun_s
    page_s = (cpu_seconds(pids[0]) - before - with_port * took_s) / _PAGES
    port_s = max(with_port - without, 0.0)
    share = page_s / every_s + port_s
    row = (f"{size:,}", f"{page_s * 1000:.2f}", f"{port_s * 1000:.2f}", f"{share:.2%}")
    return markdown(("bytes of a page", "ms a page", "ms a second of the port", "of a core"), [row])


def read_page(port: int) -> bytes:
    """Returns a page of metrics, as Prometheus gets it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics", headers={"Accept": _ACCEPT})
    page = connection.getresponse().read()
    connection.close()
    if not page.endswith(b"# EOF\n"):
        raise RuntimeError("a page was not whole")
    return page


def table(pairs: int, seconds: float, nodes: int, every_s: float) -> str:
    """Runs the pairs; returns the table."""
    flush = "flushDiskType=ASYNC_FLUSH"
    with contextlib.ExitStack() as ends:
        first = first_free_port(nodes)
        scraped = ends.enter_context(cluster(nodes, (flush, f"httpPort={first}"), console=True))
        plain = ends.enter_context(cluster(nodes, (flush,)))
        scraper = Scraper([first + 10 * at for at in range(nodes)], every_s)
        for running in (scraped, plain):
            running.create_topic(TOPIC, QUEUES)
        leader_at = int(str(scraped.leader()["id"]).removeprefix("n"))
        own = parts(scraped, plain, first + 10 * leader_at, every_s)
        ends.enter_context(scraper.run())
        viewer = Viewer(scraped.up.console)
        ends.enter_context(viewer.run())
        pids = [int(str(running.leader()["pid"])) for running in (scraped, plain)]
        watched_s, plain_s = (cpu_between(pid, _IDLE_S) for pid in pids)
        own += "\n" + markdown(_IDLE, [(f"{watched_s:.2%}", f"{plain_s:.2%}")])
        sides = Side(scraped, False), Side(plain, False)
        costs: tuple[list[float], list[float]] = ([], [])
        for side in sides:
            side.cost("load", seconds)
        for number in range(pairs):
            for at in (0, 1) if number % 2 else (1, 0):
                costs[at].append(sides[at].cost("load", seconds).leader_us)
    if not scraper.page_count or not viewer.event_count:
        raise RuntimeError("nobody looked")
    medians = [f"{statistics.median(side):.2f}" for side in costs]
    ratios = sorted(with_port / without for with_port, without in zip(*costs, strict=True))
    quarters = statistics.quantiles(ratios, n=4)
    ratio = (
        f"{statistics.median(ratios):.3f} ({quarters[0]:.3f}..{quarters[2]:.3f};"
        f" {ratios[0]:.3f}..{ratios[-1]:.3f})"
    )
    row = ("sends, 1 KiB, 4 x 64 in flight", ratio, *medians)
    return (
        own
        + "\n"
        + markdown(COLUMNS, [(*row, str(scraper.page_count), str(viewer.event_count), str(pairs))])
    )


def main() -> None:
    """Prints the table."""
    words = [*sys.argv[1:], *("25", "2", "1", "5")[len(sys.argv) - 1 :]]
    print(table(int(words[0]), float(words[1]), int(words[2]), float(words[3])))


if __name__ == "__main__":
    main()
