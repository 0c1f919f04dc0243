"""A simulated member: a real core, driven exactly as `Ready` demands."""

import random
import zlib
from collections import deque
from dataclasses import dataclass, replace

from ledgermq.dledger.config import Config
from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.messages import (
    AppendRequest,
    HeartBeatResponse,
    Message,
    PeerDialect,
    PushResponse,
    VoteRequest,
)
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.ready import Ready
from tests.simulation.disk import SimDisk


def crc(data: bytes | memoryview, value: int) -> int:
    return zlib.crc32(data, value)


def as_json(message: Message) -> Message | None:
    """What DLedger's JSON leaves of a message; None when it has no such form."""
    match message:
        case VoteRequest() if message.pre_vote:
            return None
        case AppendRequest():
            return replace(message, previous=None)
        case HeartBeatResponse() | PushResponse():
            return replace(message, recovering=False)
        case _:
            return message


@dataclass(slots=True)
class Sync:
    """A sync of the disk that is under way."""

    up_to_index: int
    ready_count: int


class SimMember:
    """One member of the simulated group; it survives its own crashes as a disk and a number."""

    def __init__(self, config: Config, disk: SimDisk, *, sync_flush: bool, java: bool) -> None:
        self.config = config
        self.id = config.self_id
        self.disk = disk
        self.sync_flush = sync_flush
        # This member speaks JSON only, as a Java member does.
        self.java = java
        self.raft: Raft | None = None
        # Counts starts; messages to an earlier start are lost with its connections.
        self.incarnation = 0
        self.wiped = False
        # Ready values whose last steps wait for a sync, oldest first.
        self.unfinished: deque[Ready] = deque()
        self.syncing: Sync | None = None
        self.paused = False

    @property
    def running(self) -> Raft:
        assert self.raft is not None
        return self.raft

    def start(self, rng: random.Random, now_ms: float, dialects: dict[str, PeerDialect]) -> None:
        """Starts on what the disk holds."""
        self.disk.sync()
        self.incarnation += 1
        self.raft = Raft(
            self.config,
            self.disk,
            EntryCodec(crc),
            self.disk.load(),
            random.Random(rng.random()),
            now_ms,
            opening_body=lambda term: b"open %d" % term,
            recovering=self.wiped,
        )
        for peer_id, dialect in dialects.items():
            self.raft.set_dialect(peer_id, dialect)

    def stop(self) -> None:
        """The process is gone, at once."""
        self.raft = None
        self.unfinished.clear()
        self.syncing = None
        self.paused = False

    def work(self) -> list[Message]:
        """Carries out what the core wants; returns the messages to send.

        Without SYNC_FLUSH all steps are done here. With it, the last steps wait for `sync_done`.
        """
        out: list[Message] = []
        while (ready := self.running.take_ready()) is not None:
            if ready.hard_state is not None:
                self.disk.save(ready.hard_state)
            if ready.truncate_from is not None:
                self.disk.truncate(ready.truncate_from)
                self._cut_sync(ready.truncate_from - 1)
            if ready.reset_to is not None:
                self.disk.reset(*ready.reset_to)
                self._cut_sync(-1)
            for entries in ready.entries:
                self.disk.append(entries)
            out += ready.messages
            if self.sync_flush and (self.unfinished or ready.entries):
                self.unfinished.append(ready)
            else:
                out += self._finish(ready)
        return out

    def begin_sync(self) -> bool:
        """Begins a sync of all that was appended, when one is wanted and none is under way."""
        if self.syncing is not None or not self.unfinished:
            return False
        self.syncing = Sync(self.disk.last_index, len(self.unfinished))
        return True

    def sync_done(self) -> list[Message]:
        """The sync is over: what it covers is durable, unless it was cut meanwhile."""
        assert self.syncing is not None
        disk = self.disk
        disk.synced_index = max(disk.synced_index, min(self.syncing.up_to_index, disk.last_index))
        out: list[Message] = []
        for _ in range(self.syncing.ready_count):
            out += self._finish(self.unfinished.popleft())
        self.syncing = None
        return out

    def _cut_sync(self, last_index: int) -> None:
        """A sync under way proves nothing about what is written after a cut."""
        if self.syncing is not None:
            self.syncing.up_to_index = min(self.syncing.up_to_index, last_index)

    def _finish(self, ready: Ready) -> list[Message]:
        raft = self.running
        if ready.persist_id is not None:
            raft.persisted(ready.persist_id)
        if ready.committed is not None:
            raft.applied(ready.committed[1] - 1)
            self.disk.write_checkpoint(ready.committed[1] - 1)
        if not raft.recovering:
            self.wiped = False
        return ready.messages_after_persist
