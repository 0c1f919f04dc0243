"""Power cuts of a whole group under load, again and again.

    python -m tests.fault.power_cuts [--cuts 200] [--seed 0] [--flush ASYNC_FLUSH] [--no-sync]

Three members (replica, ledger, message store, flushes of the derived files) run on loopback, each
on a RecordingDisk whose syncs take a moment, and many writes too, so that they meet. While messages
are sent, all three lose their power at once, in the middle of whatever they do; each disk is left
in a legal state drawn at random, mostly one without anything that was not synced, and all are
started on that. Every message that was acknowledged is then at its offset, on every member in the
end.

With ASYNC_FLUSH a cut may take what was acknowledged a moment ago. What a member synced stays, and
no more than a torn tail is missing: no member finds damage. A message stays that was acknowledged
and had been synced by two members. A member that has applied what the two others lost cuts its
log when they go on without it, and stops; started again on what it has, it goes on with them.

With --no-sync the disks acknowledge syncs that they did not make, and a new group is made for each
cut: acknowledged messages must be lost then, in nearly every cut, or the check could not see.
"""

import argparse
import itertools
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react
from twisted.logger import globalLogBeginner

from ledgermq.commitlog import CommitLogError
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.replica import FlushDiskType
from ledgermq.dledger.store.errors import StoreFormatError
from ledgermq.protocol.record import decode_record
from tests.fault.bit_flips import StoreGroup, StoreMember
from tests.fault.recording_disk import RecordedFile, RecordingDisk
from tests.fault.synced_store import SyncedLostError, Vouched
from tests.free_ports import free_ports
from tests.unit.commitlog.single_member import message

QUEUES = 3
SYNC_S = 0.001
# Of what was not synced, mostly nothing survives. That all of it does is the kill of a process.
SURVIVALS = (0.0, 0.0, 0.0, 0.0, 0.1, 0.5, 0.9)
# A cut without messages to lose shows nothing.
_ACKED_MIN = 5
_TURN_S = 0.002
_PATIENCE_S = 60.0
# How a member stops that is asked to cut what it knows to be committed.
_CUT = re.compile("were lost by a majority: cut here")


class LyingFile(RecordedFile):
    """Says that it is on disk, and is not."""

    def sync(self) -> None:
        self.disk.check_power()


class LyingDisk(RecordingDisk):
    """A disk that acknowledges every sync of a file."""

    def reserve(self, path: str, size_bytes: int) -> RecordedFile:
        file = super().reserve(path, size_bytes)
        file.__class__ = LyingFile
        return file

    def open(self, path: str) -> RecordedFile:
        file = super().open(path)
        file.__class__ = LyingFile
        return file


class LostMessageError(AssertionError):
    """An acknowledged message is not where it was."""


