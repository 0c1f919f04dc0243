"""Replicas on loopback with file stores or stores in memory, for tests on a real reactor."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import deferLater

from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.replica import FlushDiskType, Replica, ReplicaConfig
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore
from ledgermq.dledger.store.vote_file import VoteFile
from ledgermq.protocol.checksum import crc32c

SEGMENT_BYTES = 1 << 20
INDEX_SEGMENT_BYTES = 32 * 4096
GROUP = "test-group"
_POLL_S = 0.01


def opening_body(term: int, last: bytes = b"") -> bytes:
    return b"term %d opens" % term


class ListApplier:
    """Keeps what it is told: bodies by index, roles, the failure."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.roles: list[tuple[Role, int, str | None, bool]] = []
        self.failure: BaseException | None = None

    def committed(self, start_index: int, end_index: int) -> None:
        self.ranges.append((start_index, end_index))

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        self.roles.append((role, term, leader_id, is_ready))

    def failed(self, error: BaseException) -> None:
        self.failure = error


class Member:
    """One replica with its store, which can be stopped and started again."""

    def __init__(
        self, reactor: Any, directory: Path, config: ReplicaConfig, is_in_memory: bool
    ) -> None:
        self._is_in_memory = is_in_memory
        self.directory = directory / f"dledger-{config.self_id}"
        self._reactor = reactor
        self.config = config
        self.applier = ListApplier()
        self.replica: Replica | None = None
        self.store: DLedgerMmapFileStore | DLedgerMemoryStore | None = None

    @property
    def running(self) -> Replica:
        assert self.replica is not None
        return self.replica

    def start(self, applied_index: int = -1) -> Deferred[None]:
        file_system = RealFileSystem()
        codec = EntryCodec(crc32c)
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._is_in_memory:
            self.store = DLedgerMemoryStore(SEGMENT_BYTES)
        else:
            self.store = DLedgerMmapFileStore(
                file_system, str(self.directory), SEGMENT_BYTES, INDEX_SEGMENT_BYTES, codec
            )
            self.store.open()
        self.applier = ListApplier()
        self.replica = Replica(
            self.config,
            self._reactor,
            self.store,
            VoteFile(file_system, str(self.directory), self.config.self_id),
            codec,
            random.Random(self.config.self_id),
            self.applier,
            opening_body,
        )
        return self.replica.start(applied_index=applied_index)

    def stop(self) -> Deferred[None]:
        replica, store = self.replica, self.store
        if replica is None or store is None:
            return Deferred.fromCoroutine(_nothing())
        self.replica = self.store = None

        def close(_: object) -> None:
            store.close()

        return replica.stop().addCallback(close)

    def bodies(self, end_index: int | None = None) -> list[bytes]:
        """All bodies from the log's first index up to `end_index`."""
        assert self.store is not None
        store, bodies = self.store, []
        index = store.first_index
        stop = store.last_index + 1 if end_index is None else end_index
        while index < stop:
            run = store.read(index, 1 << 20)
            bodies += [bytes(body) for body in run.bodies()]
            index = run.last_index + 1
        return bodies[: stop - store.first_index]


async def _nothing() -> None:
    return None


class Group:
    """Three members on free ports of loopback."""

    def __init__(
        self,
        reactor: Any,
        directory: Path,
        ports: list[int],
        flush_disk_type: FlushDiskType = FlushDiskType.SYNC_FLUSH,
        is_in_memory: bool = False,
        **changes: Any,
    ) -> None:
        self._reactor = reactor
        peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
        self.members = {
            f"n{i}": Member(
                reactor,
                directory,
                ReplicaConfig(
                    group=GROUP,
                    self_id=f"n{i}",
                    peers=peers,
                    listen_host="127.0.0.1",
                    flush_disk_type=flush_disk_type,
                    **changes,
                ),
                is_in_memory,
            )
            for i in range(len(ports))
        }

    @property
    def up(self) -> list[Member]:
        return [member for member in self.members.values() if member.replica is not None]

    async def start(self) -> None:
        for member in self.members.values():
            await member.start()

    async def stop(self) -> None:
        await DeferredList([member.stop() for member in self.members.values()])

    def find_leader(self) -> Member | None:
        """The one ready leader that a majority of the running members follows."""
        for member in self.up:
            replica = member.running
            followers = [m for m in self.up if m.running.leader_id == replica.self_id]
            if replica.is_ready_leader and 2 * len(followers) > len(self.members):
                return member
        return None

    async def wait(self, condition: Callable[[], Any], what: str, deadline_s: float = 20.0) -> Any:
        """Polls a condition on the reactor until it is true, and returns its value."""
        end_s = self._reactor.seconds() + deadline_s
        while not (value := condition()):
            if self._reactor.seconds() > end_s:
                raise AssertionError(f"after {deadline_s} s still waiting for {what}")
            await deferLater(self._reactor, _POLL_S, lambda: None)
        return value

    async def wait_for_leader(self) -> Member:
        leader: Member = await self.wait(self.find_leader, "a leader")
        return leader

    async def wait_for_commit(self, replica: Replica, index: int) -> None:
        await self.wait(lambda: replica.commit_index >= index, f"the commit of {index}")

    async def wait_until_equal(self) -> None:
        """Waits until all running members have committed and applied the same last index."""

        def is_equal() -> bool:
            ends = {member.running.store.last_index for member in self.up}
            applied = {member.running.applied_index for member in self.up}
            return len(ends) == 1 and ends == applied

        await self.wait(is_equal, "equal members")
