"""The end of a run: faults are over, all members run, and the group must become whole again.

Within a bound of simulated time all members are acknowledged a probe, and hold the same log. Then
files, queues, tables and history are compared.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ledgermq.testing.simulation.broker import SimBroker
from ledgermq.testing.simulation.clients import Producer
from ledgermq.testing.simulation.faults import FaultMaker
from ledgermq.testing.simulation.history import BrokerWatch
from ledgermq.testing.simulation.invariants import RaftWatch, demand
from ledgermq.testing.simulation.rebuild import check_rebuild
from ledgermq.testing.simulation.scene import Scene
from ledgermq.testing.simulation.service import ServiceWatch
from ledgermq.testing.simulation.tables import TableWatch

# Simulated time in which a healed group must have converged.
_CONVERGE_MS: Final = 40_000.0
_PROBE_MS: Final = 700.0
_SCRUB_BYTES: Final = 1 << 16
# All members hold the same: to look at two of them is enough.
_REBUILT_MAX: Final = 2


class Watchers(NamedTuple):
    """All that know what must hold."""

    raft: RaftWatch
    history: BrokerWatch
    service: ServiceWatch
    tables: TableWatch


class Healing:
    """The last phases of one world."""

    def __init__(
        self,
        scene: Scene,
        faults: FaultMaker,
        producers: Sequence[Producer],
        watchers: Watchers,
        describe: Callable[[], str],
    ) -> None:
        """Binds the world, as chaos left it; `describe` tells of it in a failure."""
        self._scene = scene
        self._faults = faults
        self._producers = producers
        self._watchers = watchers
        self._describe = describe
        # Acknowledged messages that prove that the group serves.
        self._goal = 0

    def run(self) -> None:
        """Heals, waits and compares.

        Raises:
            Violation: a statement does not hold.
        """
        scene = self._scene
        self._heal()
        self._goal = self._acked_count() + 1
        self._probe()
        if scene.timeline.run_until(scene.timeline.now_ms + _CONVERGE_MS, self._is_converged):
            self._check_end()
            return
        whole = [
            member
            for member in scene.members.values()
            if member.raft is not None
            and not member.raft.recovering
            and member.raft.last_index >= 0
        ]
        has_quorum = len(whole) > scene.plan.member_count // 2
        is_halted = not has_quorum and bool(self._watchers.raft.losers)
        demand(is_halted, "I15 a healed group does not converge", self._describe())
        scene.hit("group halts, a majority lost state")

    def _heal(self) -> None:
        scene = self._scene
        scene.note("heal", "")
        scene.is_healed = scene.network.is_healed = True
        scene.network.cuts.clear()
        self._faults.swaps.put_all_back()
        self._faults.programs.mend_all()
        self._faults.settings.mend_all()
        for member in scene.members.values():
            if member.id in self._watchers.raft.losers:
                # What no read has found, a scrub finds in time.
                if member.broker is not None and member.raft is not None:
                    member.enter(self._scrub, member.broker)
                self._faults.end(member, is_power_cut=False, down_ms=100.0)
                member.suspect("scrub")
                member.disk.texts.pop("/store/dispatch.checkpoint", None)
            member.sync_ms = 0.5
            member.disk.free_bytes = None
            member.disk.write_errors = 0
            member.disk.sync_errors = 0
            member.disk.stop_at = None
            member.disk.end_hang()
            member.resume()

    def _scrub(self, broker: SimBroker) -> None:
        while broker.scrub(_SCRUB_BYTES):
            pass

    def _acked_count(self) -> int:
        return sum(producer.acked_count for producer in self._producers)

    def _probe(self) -> None:
        """Sends until the group has converged, so that recovering members can end it."""
        scene = self._scene
        is_whole = bool(scene.plan.java_ids) or all(
            member.raft is not None and not member.raft.recovering
            for member in scene.members.values()
        )
        if self._acked_count() >= self._goal and is_whole:
            return
        self._producers[0].send()
        scene.timeline.at(_PROBE_MS, self._probe)

    def _is_converged(self) -> bool:
        if self._acked_count() < self._goal:
            return False
        ends = set()
        for member in self._scene.members.values():
            raft, broker = member.raft, member.broker
            if raft is None or broker is None or raft.commit_index != raft.last_index:
                return False
            if broker.messages.dispatched_index != raft.commit_index or broker.is_at_disk:
                return False
            if raft.recovering and not self._scene.plan.java_ids:
                # A Java leader does not know, so there the end of a recovery takes another term.
                return False
            ends.add((raft.last_index, raft._log.last_term, raft.term))
        return len(ends) == 1

    def _check_end(self) -> None:
        watchers = self._watchers
        watchers.raft.check_end()
        watchers.service.check_time()
        watchers.service.check_end()
        for number, member in enumerate(self._scene.members.values()):
            broker = member.broker
            assert broker is not None
            watchers.history.check_end(member.id, broker.messages)
            watchers.tables.check(member.id, broker.state, broker.messages.dispatched_index)
            if number < _REBUILT_MAX:
                check_rebuild(member)
                self._scene.hit("derived files made again, equal bytes")