class PowerCuts:
    """One group, its load, and what was acknowledged."""

    def __init__(
        self,
        reactor: Any,
        seed: int,
        disk_type: type[RecordingDisk],
        flush: FlushDiskType = FlushDiskType.SYNC_FLUSH,
    ) -> None:
        self.reactor = reactor
        self.rng = random.Random(seed)
        self._disk_type = disk_type
        self._flush = flush
        self.group = StoreGroup(reactor, Path("/power-cuts"), free_ports(3), flush)
        # What each member's disk must hold.
        self._vouched = [Vouched() for _ in self.group.members]
        for member, vouched in zip(self.group.members, self._vouched, strict=True):
            member.make_store = vouched.make
            member.file_system = disk_type(sync_s=SYNC_S, parts=self.rng)
        # Body by queue and offset of what must be there.
        self.acked: dict[tuple[int, int], bytes] = {}
        # Of those acknowledged since the last cut, an index that is not below theirs.
        self._indexes: dict[tuple[int, int], int] = {}
        # How many were acknowledged, and with a cut needed not be there any more.
        self.let_go_count = 0
        # Members that others contradicted, under ASYNC_FLUSH.
        self.started_again_count = 0
        # Sent by the present leader and not yet committed: queue, offset, body.
        self._waiting: list[tuple[int, int, bytes]] = []
        self._number = 0
        self.cut_count = 0

    async def run(self, cuts: int) -> None:
        """Cuts the power so many times; raises LostMessageError."""
        await self.group.start()
        try:
            for _ in range(cuts):
                self.check(await self._sound(self.group.find_leader, "a leader"))
                await self._load(self.rng.uniform(0.01, 0.12))
                await self._cut()
            await self._sound(self.group.find_leader, "a leader")
            await self._sound(self.group.is_equal, "equal members that all count")
            for member in self.group.members:
                self.check(member)
        except AssertionError as error:
            if self._disk_type is not LyingDisk:
                error.add_note(f"what is on the disks: {self._keep_disks()}")
            raise
        finally:
            await self.group.stop()

    async def _sound(self, condition: Callable[[], Any], what: str) -> Any:
        """Waits for a condition; a member that stops meanwhile found something gone."""

        def damage() -> list[str]:
            return [text for member in self.group.members for text in member.damage]

        while True:
            value = await self.group.wait(lambda: damage() or condition(), what)
            if not damage():
                return value
            if self._flush is FlushDiskType.SYNC_FLUSH or not all(map(_CUT.search, damage())):
                raise LostMessageError(f"cut {self.cut_count}: {damage()}")
            for number, member in enumerate(self.group.members):
                if member.damage:
                    await self._start_again(number)

    async def _start_again(self, number: int) -> None:
        """Starts a member again on what its disk holds, as whoever watches its process does."""
        self.started_again_count += 1
        member = self.group.members[number]
        await member.abandon()
        member.damage.clear()
        await member.start()

    async def _load(self, duration_s: float) -> None:
        end_s = self.reactor.seconds() + duration_s
        wanted = len(self.acked) + _ACKED_MIN
        self._waiting.clear()
        while self.reactor.seconds() < end_s or len(self.acked) < wanted:
            if self.reactor.seconds() > end_s + _PATIENCE_S:
                error = AssertionError("nothing is acknowledged")
                error.add_note(self.group.describe())
                raise error
            leader = self.group.find_leader()
            if leader is not None:
                self._send(leader)
                self._take_acks(leader)
                if self.rng.random() < 0.05:
                    job = leader.messages.begin_flush(0)
                    job.run()
                    leader.messages.end_flush(job)
            await deferLater(self.reactor, _TURN_S * self.rng.random(), lambda: None)
        leader = self.group.find_leader()
        if leader is not None:
            self._take_acks(leader)

    def _send(self, leader: StoreMember) -> None:
        turn = []
        for _ in range(self.rng.randrange(1, 6)):
            self._number += 1
            body = b"%d " % self._number + bytes(self.rng.randrange(400))
            turn.append(message(body, "T", self.rng.randrange(QUEUES)))
        try:
            results = leader.messages.append(turn)
        except (CommitLogError, LedgerError):
            return
        self._waiting += [
            (sent.queue_id, result.queue_offset, sent.body)
            for sent, result in zip(turn, results, strict=True)
        ]

    def _take_acks(self, leader: StoreMember) -> None:
        """What the leader has dispatched is acknowledged."""
        still = []
        for queue_id, offset, body in self._waiting:
            if offset < leader.messages.max_offset("T", queue_id):
                self.acked[queue_id, offset] = body
                self._indexes[queue_id, offset] = leader.messages.dispatched_index
            else:
                still.append((queue_id, offset, body))
        self._waiting = still

    async def _cut(self) -> None:
        """All three at once, then starts on what is left."""
        states = []
        for member in self.group.members:
            disk = member.file_system
            assert isinstance(disk, RecordingDisk)
            states.append(disk.cut_power(self.rng, SURVIVALS))
        self.cut_count += 1
        if self._flush is FlushDiskType.ASYNC_FLUSH:
            self._let_go()
        self._indexes.clear()
        for member, state in zip(self.group.members, states, strict=True):
            await member.abandon()
            member.damage.clear()
            member.file_system = self._disk_type(state, sync_s=SYNC_S, parts=self.rng)
            try:
                await member.start()
            except (StoreFormatError, SyncedLostError) as error:
                raise LostMessageError(f"cut {self.cut_count}: {error}") from error
            if member.damage:
                raise LostMessageError(f"cut {self.cut_count}: damage {member.damage}")

    def _let_go(self) -> None:
        """What two members had not synced alike may be gone."""
        kept = max(self._synced_alike(a, b) for a, b in itertools.combinations(range(3), 2))
        for place, index in self._indexes.items():
            if index > kept:
                del self.acked[place]
                self.let_go_count += 1

    def _synced_alike(self, one: int, other: int) -> int:
        """Returns up to which index both have synced the same; -1 when that is not known."""
        index = min(self._vouched[one].synced.index, self._vouched[other].synced.index)
        stores = [self.group.members[number].store for number in (one, other)]
        if index < max(store.first_index for store in stores):
            return -1
        chains = {store.head_at(index).chain_crc for store in stores}
        return index if len(chains) == 1 else -1

    def _keep_disks(self) -> str:
        """Writes what is on the disks now into a new directory, and names it."""
        folder = tempfile.mkdtemp(prefix="power-cuts-")
        for member in self.group.members:
            disk = member.file_system
            assert isinstance(disk, RecordingDisk)
            for path, content in disk.content().items():
                copy = Path(folder, path.lstrip("/"))
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)
        return folder

    def check(self, member: StoreMember) -> None:
        """Every acknowledged message is at its offset."""
        found: dict[tuple[int, int], bytes] = {}
        for queue_id in range(QUEUES):
            offset = member.messages.min_offset("T", queue_id)
            end = member.messages.max_offset("T", queue_id)
            while offset < end:
                result = member.messages.get_message("T", queue_id, offset, 32, None)
                for part in result.parts:
                    found[queue_id, offset] = decode_record(part).body
                    offset += 1
        for place, body in self.acked.items():
            if found.get(place) != body:
                raise LostMessageError(
                    f"cut {self.cut_count}: queue and offset {place} of {body!r}"
                )


