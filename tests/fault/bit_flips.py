"""Three message stores with replicas on real files in one process, whose files a test damages.

Small segments, so that a few hundred messages fill several of them.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import deferLater

from ledgermq.commitlog import (
    AppendMessage,
    DamagedFileError,
    MessageStore,
    StoreConfig,
    opening_record,
)
from ledgermq.commitlog.scrub import Scrub
from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.replica import FlushDiskType, Replica, ReplicaConfig
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import FileSystem, RealFileSystem
from ledgermq.dledger.store.repair_mark import RepairMark
from ledgermq.dledger.store.vote_file import VoteFile
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET, decode_record
from tests.fault.last_words import describe_replicas
from tests.unit.commitlog.single_member import HOST, START_MS, message

SEGMENT_BYTES = 64 << 10
INDEX_SEGMENT_BYTES = 32 * 512
_POLL_S = 0.01
_PATIENCE_S = 60.0
# As many turns as an idle machine makes in a third of that.
_POLLS_MIN = 2_000


class StoreMember:
    """One member: replica, ledger, messages; the broker's way of starting and repairing them."""

    def __init__(self, reactor: Any, root: Path, config: ReplicaConfig) -> None:
        self.root = root
        self.ledger_root = root / f"dledger-{config.self_id}"
        self.config = config
        self._reactor = reactor
        self.file_system: FileSystem = RealFileSystem()
        self.make_store: Callable[..., DLedgerMmapFileStore] = DLedgerMmapFileStore
        self.replica: Replica | None = None
        self.damage: list[str] = []
        self.is_ready = False

    def start(self) -> Deferred[None]:
        codec = EntryCodec(crc32c, PHYSICAL_OFFSET_OFFSET)
        directory = str(self.ledger_root)
        self.mark = RepairMark(self.file_system, directory)
        self.store = self.make_store(
            self.file_system, directory, SEGMENT_BYTES, INDEX_SEGMENT_BYTES, codec
        )
        repair = self.mark.read()
        self.store.open(verify_all=repair is not None, on_damage=self._damaged)
        repair = self.mark.read()
        if repair is not None and not repair.is_recovering:
            self.mark.clear()
        self.messages = MessageStore(
            StoreConfig(
                root=str(self.root),
                queue_segment_bytes=2000,
                index_slot_count=100,
                index_entry_count=1000,
            ),
            self.store,
            self.file_system,
            lambda: START_MS,
            self.store.data.read,
            segment_at=self.store.data.segment_at,
            mode=self.store.mode,
        )
        self.report = self.messages.open()
        self.scrub: Scrub = self.messages.make_scrub()
        self.is_ready = False
        self.replica = Replica(
            self.config,
            self._reactor,
            self.store,
            VoteFile(self.file_system, directory, self.config.self_id),
            codec,
            random.Random(self.config.self_id),
            self,
            lambda term, last: opening_record(term, HOST, START_MS),
            repair_mark=self.mark,
        )
        self.messages.attach(self.replica)
        return self.replica.start(applied_index=self.messages.dispatched_index)

    def _damaged(self, error: CorruptStoreError) -> None:
        marks = [
            f"{name}: {' '.join((self.file_system.read(path) or b'').decode().split())}"
            for name in ("checkpoint", "durable", "start")
            for path in [f"{self.ledger_root}/{name}"]
        ]
        self.damage += [str(error), *marks]
        self.mark.begin_recovery(str(error))

    def stop(self) -> Deferred[None]:
        replica, self.replica = self.replica, None
        if replica is None:
            return DeferredList([]).addCallback(lambda _: None)

        def close(_: object) -> None:
            self.messages.close()
            self.store.close()

        return replica.stop().addCallback(close)

    def abandon(self) -> Deferred[None]:
        """Forgets a member whose machine is off; nothing of it gets to its disk."""
        replica, self.replica = self.replica, None
        assert replica is not None
        self.is_ready = False
        return replica.stop()

    # Applier.

    def committed(self, start_index: int, end_index: int) -> None:
        if start_index > self.messages.dispatched_index + 1:
            self.messages.reset()
        self.messages.committed(start_index, end_index)

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        self.messages.resign()
        self.is_ready = role is Role.LEADER and is_ready
        if self.is_ready:
            self.messages.become_leader()

    def failed(self, error: BaseException) -> None:
        self.messages.resign()
        self.is_ready = False
        self.damage.append(str(error))

    @property
    def is_marked_recovering(self) -> bool:
        repair = self.mark.read()
        return repair is not None and repair.is_recovering

    async def repair(self) -> None:
        """Scrubs everything once; what is found damaged is repaired as a broker does it."""
        for _ in range(4):
            try:
                while self.scrub.step(1 << 20):
                    pass
                return
            except (CorruptStoreError, DamagedFileError) as error:
                self.damage.append(str(error))
                await self.stop()
                if isinstance(error, DamagedFileError) and error.is_derived:
                    self.messages.checkpoints.discard()
                else:
                    self.mark.suspect(str(error))
                await self.start()
        raise AssertionError(f"still damaged: {self.damage}")

    # What a test looks at.

    def bodies(self, queue_id: int = 0, topic: str = "T") -> list[bytes]:
        """All messages of a queue, as a consumer pulls them."""
        found: list[bytes] = []
        offset = self.messages.min_offset(topic, queue_id)
        while offset < self.messages.max_offset(topic, queue_id):
            result = self.messages.get_message(topic, queue_id, offset, 32, None)
            found += [decode_record(part).body for part in result.parts]
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
        return found

    def entries(self) -> bytes:
        """All entries; what fills a segment behind them is never read."""
        index, parts = self.store.first_index, []
        while index <= self.store.last_index:
            run = self.store.read_verified(index, 1 << 20)
            parts.append(bytes(run.data))
            index = run.last_index + 1
        return b"".join(parts)


