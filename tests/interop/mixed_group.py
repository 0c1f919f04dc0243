"""Groups that mix members of ours with stock DLedger 0.3.1.2, as processes, and their judge."""

import os
import sys
from pathlib import Path

from ledgermq.cli.leader import LedgerGroup
from ledgermq.cli.remote import AdminError, Remote
from ledgermq.dledger.addresses import parse_peers
from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.checksum import crc32c
from tests.free_ports import free_ports
from tests.interop import builds
from tests.interop.replicas import LogFiles
from tests.line_process import LineProcess, wait_for_leader, wait_until_equal
from tests.replica_member import GROUP, INDEX_SEGMENT_BYTES, SEGMENT_BYTES
from tests.waiting import wait_until

JAVA = "java"
PYTHON = "python"
# Release of DLedger -> the pom and the release of RocketMQ that bring it.
DLEDGER_RELEASES = {
    "0.3.1.2": ("dledger-pom.xml", "4.9.4"),
    "0.2.3": ("broker-pom.xml", "4.9.3"),
}
MIB = 1 << 20
# Bytes of one unit of the index.
UNIT_BYTES = 32


def dledger_program(release: str) -> list[str]:
    """Compiles DLedgerNode against a release of DLedger; returns the command that runs it."""
    folder = builds.HERE / "java"
    source = folder / "DLedgerNode.java"
    pom, rocketmq_version = DLEDGER_RELEASES[release]
    class_path = builds.maven_class_path(folder / pom, rocketmq_version)
    with builds.build_lock(f"java-DLedgerNode-{release}") as directory:
        stamp = directory / "stamp"
        if not builds.is_fresh(stamp, [source], class_path):
            words = ["javac", "--release", "17", "-cp", class_path, "-d", str(directory)]
            builds.run_tool([*words, str(source)], cwd=directory)
            builds.write_stamp(stamp, [source], class_path)
    class_path = f"{directory}{os.pathsep}{class_path}"
    return ["java", "-Xms64m", "-Xmx256m", *builds.OPENED, "-cp", class_path, "DLedgerNode"]


class MixedGroup:
    """Members n0, n1, n2, each of its kind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports(3)
        self.peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
        self.kinds: dict[str, str] = {}
        self.members: dict[str, LineProcess] = {}
        # Of the Java members.
        self.release = "0.3.1.2"
        self.is_batch_pushing = False
        # Followers that lack so much are brought up at so many bytes a second, by both kinds.
        self.throttle_far_bytes = 300 * MIB
        self.throttle_quota_bytes = 20 * MIB
        # Members whose presence a birth needs; none named: all of them.
        self.founder_ids: tuple[str, ...] = ()
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
            words = [*dledger_program(self.release), member_id, self.peers]
            words += [str(self.directory), GROUP, *sizes]
            words.append(str(self.is_batch_pushing).lower())
            words += [str(self.throttle_far_bytes), str(self.throttle_quota_bytes)]
            # DLedger prints warnings of its own on standard output.
            self.members[member_id] = LineProcess(words, log_path)
            return
        words = [sys.executable, "-m", "tests.replica_member", "--self-id", member_id]
        words += ["--peers", self.peers, "--directory", str(self.directory)]
        words += ["--throttle-far-bytes", str(self.throttle_far_bytes)]
        words += ["--throttle-quota-bytes", str(self.throttle_quota_bytes)]
        words += ["--founders", *self.founder_ids]
        self.members[member_id] = LineProcess(words, log_path, self.complaints.append)

    def kill(self, member_id: str) -> None:
        """Kills a member; one of Java not before it holds what the others hold.

        One that dies while it makes a file leaves it empty, and ends at its next start.
        """
        member = self.members[member_id]
        if self.kinds[member_id] == JAVA:
            last_index = max(other.state().last_index for other in self.members.values())
            wait_until(
                lambda: member.state().last_index >= last_index, what=f"{member_id} to catch up"
            )
        del self.members[member_id]
        member.kill()

    def kill_all(self) -> None:
        """Kills all members as they are; they are not started again."""
        for member in self.members.values():
            member.kill()
        self.members.clear()

    def leader_id(self) -> str:
        return wait_for_leader(self.members)

    def append(self, count: int, prefix: str) -> None:
        """Appends through the leader; all must be committed."""
        assert self.members[self.leader_id()].append(count, prefix) == count

    def lead(self, target_id: str) -> None:
        """Makes a member the leader, over the wire as operators do.

        Both kinds refuse while the member lacks 1,000 entries, so it is tried again.
        """
        peers = {peer_id: str(address) for peer_id, address in parse_peers(self.peers).items()}
        refusals: list[str] = []

        def is_done() -> bool:
            try:
                with Remote("127.0.0.1:1") as remote:
                    LedgerGroup(remote, GROUP, peers).hand_over(target_id)
            except AdminError as error:
                refusals.append(str(error))
                return False
            return True

        try:
            wait_until(is_done, what=f"{target_id} to lead")
        except AssertionError as error:
            states = [f"{i}: {member.state()}" for i, member in self.members.items()]
            error.add_note("\n".join([*states, *dict.fromkeys(refusals)]))
            raise
        assert self.leader_id() == target_id

    def stop_all(self) -> None:
        """Stops all members when they are equal."""
        wait_until_equal(self.members)
        for member_id in list(self.members):
            self.members.pop(member_id).stop()

    def judge(self) -> list[bytes]:
        """Stops all members when they are equal, compares their files; returns the bodies."""
        self.stop_all()
        stores = [self._open(member_id) for member_id in self.kinds]
        ends = {(store.last_index, store.end_position) for _, store in stores}
        assert len(ends) == 1, ends
        for folder, end in (
            ("data", stores[0][1].end_position),
            ("index", (stores[0][1].last_index + 1) * UNIT_BYTES),
        ):
            files = [LogFiles(self.directory / f"dledger-{name}" / folder) for name, _ in stores]
            for position in range(0, end, MIB):
                parts = [run.read(position, min(MIB, end - position)) for run in files]
                assert parts[1] == parts[0], (folder, position)
                assert parts[2] == parts[0], (folder, position)
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

    def _bodies(self, store: DLedgerMmapFileStore) -> list[bytes]:
        bodies: list[bytes] = []
        index = store.first_index
        while index <= store.last_index:
            run = store.read(index, SEGMENT_BYTES)
            bodies += map(bytes, run.bodies())
            index = run.last_index + 1
        return bodies


def expected(count: int, prefix: str) -> list[bytes]:
    """The bodies that `append` makes."""
    return [f"{prefix}{i}".encode() for i in range(count)]


def without_openings(bodies: list[bytes]) -> list[bytes]:
    """The bodies but for those with which members of ours open a term."""
    return [body for body in bodies if not body.endswith(b"opens")]
