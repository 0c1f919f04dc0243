"""How long a follower needs that lacks a gigabyte, and what it costs the leader's clients.

python -m bench.catch_up [1024]     MiB that the follower lacks

The follower is stopped (SIGSTOP), the others take messages, then it is killed and started again. A
load of 4 x 64 messages in flight runs all the time, so the log goes on growing.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

from bench.cluster import Running, cluster
from ledgermq.cli.remote import AdminError, Remote
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import KVTable

LOAD_BYTES = 1024
FILL_BYTES = 10_240
ENTRY_BYTES_MORE = 250
TOPIC = "CatchUpTopic"
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


def load(running: Running, seconds: float, body_bytes: int = LOAD_BYTES) -> dict[str, float]:
    """Sends to the leader, 4 x 64 messages in flight; a follower may be down."""
    words = ["--address", str(running.leader()["address"]), "--topic", TOPIC]
    words += ["--seconds", str(seconds), "--body-bytes", str(body_bytes)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", *words], check=True, capture_output=True, text=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def rate(running: Running, windows: int = 3) -> float:
    """Messages a second, the median of some windows."""
    rates = [load(running, WINDOW_S)["messages_per_second"] for _ in range(windows)]
    return statistics.median(rates)


def fill(running: Running, total_bytes: int) -> int:
    """Sends until the log has grown by that much; returns by how much it has."""
    grown = 0
    while grown < total_bytes:
        messages = int(load(running, 1.0, FILL_BYTES)["messages"])
        grown += messages * (FILL_BYTES + ENTRY_BYTES_MORE)
    return grown


def main() -> None:
    """Prints one line."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    settings = [word for word in sys.argv[2:] if "=" in word]
    with cluster(3, tuple(settings)) as running:
        running.create_topic(TOPIC, 4)
        load(running, WINDOW_S)
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
            during.append(load(running, WINDOW_S)["messages_per_second"])
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
