"""Groups that mix members of ours with stock DLedger 0.3.1.2: each leads, each follows.

The data files of all members must be the same, byte for byte, up to the committed end: a Java
member stores the checksums that we fill, we store the zeros that it leaves there.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.dledger.entry import HEAD_BYTES, EntryCodec, read_head
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.checksum import crc32c
from tests.free_ports import free_ports
from tests.interop import builds
from tests.line_process import LineProcess, wait_for_leader, wait_until_equal
from tests.replica_member import GROUP, INDEX_SEGMENT_BYTES, SEGMENT_BYTES

JAVA = "java"
PYTHON = "python"
REMOTING_VERSION = "4.9.4"
# Long enough that a test rolls into the second data segment.
LONG_PREFIX = "x" * 1200


def dledger_program() -> list[str]:
    """Compiles DLedgerNode; returns the command that runs it."""
    folder = builds.HERE / "java"
    source = folder / "DLedgerNode.java"
    class_path = builds.maven_class_path(folder / "dledger-pom.xml", REMOTING_VERSION)
    with builds.build_lock("java-DLedgerNode") as directory:
        stamp = directory / "stamp"
        if not builds.is_fresh(stamp, [source], class_path):
            words = ["javac", "--release", "17", "-cp", class_path, "-d", str(directory)]
            builds.run_tool([*words, str(source)], cwd=directory)
            builds.write_stamp(stamp, [source], class_path)
    class_path = f"{directory}{os.pathsep}{class_path}"
    return ["java", "-Xms64m", "-Xmx256m", "-cp", class_path, "DLedgerNode"]


class MixedGroup:
    """Members n0, n1, n2, each of its kind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports(3)
        self.peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
        self.kinds: dict[str, str] = {}
        self.members: dict[str, LineProcess] = {}
        self.is_batch_pushing = False
        # Lines of members of ours that answer nothing: failures.
        self.complaints: list[str] = []

    def start(self, *kinds: str) -> None:
        """Starts the next members, one of each of these kinds."""
        for kind in kinds:
            member_id = f"n{len(self.kinds)}"
            self.kinds[member_id] = kind
            self.start_again(member_id)

    def start_again(self, member_id: str) -> None:
        log_path = self.directory / f"{member_id}.log"
        if self.kinds[member_id] == JAVA:
            sizes = [str(SEGMENT_BYTES), str(INDEX_SEGMENT_BYTES)]
            words = [*dledger_program(), member_id, self.peers, str(self.directory), GROUP, *sizes]
            words.append(str(self.is_batch_pushing).lower())
            # DLedger prints warnings of its own on standard output.
            self.members[member_id] = LineProcess(words, log_path)
            return
        words = [sys.executable, "-m", "tests.replica_member", "--self-id", member_id]
        words += ["--peers", self.peers, "--directory", str(self.directory)]
        self.members[member_id] = LineProcess(words, log_path, self.complaints.append)

    def kill(self, member_id: str) -> None:
        self.members.pop(member_id).kill()

    def leader_id(self) -> str:
        return wait_for_leader(self.members)

    def append(self, count: int, prefix: str) -> None:
        """Appends through the leader; all must be committed."""
        assert self.members[self.leader_id()].append(count, prefix) == count

    def judge(self) -> list[bytes]:
        """Stops all members when they are equal, compares their files; returns the bodies."""
        wait_until_equal(self.members)
        for member_id in list(self.members):
            self.members.pop(member_id).stop()
        stores = [self._open(member_id) for member_id in self.kinds]
        data = [self._data(member_id, store) for member_id, store in stores]
        assert data[1] == data[0]
        assert data[2] == data[0]
        bodies = self._bodies(stores[0][1])
        for _, store in stores:
            store.close()
        assert self.complaints == []
        return bodies

    def filled_counts(self) -> tuple[int, int]:
        """Entries with checksums and without, in the log of n0."""
        _, store = self._open("n0")
        heads = [store.head_at(i) for i in range(store.first_index, store.last_index + 1)]
        store.close()
        filled = sum(1 for head in heads if head.body_crc or head.chain_crc)
        return filled, len(heads) - filled

    def _open(self, member_id: str) -> tuple[str, DLedgerMmapFileStore]:
        """Opens a store, ours or Java's: the recovery walks it and checks what can be checked."""
        store = DLedgerMmapFileStore(
            RealFileSystem(),
            str(self.directory / f"dledger-{member_id}"),
            SEGMENT_BYTES,
            INDEX_SEGMENT_BYTES,
            EntryCodec(crc32c),
        )
        store.open()
        return member_id, store

    def _data(self, member_id: str, store: DLedgerMmapFileStore) -> bytes:
        folder = self.directory / f"dledger-{member_id}" / "data"
        data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        return data[: store.end_position]

    def _bodies(self, store: DLedgerMmapFileStore) -> list[bytes]:
        bodies: list[bytes] = []
        index = store.first_index
        while index <= store.last_index:
            run = store.read(index, SEGMENT_BYTES)
            bodies += map(bytes, run.bodies())
            index = run.last_index + 1
        return bodies


