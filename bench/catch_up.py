"""How long a follower needs that lacks a gigabyte, and what it costs the leader's clients.

python -m bench.catch_up [1024]     MiB that the follower lacks

The follower is stopped (SIGSTOP), the others take messages, then it is killed and started again. A
load of 4 x 64 messages in flight runs all the time, so the log goes on growing.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
import time

from bench.cluster import Running, cluster
from bench.end_to_end import TOPIC, Row, measure
from ledgermq.cli.remote import AdminError, Remote
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import KVTable

LOAD = Row("1 KiB, 4 x 64 in flight")
FILL = Row("10 KiB, 4 x 64 in flight", body_bytes=10_240)
ENTRY_BYTES_MORE = 250
WINDOW_S = 2.0
# Nearer than this the follower is in step: less than what is in flight.
NEAR_BYTES = 1 << 20
LOOK_S = 0.05
PATIENCE_S = 600.0


class Watch(threading.Thread):
    """Looks how far a follower is behind its leader, until it is not."""

    def __init__(self, running: Running, leader: str, follower: str) -> None:
        super().__init__(daemon=True)
        self._addresses = leader, follower
        self._namesrv = running.namesrv
        self.is_near = threading.Event()
        self.begun = time.perf_counter()
        self.needed_s = 0.0

    def run(self) -> None:
        with Remote(self._namesrv) as remote:
            while not self.is_near.wait(LOOK_S):
                try:
                    ends = [log_end(remote, address) for address in self._addresses]
                except AdminError:
                    # It is being started.
                    continue
                if ends[0] - ends[1] < NEAR_BYTES:
                    self.needed_s = time.perf_counter() - self.begun
                    self.is_near.set()


def log_end(remote: Remote, address: str) -> int:
    """Where the committed log of a member ends."""
    answer = remote.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return int(KVTable.decode(answer.body).table["commitLogMaxOffset"])


def rate(running: Running, windows: int = 3) -> float:
    """Messages a second, the median of some windows."""
    rates = [measure(LOAD, running, WINDOW_S)["messages_per_second"] for _ in range(windows)]
    return statistics.median(rates)


def fill(running: Running, total_bytes: int) -> int:
    """Sends until the log has grown by that much; returns by how much it has."""
    grown = 0
    while grown < total_bytes:
        messages = int(measure(FILL, running, 1.0)["messages"])
        grown += messages * (FILL.body_bytes + ENTRY_BYTES_MORE)
    return grown


def main() -> None:
    """Prints one line."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    settings = [word for word in sys.argv[2:] if "=" in word]
    with cluster(3, tuple(settings)) as running:
        running.create_topic(TOPIC, 4)
        measure(LOAD, running, WINDOW_S)
        follower = next(broker for broker in running.brokers() if broker["role"] == "FOLLOWER")
        pid, address = int(str(follower["pid"])), str(follower["address"])
        os.kill(pid, signal.SIGSTOP)
        try:
            lack = fill(running, megabytes * 2**20)
            before = rate(running)
        finally:
            os.kill(pid, signal.SIGKILL)
        watch = Watch(running, str(running.leader()["address"]), address)
        watch.start()
        during = []
        while not watch.is_near.is_set():
            during.append(measure(LOAD, running, WINDOW_S)["messages_per_second"])
            if time.perf_counter() > watch.begun + PATIENCE_S:
                raise RuntimeError("the follower does not catch up")
        watch.join()
        after = rate(running)
    print(
        f"{lack / 2**20:,.0f} MiB behind, and the log growing: in step after {watch.needed_s:.1f} s"
        f" (start of the process included); messages/s of the leader: {before:,.0f} while it was"
        f" down, {statistics.median(during):,.0f} ({min(during):,.0f}..{max(during):,.0f})"
        f" meanwhile, {after:,.0f} with all three in step"
    )


if __name__ == "__main__":
    main()
