"""Processes that end, or do not start, by themselves: whether they may, and what follows.

A disk that failed, damage of a victim's disk and an assertion that a forged message broke are
reasons; nothing else is. Somebody starts the process again, on another disk where that is needed.
"""

import random
from collections.abc import Callable

from ledgermq.commitlog import DamagedFileError, UnreadRecordError
from ledgermq.dledger.errors import BrokenInvariantError
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.store.errors import (
    CorruptStoreError,
    DiskFullError,
    MembershipError,
    StoreFailedError,
)
from ledgermq.testing.simulation.faults import FaultMaker
from ledgermq.testing.simulation.invariants import RaftWatch, Violation, demand
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.scene import Scene


class Endings:
    """Judges them."""

    def __init__(
        self,
        scene: Scene,
        faults: FaultMaker,
        raft_watch: RaftWatch,
        on_turn: Callable[[SimMember], None],
        rng: random.Random,
    ) -> None:
        """Binds the world; `on_turn` is what looks at members that run."""
        self._scene = scene
        self._faults = faults
        self._raft_watch = raft_watch
        self._on_turn = on_turn
        self._rng = rng

    def on_damaged_read(self, member: SimMember, error: DamagedFileError) -> None:
        """A read found bytes that are not what they must be; the next process repairs them."""
        is_victim = member.id in self._raft_watch.losers
        # Pages of a queue that a failed sync lost are noticed late; queues are made again.
        is_victim |= error.is_derived and member.disk.has_lost_writes
        demand(is_victim, "I14 damage that nobody did", member.id, str(error))
        self._scene.hit("damage found by a read")
        self._scene.coverage.on_found(member.id, "CQ" if error.is_derived else "data")
        self._scene.note("damaged", f"{member.id} {error}")
        self._faults.end(member, is_power_cut=False, down_ms=200.0)
        if error.is_derived:
            member.disk.texts.pop("/store/dispatch.checkpoint", None)
        else:
            member.suspect(str(error))

    def on_found(self, member: SimMember, error: Exception) -> None:
        """A scrub came upon damage; the next process repairs it."""
        if isinstance(error, DamagedFileError):
            self.on_damaged_read(member, error)
            return
        assert isinstance(error, CorruptStoreError)
        self._scene.coverage.on_found_in_log(member.id)
        is_victim = member.id in self._raft_watch.losers
        demand(is_victim, "I14 damage that nobody did", member.id, str(error))
        self._scene.note("damaged", f"{member.id} {error}")
        self._faults.end(member, is_power_cut=False, down_ms=200.0)
        member.suspect(str(error))

    def on_damage(self, member: SimMember, error: CorruptStoreError) -> None:
        """A store found that it lost entries."""
        is_victim = member.id in self._raft_watch.losers
        demand(is_victim, "I14 damage that nobody did", member.id, str(error))
        self._scene.coverage.on_found(member.id, "data")
        self._raft_watch.on_lost(member, member.durable_end()[0])
        self._raft_watch.on_damage_found(member)

    def on_refusal(self, member: SimMember) -> None:
        """A store that is damaged: an operator replaces the disk."""
        is_victim = member.id in self._raft_watch.losers
        demand(is_victim, "I14 damage that nobody did", member.id, str(member.refusal))
        self._scene.coverage.on_found(member.id, "data")
        self._scene.note("refused", f"{member.id} {member.refusal}")
        self._faults.end(member, is_power_cut=False, down_ms=300.0)
        self._faults.wipe(member)

    def on_failure(self, member: SimMember, error: BaseException) -> None:
        """A member stopped by itself: somebody starts it again."""
        self._scene.note("failed", f"{member.id} {type(error).__name__}: {error}")
        if self._is_wanted(member, error):
            return
        if isinstance(error, UnreadRecordError):
            self._raft_watch.look_last(member)
            self._faults.programs.on_unread(member, error)
            return
        if isinstance(error, Violation | BrokenInvariantError | AssertionError):
            raise error
        if isinstance(error, MembershipError) and member.running_ids != self._scene.plan.ids:
            self._scene.hit("start with another member list refused")
            self._faults.end(member, is_power_cut=False, down_ms=400.0)
            return
        is_disk = isinstance(error, OSError | DiskFullError | StoreFailedError)
        is_rot = isinstance(error, CorruptStoreError) and member.id in self._raft_watch.losers
        if not (is_disk or is_rot):
            raise Violation(f"I32 a member stopped: {member.id} {error!r}") from error
        self._raft_watch.look_last(member)
        self._scene.hit("member stopped by a disk fault")
        replica = member.replica
        if replica is not None and replica._raft is not None:
            if replica._raft.role is Role.LEADER:
                self._scene.hit("leadership ended by a disk fault")
        self._scene.coverage.on_found(member.id, "data")
        self._faults.end(member, is_power_cut=False, down_ms=400.0)
        if is_rot:
            member.suspect(str(error))

    def _is_wanted(self, member: SimMember, error: BaseException) -> bool:
        """Whether a forged message broke an assertion just now; then the member must be silent."""
        if not isinstance(error, BrokenInvariantError) or error.invariant != member.deceived_about:
            return False
        member.deceived_about = ""
        broker = member.broker
        is_closed = broker is not None and not broker.leadership.is_serving
        demand(is_closed and member.raft is None, "I33 goes on after an assertion", member.id)
        self._scene.hit("member stopped by an assertion")
        # It stays up for a while: nobody may hear of it (I33).
        member.on_turn = _ignore_turn
        self._scene.timeline.at(self._rng.uniform(0, 300), self._end_broken, member)
        return True

    def _end_broken(self, member: SimMember) -> None:
        member.on_turn = self._on_turn
        self._faults.end(member, is_power_cut=False, down_ms=200.0)


def _ignore_turn(member: SimMember) -> None:
    """Nothing is to be seen of a program that has stopped."""
