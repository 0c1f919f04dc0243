"""Three member processes that are killed and started one by one, and all that was acknowledged."""

import re
import shutil
import sys
import threading
from collections import Counter
from pathlib import Path

from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.checksum import crc32c
from tests.free_ports import free_ports
from tests.line_process import LineProcess, wait_for_leader, wait_until_equal
from tests.replica_member import INDEX_SEGMENT_BYTES, SEGMENT_BYTES
from tests.waiting import wait_until

MEMBERS = ("n0", "n1", "n2")


class KilledGroup:
    """Three member processes whose leader feeds itself, and all that was acknowledged."""

    def __init__(self, directory: Path, flush: str) -> None:
        ports = free_ports(3)
        self.peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
        self.directory = directory
        self.flush = flush
        self.members: dict[str, LineProcess] = {}
        self.acked: set[bytes] = set()
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._run_count = 0

    def start(self, member_id: str, *, feeds: bool = True) -> None:
        self._run_count += 1
        words = [sys.executable, "-m", "tests.replica_member", "--self-id", member_id]
        words += ["--peers", self.peers, "--directory", str(self.directory)]
        words += ["--flush", self.flush, "--run-id", f"run{self._run_count}"]
        words += ["--feed"] if feeds else []
        log_path = self.directory / f"{member_id}.log"
        self.members[member_id] = LineProcess(words, log_path, self._hear)

    def _hear(self, line: str) -> None:
        word, *rest = line.split()
        with self._lock:
            if word == "acked":
                run, first, end = rest
                self.acked.update(b"%s:%d" % (run.encode(), i) for i in range(int(first), int(end)))
            else:
                self.failures.append(line)

    def kill(self, member_id: str) -> None:
        self.members.pop(member_id).kill()

    def wait_for_acks(self, count: int) -> None:
        goal = len(self.acked) + count
        wait_until(lambda: len(self.acked) >= goal, what=f"{count} acknowledgements")

    def wait_until_all_count(self) -> None:
        """Waits until no member recovers: one that came to a new group too late to vote does."""
        wait_until(
            lambda: all(member.ask("counts") == "counts yes" for member in self.members.values()),
            what="members that all count",
        )

    def bodies(self, member_id: str) -> list[bytes]:
        store = DLedgerMmapFileStore(
            RealFileSystem(),
            str(self.directory / f"dledger-{member_id}"),
            SEGMENT_BYTES,
            INDEX_SEGMENT_BYTES,
            EntryCodec(crc32c),
        )
        store.open()
        bodies: list[bytes] = []
        index = store.first_index
        while index <= store.last_index:
            run = store.read(index, SEGMENT_BYTES)
            bodies += map(bytes, run.bodies())
            index = run.last_index + 1
        store.close()
        return bodies

    def log_text(self, member_id: str) -> str:
        """All that a member has ever logged."""
        return (self.directory / f"{member_id}.log").read_text(encoding="utf-8")

    def wipe(self, member_id: str) -> None:
        """Puts an empty disk in the place of a member's, which is kept the first time."""
        path, kept = self.directory / f"dledger-{member_id}", self._kept(member_id)
        if kept.exists():
            shutil.rmtree(path)
        else:
            path.rename(kept)

    def put_back(self, member_id: str) -> None:
        """The member has its own disk again."""
        path = self.directory / f"dledger-{member_id}"
        shutil.rmtree(path, ignore_errors=True)
        self._kept(member_id).rename(path)

    def _kept(self, member_id: str) -> Path:
        return self.directory / f"kept-{member_id}"


def judge(group: KilledGroup) -> None:
    """Stops feeding, lets all members become equal, and compares what they hold with the acks."""
    for member_id in list(group.members):
        group.kill(member_id)
    for member_id in MEMBERS:
        group.start(member_id, feeds=False)
    wait_for_leader(group.members)
    wait_until_equal(group.members)
    for member in group.members.values():
        member.stop()
    group.members.clear()
    first, *others = map(group.bodies, MEMBERS)
    assert all(other == first for other in others)
    fed = [body.rpartition(b":")[0] for body in first if re.match(rb"run\d+:", body)]
    assert group.acked <= set(fed)
    assert max(Counter(fed).values()) == 1
    assert group.failures == []