async def loses_on_lying_disks(
    reactor: Any, seed: int, flush: FlushDiskType = FlushDiskType.SYNC_FLUSH
) -> bool:
    """Whether one cut of a new group loses what it acknowledged, and that is seen."""
    try:
        await PowerCuts(reactor, seed, LyingDisk, flush).run(1)
    except LostMessageError:
        return True
    return False


async def main(reactor: Any) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--flush", choices=[flush.value for flush in FlushDiskType])
    parser.add_argument("--no-sync", action="store_true")
    options = parser.parse_args()
    # As in the programs: a clock that is set starts no elections.
    reactor.seconds = time.monotonic
    begun = time.monotonic()
    flush = FlushDiskType(options.flush or FlushDiskType.SYNC_FLUSH)
    if options.no_sync:
        seeds = range(options.seed, options.seed + options.cuts)
        lost_count = sum([await loses_on_lying_disks(reactor, seed, flush) for seed in seeds])
        sys.stdout.write(
            f"{options.cuts} power cuts of groups on lying disks, acknowledged messages lost in"
            f" {lost_count}, in {time.monotonic() - begun:.0f} s\n"
        )
        return
    cuts = PowerCuts(reactor, options.seed, RecordingDisk, flush)
    try:
        await cuts.run(options.cuts)
    except Exception as error:
        error.add_note(f"seed {options.seed}, cut {cuts.cut_count}")
        # React tells the log, which nobody reads.
        traceback.print_exc()
        raise
    sys.stdout.write(
        f"{cuts.cut_count} power cuts of all three members, {len(cuts.acked):,} messages"
        f" acknowledged that must stay, none lost, {cuts.let_go_count:,} that need not,"
        f" {cuts.started_again_count} members started again, in {time.monotonic() - begun:.0f} s\n"
    )


if __name__ == "__main__":
    globalLogBeginner.beginLoggingTo([lambda event: None], redirectStandardIO=False)
    react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
