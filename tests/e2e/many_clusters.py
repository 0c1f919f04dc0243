"""Clusters one after the other, as many as the argument says; prints what they left, as JSON."""

import gc
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from ledgermq.broker.service import BrokerService
from ledgermq.client import Message
from ledgermq.client.blocking import Producer
from ledgermq.testing import LedgerCluster
from tests.processes import listening_ports

# Each such cluster is used by a client before it ends.
USED_EVERY = 10


def one_cluster(is_used: bool) -> tuple[float, list[int], list[str]]:
    """Runs a cluster; returns seconds of its start, its ports, and calls that it left behind."""
    begun_s = time.monotonic()
    with LedgerCluster() as cluster:
        start_s = time.monotonic() - begun_s
        addresses = [cluster.name_server, cluster.address("n0")]
        if is_used:
            with Producer(cluster.name_server) as producer:
                producer.send(Message("T", b"x"))
                cluster.kill("n0")
    return start_s, [int(address.split(":")[1]) for address in addresses], cluster.leftovers


def mapped_files(folder: str) -> int:
    """How many mappings of files below a folder this process has."""
    return sum(folder in line for line in Path("/proc/self/maps").read_text().splitlines())


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def main(count: int) -> None:
    """Runs the clusters and prints the result."""
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        # Once, for all that is made once.
        one_cluster(is_used=True)
        with LedgerCluster() as cluster:
            # The look at ports sees them while they are there.
            assert int(cluster.name_server.split(":")[1]) in listening_ports(os.getpid())
        before, begun_s = descriptors(), time.monotonic()
        starts: list[float] = []
        ports: list[int] = []
        calls: list[str] = []
        for number in range(count):
            start_s, its_ports, its_calls = one_cluster(number % USED_EVERY == 0)
            starts.append(start_s)
            ports += its_ports
            calls += its_calls
        seconds = time.monotonic() - begun_s
        gc.collect()
        result = {
            "count": len(starts),
            "seconds": round(seconds, 2),
            "start_median_ms": round(statistics.median(starts) * 1000, 1),
            "start_max_ms": round(max(starts) * 1000, 1),
            "ports": sorted(listening_ports(os.getpid()).intersection(ports)),
            "threads": [thread.name for thread in threading.enumerate()],
            "descriptors": descriptors() - before,
            "calls": calls,
            "mappings": mapped_files(folder),
            "files": os.listdir(folder),
            "brokers": sum(isinstance(thing, BrokerService) for thing in gc.get_objects()),
        }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
