"""How long nobody leads when the leadership is handed on under load.

python -m bench.transfer [60]       so many transfers, from member to member
"""

from __future__ import annotations

import sys
import time

from bench.availability import senders_of, spread
from bench.cluster import cluster
from ledgermq.cli.leader import LedgerGroup
from ledgermq.cli.remote import Remote

GROUP = "broker-a"
# Between two transfers: the new leader's followers are in step again.
REST_S = 0.3


def main() -> None:
    """Prints one line."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    gaps_ms = []
    with cluster(3) as running, senders_of(running) as senders, Remote(running.namesrv) as remote:
        peers = {str(broker["id"]): str(broker["dledger"]) for broker in running.brokers()}
        group = LedgerGroup(remote, GROUP, peers)
        members = sorted(peers)
        for _ in range(count):
            leader_id, _ = group.find_leader()
            target_id = members[(members.index(leader_id) + 1) % len(members)]
            begun = time.perf_counter()
            group.hand_over(target_id)
            senders.wait_for_more(20)
            senders.rest(REST_S)
            gaps_ms.append(senders.longest_gap_ms(begun, time.perf_counter()))
        taken = len(senders.taken_at)
    print(f"transfers: no message taken for {spread(gaps_ms)}; {taken:,} messages meanwhile")


if __name__ == "__main__":
    main()