class StoreGroup:
    """Three of them on loopback."""

    def __init__(
        self,
        reactor: Any,
        root: Path,
        ports: list[int],
        flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
    ) -> None:
        self.reactor = reactor
        peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
        self.members = [
            StoreMember(
                reactor,
                root / f"n{i}",
                ReplicaConfig(
                    group="flips",
                    self_id=f"n{i}",
                    peers=peers,
                    listen_host="127.0.0.1",
                    flush_disk_type=flush_disk_type,
                    flush_interval_ms=50,
                    checkpoint_interval_ms=50,
                ),
            )
            for i in range(len(ports))
        ]

    async def start(self) -> None:
        for member in self.members:
            await member.start()

    async def stop(self) -> None:
        await DeferredList([member.stop() for member in self.members])

    async def wait(self, condition: Any, what: str) -> Any:
        """Polls; fails after a time in which the members had their turns, too, for they live here.

        A machine that stands still, or a clock that is set, takes time and no turns.
        """
        end_s, polls = time.monotonic() + _PATIENCE_S, 0
        while not (value := condition()):
            polls += 1
            if time.monotonic() > end_s and polls > _POLLS_MIN:
                error = AssertionError(f"after {_PATIENCE_S} s still waiting for {what}")
                error.add_note(self.describe())
                raise error
            await deferLater(self.reactor, _POLL_S, lambda: None)
        return value

    def describe(self) -> str:
        """What all members say of themselves."""
        told = describe_replicas(
            [member.replica for member in self.members], self.reactor.seconds() * 1000.0
        )
        marks = [
            f"{member.config.self_id}: {repair.reason}"
            for member in self.members
            if member.replica is not None and (repair := member.mark.read()) is not None
        ]
        damage = [text for member in self.members for text in member.damage]
        return f"{told}\nrepair marks {marks}\ndamage {damage}"

    def find_leader(self) -> StoreMember | None:
        leaders = [m for m in self.members if m.replica is not None and m.is_ready]
        return leaders[0] if len(leaders) == 1 else None

    async def leader(self) -> StoreMember:
        found: StoreMember = await self.wait(self.find_leader, "a leader")
        return found

    async def send(self, bodies: list[bytes], queue_id: int = 0) -> None:
        """Sends messages, ten in a turn; returns when all are committed on the leader."""
        at = 0
        while at < len(bodies):
            leader = await self.leader()
            assert leader.replica is not None
            before = leader.messages.max_offset("T", queue_id)
            turn = [_message(body, queue_id) for body in bodies[at : at + 10]]
            try:
                leader.messages.append(turn)
            except LedgerError:
                continue
            at += len(turn)
            end, messages = before + len(turn), leader.messages
            await self.wait(
                lambda m=messages, e=end: m.max_offset("T", queue_id) >= e,  # type: ignore[misc]
                "the commit",
            )

    def is_equal(self) -> bool:
        """All members are up, applied the same, and count."""
        if any(m.replica is None or m.replica.is_recovering for m in self.members):
            return False
        ends = {(m.store.last_index, m.messages.dispatched_index) for m in self.members}
        return len(ends) == 1 and self.members[0].store.last_index == next(iter(ends))[1]

    async def wait_until_equal(self) -> None:
        """Equal, and no member remembers any more that it had to recover."""
        await self.wait(self.is_equal, "equal members that all count")
        # The mark goes when the keeper has come to it; that of a suspect stays until its restart.
        for member in self.members:
            await self.wait(lambda m=member: not m.is_marked_recovering, "a repair mark is gone")


def _message(body: bytes, queue_id: int) -> AppendMessage:
    return message(body, "T", queue_id, b"KEYS\x01%s" % body.split(b" ")[0])


def flip(path: Path, offset: int, mask: int = 0x10) -> None:
    """Changes bits of one byte of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ mask]))
