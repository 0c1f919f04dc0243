"""How long nobody leads when the members of a group are restarted one after the other under load.

python -m bench.rolling [10]        so many rounds over all three members

A member gets SIGTERM, ends in order and is started again by `ledgermq up`; the next one follows
when it takes part again.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from bench.availability import Senders, senders_of, spread
from bench.cluster import Running, cluster

# Between two steps: the member that is back has what the others have.
REST_S = 2.0
PATIENCE_S = 60.0


def find(running: Running, member: str) -> dict[str, object]:
    """What the ready file says of a member."""
    return next(broker for broker in running.brokers() if broker["id"] == member)


def restart(running: Running, senders: Senders, member: str) -> float:
    """Restarts a member; returns the longest time in ms in which no message was taken."""
    pid = int(str(find(running, member)["pid"]))
    begun = time.perf_counter()
    os.kill(pid, signal.SIGTERM)
    while True:
        broker = find(running, member)
        if broker["pid"] not in (None, pid) and broker["role"] in ("FOLLOWER", "LEADER"):
            break
        if time.perf_counter() > begun + PATIENCE_S:
            raise RuntimeError(f"{member} does not come back")
        senders.rest(0.01)
    senders.wait_for_more(20)
    senders.rest(REST_S)
    return senders.longest_gap_ms(begun, time.perf_counter())


def main() -> None:
    """Prints one line for each role."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    gaps_ms: dict[str, list[float]] = {"LEADER": [], "FOLLOWER": []}
    with cluster(3) as running, senders_of(running) as senders:
        for _ in range(rounds):
            for member in ("n0", "n1", "n2"):
                role = str(find(running, member)["role"])
                gaps_ms[role].append(restart(running, senders, member))
        taken = len(senders.taken_at)
    for role, values in gaps_ms.items():
        print(f"restart of a {role.lower()}: no message taken for {spread(values)}")
    print(f"{taken:,} messages meanwhile")


if __name__ == "__main__":
    main()