@pytest.fixture
def group(tmp_path: Path) -> Iterator[MixedGroup]:
    group = MixedGroup(tmp_path)
    yield group
    for member_id in list(group.members):
        group.kill(member_id)


def expected(count: int, prefix: str) -> list[bytes]:
    return [f"{prefix}{i}".encode() for i in range(count)]


@pytest.mark.parametrize("is_batch_pushing", [False, True])
def test_our_member_follows_a_java_leader(group: MixedGroup, is_batch_pushing: bool) -> None:
    group.is_batch_pushing = is_batch_pushing
    group.start(JAVA, JAVA)
    first_prefix = LONG_PREFIX + ":"
    group.append(1000, first_prefix)
    group.start(PYTHON)
    assert group.kinds[group.leader_id()] == JAVA
    group.append(300, "after:")
    bodies = group.judge()
    assert bodies == expected(1000, first_prefix) + expected(300, "after:")
    assert group.filled_counts() == (0, 1300)


def test_java_member_follows_our_leader(group: MixedGroup) -> None:
    group.start(PYTHON, PYTHON)
    first_prefix = LONG_PREFIX + ":"
    group.append(1000, first_prefix)
    group.start(JAVA)
    assert group.kinds[group.leader_id()] == PYTHON
    group.append(300, "after:")
    bodies = [body for body in group.judge() if not body.endswith(b"opens")]
    assert bodies == expected(1000, first_prefix) + expected(300, "after:")
    assert group.filled_counts()[1] == 0


@pytest.mark.parametrize("kinds", [(JAVA, PYTHON, PYTHON), (JAVA, JAVA, PYTHON)])
def test_leadership_moves_between_kinds_and_nothing_is_lost(
    group: MixedGroup, kinds: tuple[str, str, str]
) -> None:
    group.start(*kinds)
    bodies: list[bytes] = []
    led: list[str] = []
    for turn in range(3):
        leader_id = group.leader_id()
        led.append(group.kinds[leader_id])
        group.append(100, f"turn{turn}:")
        bodies += expected(100, f"turn{turn}:")
        group.kill(leader_id)
        group.append(50, f"without{turn}:")
        bodies += expected(50, f"without{turn}:")
        group.start_again(leader_id)
    group.append(10, "end:")
    bodies += expected(10, "end:")
    print(f"led in turn: {', '.join(led)}")
    assert [body for body in group.judge() if not body.endswith(b"opens")] == bodies


def test_heads_are_laid_out_alike() -> None:
    """The codec reads a head that Java wrote: "hello", the first entry of term 1."""
    written = bytes.fromhex(
        "00000001" "00000035" "0000000000000000" "0000000000000001" "0000000000000000"
        "00000000" "00000000" "00000000" "00000005" "68656c6c6f"
    )  # fmt: skip
    head = read_head(written)
    assert (head.size, head.index, head.term, head.body_bytes) == (HEAD_BYTES + 5, 0, 1, 5)
