"""What being watched costs a send: one broker, with port, Prometheus and console, and without.

python -m bench.scraped [300] [0.4]    pairs of slices, seconds of each

One broker is loaded in slices. In every second one its HTTP port does what it does, a page of
metrics is scraped each 5 s as Prometheus does it, and a console whose overview somebody looks at
asks what it asks. In the others the port rests (`bench.switched_process`), and the console is
stopped. It is the same process, so what differs is what is to be measured: its
processor time for one message, as the kernel counts it. All that the process does in that time
counts, pages and the console's requests included.

The parts come before that: what a page takes of the broker's processor time, and what it takes of
a core, watched and not, while there is no load.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.cluster import cpu_seconds
from bench.page import markdown
from bench.slices import Slice, Slices, cost_ratio, median_of, pause
from bench.switched_process import RESTS, WORKS
from tests.processes import ChildProcess, LiveProgram, broker, name_server, run_ledgermq

TOPIC: Final = "Watched"
QUEUES: Final = 4
COLUMNS: Final = (
    "load", "broker µs, watched / not, of all (95 %)", "median of the pairs", "watched", "not",
    "messages", "pages", "overviews", "pairs",
)  # fmt: skip
# Seconds that a broker without a load is looked at, and pages that it writes then.
_IDLE_S: Final = 15.0
_PAGES: Final = 300
_EVERY_S: Final = 5.0
# What was under way comes to its end.
_SWITCH_S: Final = 0.02
_ACCEPT: Final = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


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


class Watched:
    """A broker, a console, and a switch for all that watches.

    Attributes:
        pid: of the broker.
    """

    def __init__(self, program: LiveProgram, port: int, console: ChildProcess) -> None:
        """All of it runs."""
        self._port, self._console = port, console
        self.pid = program.pid
        self.page_count = 0
        # Seconds that were watched since the last page.
        self._since_s = 0.0

    def switch(self, is_on: bool) -> None:
        """Begins to watch, or rests."""
        os.kill(self.pid, WORKS if is_on else RESTS)
        os.kill(self._console.pid, signal.SIGCONT if is_on else signal.SIGSTOP)
        pause(_SWITCH_S)

    def scrape(self) -> int:
        """Reads a page; returns its size."""
        self.page_count += 1
        return len(read_page(self._port))

    def run(self, slices: Slices, is_on: bool, seconds: float) -> Slice:
        """Runs a slice, watched or not."""
        self.switch(is_on)
        self._since_s += seconds * is_on
        if not is_on or self._since_s < _EVERY_S:
            return slices.run(seconds)
        self._since_s = 0.0
        timer = threading.Timer(seconds / 2, self.scrape)
        timer.start()
        try:
            return slices.run(seconds)
        finally:
            timer.join()


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


def parts(watched: Watched) -> str:
    """Measures page, port and console by themselves, of a broker without a load."""
    shares = []
    for is_on in (True, False):
        watched.switch(is_on)
        before = cpu_seconds(watched.pid)
        pause(_IDLE_S)
        shares.append((cpu_seconds(watched.pid) - before) / _IDLE_S)
    size = watched.scrape()
    before = cpu_seconds(watched.pid)
    for _ in range(_PAGES):
        watched.scrape()
    page_s = (cpu_seconds(watched.pid) - before) / _PAGES
    row = (
        f"{size:,}", f"{page_s * 1000:.2f}", f"{page_s / _EVERY_S:.3%}", f"{shares[0]:.2%}",
        f"{shares[1]:.2%}",
    )  # fmt: skip
    columns = (
        "bytes of a page", "ms a page", "of a core, each 5 s", "core of port and console, no load",
        "without them",
    )  # fmt: skip
    return markdown(columns, [row])


def read_page(port: int) -> bytes:
    """Returns a page of metrics, as Prometheus gets it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics", headers={"Accept": _ACCEPT})
    page = connection.getresponse().read()
    connection.close()
    if not page.endswith(b"# EOF\n"):
        raise RuntimeError("a page was not whole")
    return page


@contextlib.contextmanager
def scene() -> Iterator[tuple[Watched, str, Viewer]]:
    """Runs name server, broker, console and viewer; gives the broker's address, too."""
    with contextlib.ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="ledgermq-bench-")))
        names = ends.enter_context(name_server(folder))
        port = first_free_port(1)
        program = ends.enter_context(
            broker(
                folder, "flushDiskType=ASYNC_FLUSH", f"httpPort={port}",
                "mappedFileSizeCommitLog=268435456", namesrv=names,
                command=(sys.executable, "-m", "bench.switched_process"),
            )
        )  # fmt: skip
        address = program.wait_until("serving").address
        words = ("updateTopic", "-n", names, "-c", "DefaultCluster", "-t", TOPIC)
        run_ledgermq("admin", *words, "-r", QUEUES, "-w", QUEUES).check_returncode()
        words = ("console", "--json", "--next-port", "-n", names, "--listen", "127.0.0.1:28900")
        console = ends.enter_context(LiveProgram(words, folder / "console.log"))
        # A stopped process does not end in order.
        ends.callback(lambda: os.kill(console.pid, signal.SIGCONT))
        url = str(console.wait_until("url").status["url"])
        viewer = Viewer(url)
        ends.enter_context(viewer.run())
        yield Watched(program, port, console), address, viewer


def table(pairs: int, seconds: float) -> str:
    """Runs the pairs; returns the tables."""
    costs: tuple[list[Slice], list[Slice]] = ([], [])
    with scene() as (watched, address, viewer):
        own = parts(watched)
        before = watched.page_count
        with Slices(address, TOPIC, watched.pid) as slices:
            watched.run(slices, True, seconds)
            for number in range(pairs):
                # Neither is always the first.
                for at in (0, 1) if number % 2 else (1, 0):
                    costs[at].append(watched.run(slices, at == 0, seconds))
        pages = watched.page_count - before
    if not pages or not viewer.event_count:
        raise RuntimeError("nobody looked")
    both = list(zip(*costs, strict=True))
    row = (
        "sends, 1 KiB, 4 x 64 in flight", cost_ratio(both),
        median_of([on.cpu_us / off.cpu_us for on, off in both]),
        *(f"{statistics.median(one.cpu_us for one in side):.2f}" for side in costs),
        f"{sum(one.messages for side in costs for one in side):,}", str(pages),
        str(viewer.event_count), str(pairs),
    )  # fmt: skip
    return own + "\n\n" + markdown(COLUMNS, [row])


def main() -> None:
    """Prints the tables."""
    words = [*sys.argv[1:], *("300", "0.4")[len(sys.argv) - 1 :]]
    print(table(int(words[0]), float(words[1])))


if __name__ == "__main__":
    main()
