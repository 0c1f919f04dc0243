"""How long nobody leads when the members of a group are restarted one after the other under load.

python -m bench.rolling [10]        so many rounds over all three members

The probes alone say when: a member is stopped (SIGTERM, it ends in order) when `/quorum-safe` says
that it may be, `ledgermq up` starts it again, and the next one follows when `/readyz` of the new
process says that it is ready. Beside the senders that measure, one client of Python sends with its
retries, and counts the messages that it had to give up.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
import threading
import time

from bench.availability import Senders, senders_of, spread
from bench.cluster import Running, cluster
from bench.scraped import first_free_port
from ledgermq.client import ClientError, Message
from ledgermq.client.blocking import Producer

PATIENCE_S = 60.0
_CLIENT_TOPIC = "Rolling"
_BETWEEN_S = 0.005


class Client:
    """A producer that goes on until the block ends."""

    def __init__(self, name_server: str) -> None:
        """Begins with the block."""
        self._name_server = name_server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent_count = 0
        self.failures: list[str] = []

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with Producer(self._name_server) as producer:
            while not self._ended.wait(_BETWEEN_S):
                try:
                    producer.send(Message(_CLIENT_TOPIC, b"rolling"))
                    self.sent_count += 1
                except ClientError as error:
                    self.failures.append(str(error))


def find(running: Running, member: str) -> dict[str, object]:
    """What the ready file says of a member."""
    return next(dict(broker) for broker in running.brokers() if broker["id"] == member)


def says_yes(port: int, path: str) -> bool:
    """Whether a probe passes; one that nobody answers does not."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def wait_for(senders: Senders, port: int, path: str) -> None:
    """Asks a probe until it passes."""
    end_s = time.perf_counter() + PATIENCE_S
    while not says_yes(port, path):
        if time.perf_counter() > end_s:
            raise RuntimeError(f"{path} of port {port} does not pass")
        senders.rest(0.05)


def restart(running: Running, senders: Senders, member: str, port: int) -> float:
    """Restarts a member; returns the longest time in ms in which no message was taken."""
    wait_for(senders, port, "/quorum-safe")
    pid = int(str(find(running, member)["pid"]))
    begun = time.perf_counter()
    os.kill(pid, signal.SIGTERM)
    while find(running, member)["pid"] in (None, pid):
        if time.perf_counter() > begun + PATIENCE_S:
            raise RuntimeError(f"{member} does not come back")
        senders.rest(0.01)
    wait_for(senders, port, "/readyz")
    senders.wait_for_more(20)
    return senders.longest_gap_ms(begun, time.perf_counter())


def main() -> None:
    """Prints one line for each role, and one for the client."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    gaps_ms: dict[str, list[float]] = {"LEADER": [], "FOLLOWER": []}
    first = first_free_port(3)
    with cluster(3, (f"httpPort={first}",)) as running:
        running.create_topic(_CLIENT_TOPIC, 4)
        with senders_of(running) as senders, Client(running.namesrv) as client:
            for _ in range(rounds):
                for at, member in enumerate(("n0", "n1", "n2")):
                    role = str(find(running, member)["role"])
                    gaps_ms[role].append(restart(running, senders, member, first + 10 * at))
            taken = len(senders.taken_at)
    for role, values in gaps_ms.items():
        print(f"restart of a {role.lower()}: no message taken for {spread(values)}")
    print(f"{taken:,} messages meanwhile")
    print(f"a client with retries: {client.sent_count:,} sent, {len(client.failures)} given up")
    for failure in client.failures[:5]:
        print(f"  {failure}")


if __name__ == "__main__":
    main()
