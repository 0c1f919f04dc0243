"""How much a replicated entry costs: three replicas, one process each, fed at the leader.

The leader proposes prebuilt bodies so that a fixed number is in flight; broker, commit log and
clients are not there. Printed are entries a second and CPU microseconds an entry in each process,
beside the limit: encoding and writing the same entries in one process that talks to nobody.

    python -m bench.bench_push [--flush SYNC_FLUSH] [--body 1200] [--in-flight 256] [--seconds 5]
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor

from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.replica import FlushDiskType, Replica, ReplicaConfig
from ledgermq.dledger.store.entry_index import INDEX_SEGMENT_BYTES
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.vote_file import VoteFile
from ledgermq.protocol.checksum import crc32c
from tests.free_ports import free_ports

SEGMENT_BYTES = 256 << 20
BATCH_COUNT = 64
WARM_UP_S = 1.0
REPORT_INTERVAL_S = 0.25

reactor: Any = _reactor


class Feeder:
    """The Applier of a member; on the leader it keeps entries in flight."""

    def __init__(self, body_bytes: int, in_flight: int) -> None:
        self.bodies = [random.Random(i).randbytes(body_bytes) for i in range(BATCH_COUNT)]
        self.in_flight = in_flight
        self.replica: Replica | None = None
        self.is_feeding = False
        self.last_index = -1

    def committed(self, start_index: int, end_index: int) -> None:
        if self.is_feeding:
            reactor.callLater(0, self.feed, end_index)

    def feed(self, end_index: int) -> None:
        """Proposes batches until enough is in flight."""
        assert self.replica is not None
        while self.is_feeding:
            room = self.in_flight - (self.last_index - end_index + 1)
            if room < min(BATCH_COUNT, self.in_flight):
                return
            self.last_index = self.replica.propose(self.bodies[:room])[-1].last_index

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        self.is_feeding = is_ready
        if is_ready and self.replica is not None:
            self.last_index = self.replica.commit_index
            reactor.callLater(0, self.feed, self.last_index + 1)

    def failed(self, error: BaseException) -> None:
        raise SystemExit(f"replica failed: {error}")


def run_member(options: argparse.Namespace) -> None:
    """Runs one member until its standard input is closed; reports as JSON lines."""
    reactor.seconds = time.monotonic
    directory = Path(options.directory) / f"dledger-{options.member}"
    directory.mkdir(parents=True)
    codec, file_system = EntryCodec(crc32c), RealFileSystem()
    store = DLedgerMmapFileStore(
        file_system, str(directory), SEGMENT_BYTES, INDEX_SEGMENT_BYTES, codec
    )
    store.open()
    config = ReplicaConfig(
        group="bench",
        self_id=options.member,
        peers=options.peers,
        listen_host="127.0.0.1",
        flush_disk_type=FlushDiskType(options.flush),
    )
    feeder = Feeder(options.body, options.in_flight)
    replica = feeder.replica = Replica(
        config,
        reactor,
        store,
        VoteFile(file_system, str(directory), options.member),
        codec,
        random.Random(options.member),
        feeder,
        lambda term, last: b"opening",
    )

    def report() -> None:
        line = {
            "role": replica.role.name,
            "commit_index": replica.commit_index,
            "cpu_s": time.process_time(),
            "wall_s": time.monotonic(),
        }
        print(json.dumps(line), flush=True)
        reactor.callLater(REPORT_INTERVAL_S, report)

    def begin() -> None:
        replica.start()
        report()
        gc.freeze()

    reactor.callWhenRunning(begin)
    if options.profile and options.member == options.profile:
        profile = cProfile.Profile()
        reactor.callLater(options.seconds + 1, profile.print_stats, "tottime")
        reactor.callLater(options.seconds, profile.disable)
        profile.enable()
    reactor.run()


def measure_limit(options: argparse.Namespace, directory: Path) -> float:
    """Encodes and writes the same entries here; returns CPU microseconds an entry."""
    codec = EntryCodec(crc32c)
    store = DLedgerMmapFileStore(
        RealFileSystem(), str(directory / "limit"), SEGMENT_BYTES, INDEX_SEGMENT_BYTES, codec
    )
    (directory / "limit").mkdir()
    store.open()
    bodies = Feeder(options.body, 1).bodies
    rounds = min(500, SEGMENT_BYTES // (BATCH_COUNT * (options.body + 100)))
    begun_s = time.process_time()
    for _ in range(rounds):
        store.append(
            codec.encode(
                bodies,
                first_index=store.last_index + 1,
                term=1,
                position=store.end_position,
                previous_chain_crc=store.last_chain_crc,
            )
        )
    spent_s = time.process_time() - begun_s
    store.close()
    return spent_s / (rounds * BATCH_COUNT) * 1e6


def run_group(options: argparse.Namespace, directory: Path) -> list[list[dict[str, Any]]]:
    """Runs three members for the time asked for; returns the reports of each."""
    ports = free_ports(3)
    peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
    words = [sys.executable, "-m", "bench.bench_push", "--peers", peers, *sys.argv[1:]]
    processes = [
        subprocess.Popen(
            [*words, "--member", f"n{i}", "--directory", str(directory)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(3)
    ]
    try:
        processes[0].wait(options.seconds + 2 * WARM_UP_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in processes:
            process.kill()
    outputs = [process.communicate()[0].splitlines() for process in processes]
    if options.profile:
        print("\n".join(line for output in outputs for line in output if line[:1] != "{"))
    return [[json.loads(line) for line in lines if line[:1] == "{"] for lines in outputs]


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flush", default="SYNC_FLUSH", choices=[f.value for f in FlushDiskType])
    parser.add_argument("--body", type=int, default=1200)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--profile", default="", help="id of a member to profile")
    for hidden in ("--member", "--peers", "--directory"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        run_member(options)
        return 0
    with tempfile.TemporaryDirectory(prefix="ledgermq-push-") as folder:
        limit_us = measure_limit(options, Path(folder))
        reports = run_group(options, Path(folder))
    print(f"{options.flush}, body {options.body} B, {options.in_flight} in flight")
    for lines in sorted(reports, key=lambda lines: lines[-1]["role"], reverse=True):
        led = next(line["wall_s"] for line in lines if line["commit_index"] >= 0)
        first = next(line for line in lines if line["wall_s"] >= led + WARM_UP_S)
        count = lines[-1]["commit_index"] - first["commit_index"]
        cpu_us = (lines[-1]["cpu_s"] - first["cpu_s"]) / count * 1e6
        rate = count / (lines[-1]["wall_s"] - first["wall_s"])
        ratio = cpu_us / limit_us
        print(
            f"{lines[-1]['role']:8} {rate:9,.0f} entries/s {cpu_us:6.2f} us CPU an entry,"
            f" {ratio:.1f} times encoding and writing alone ({limit_us:.2f} us)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
