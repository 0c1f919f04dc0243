"""The simulated world: an event heap, a faulty network, faulty disks, members and a workload.

One seed draws sizes, which kinds of faults there are, and every delay. A run has three phases:
chaos with faults and proposals; healing; then the group must converge and commit a probe within a
bound.
"""

import hashlib
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from ledgermq.dledger.config import Config, Timing
from ledgermq.dledger.errors import NotLeaderError, ProposalDroppedError
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import Message, PeerDialect
from ledgermq.dledger.raft import Raft
from tests.simulation.disk import SimDisk
from tests.simulation.invariants import Invariants, Violation, demand
from tests.simulation.member import SimMember, as_json

JAVA_LIKE_TIMING = Timing(
    heart_beat_ms=600,
    heart_beats_missed_max=3,
    vote_wait_min_ms=100,
    vote_wait_max_ms=400,
    vote_round_ms=500,
)
# Simulated time in which a healed group must have converged.
CONVERGE_MS = 40_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one seed has drawn."""

    seed: int
    member_count: int
    sync_flush: bool
    java_ids: frozenset[str]
    chaos_ms: float
    delay_ms: float
    loss: float
    duplication: float
    crash_every_ms: float
    partition_every_ms: float
    propose_every_ms: float
    sync_ms: float
    power_cuts: bool
    wipes: bool
    retention: bool

    @classmethod
    def draw(cls, seed: int) -> "Plan":
        """Draws a plan; some kinds of faults are wholly off in some runs."""
        rng = random.Random(seed)
        count = rng.choice([1, 3, 3, 3, 3, 5, 5])
        ids = [f"n{i}" for i in range(count)]
        java_count = rng.choice([0, 0, 0, 1, count]) if count > 1 else 0
        sync_flush = rng.random() < 0.6
        return cls(
            seed=seed,
            member_count=count,
            sync_flush=sync_flush,
            java_ids=frozenset(rng.sample(ids, min(java_count, count))),
            chaos_ms=rng.choice([4_000.0, 8_000.0, 15_000.0]),
            delay_ms=rng.choice([1.0, 5.0, 30.0, 120.0]),
            loss=rng.choice([0.0, 0.0, 0.02, 0.15]),
            duplication=rng.choice([0.0, 0.0, 0.05, 0.2]),
            crash_every_ms=rng.choice([600.0, 1_500.0, 4_000.0, 1e9]),
            partition_every_ms=rng.choice([500.0, 1_500.0, 4_000.0, 1e9]),
            propose_every_ms=rng.choice([20.0, 100.0, 500.0, 2_000.0]),
            sync_ms=rng.choice([0.1, 3.0, 40.0, 400.0]),
            power_cuts=sync_flush and rng.random() < 0.7,
            wipes=count >= 3 and not java_count and rng.random() < 0.15,
            retention=rng.random() < 0.3,
        )


class Simulation:
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now_ms = 0.0
        self.trace: list[str] = []
        self.counts: dict[str, int] = {}
        streams = random.Random(plan.seed ^ 0x5EED)
        self._network = random.Random(streams.random())
        self._faults = random.Random(streams.random())
        self._work = random.Random(streams.random())
        self._starts = random.Random(streams.random())
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._event_count = 0
        self._cut: set[tuple[str, str]] = set()
        self._is_healed = False
        self._proposal_count = 0
        ids = tuple(f"n{i}" for i in range(plan.member_count))
        segment_bytes = self._faults.choice([512, 4096, 1 << 20])
        self.members: dict[str, SimMember] = {}
        self.invariants = Invariants(self.members)
        for member_id in ids:
            config = Config(
                group="g",
                self_id=member_id,
                members=ids,
                timing_with_java=JAVA_LIKE_TIMING,
                push_bytes_max=self._faults.choice([200, 2_000, 256 * 1024]),
                recent_bytes_max=self._faults.choice([0, 1_000, 8 << 20]),
                java_push_frames_max=self._faults.choice([1, 4, 64]),
                proposals_max=200,
            )
            disk = SimDisk(segment_bytes)
            self.members[member_id] = SimMember(
                config, disk, sync_flush=plan.sync_flush, java=member_id in plan.java_ids
            )
            disk.watch = self._watcher(member_id)

    # -- time

    def at(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._event_count += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._event_count, action))

    def run_until(self, end_ms: float, stop: Callable[[], bool] | None = None) -> bool:
        """Runs events up to a time; with `stop`, tells whether it came true before."""
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._heap)
            action()
            if stop is not None and stop():
                return True
        self.now_ms = end_ms
        return False

    def note(self, kind: str, text: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.trace.append(f"{self.now_ms:10.2f} {kind} {text}")

    def digest(self) -> str:
        """A hash of all that happened."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    # -- a whole run

    def run(self) -> None:
        """Chaos, healing, convergence. Raises Violation."""
        plan = self.plan
        for member_id in self.members:
            self._start(member_id)
        self._again(self._propose, plan.propose_every_ms, self._work)
        self._again(self._crash, plan.crash_every_ms, self._faults)
        self._again(self._partition, plan.partition_every_ms, self._faults)
        if plan.retention:
            self._again(self._drop_segments, 1_000.0, self._faults)
        self.run_until(plan.chaos_ms)
        self._heal()
        deadline_ms = self.now_ms + CONVERGE_MS
        self.run_until(self.now_ms + 3_000.0)
        probed = self.run_until(deadline_ms, self._probe_is_committed)
        demand(probed, "I15 no progress after healing", self.describe())
        converged = self.run_until(deadline_ms, self._is_converged)
        demand(converged, "I15 no convergence after healing", self.describe())
        for member in self.members.values():
            for index, (term, _) in self.invariants.committed.items():
                if index >= member.disk.first_index:
                    demand(member.disk.term_at(index) == term, "I14 entry lost", member.id, index)

    def _again(self, action: Callable[[], None], every_ms: float, rng: random.Random) -> None:
        def fire() -> None:
            if not self._is_healed:
                action()
                self.at(rng.expovariate(1 / every_ms), fire)

        self.at(rng.expovariate(1 / every_ms), fire)

    # -- members

    def _watcher(self, member_id: str) -> Callable[[str, int], None]:
        def watch(event: str, index: int) -> None:
            self.note(event, f"{member_id} {index}")
            self.invariants.on_disk(member_id, event, index)

        return watch

    def _start(self, member_id: str) -> None:
        member = self.members[member_id]
        if member.raft is not None:
            return
        known: dict[str, PeerDialect] = {}
        later: list[tuple[str, PeerDialect]] = []
        for peer_id, peer in self.members.items():
            if peer_id != member_id:
                is_java = member.java or peer.java
                dialect = PeerDialect.JAVA if is_java else PeerDialect.LEDGERMQ
                if self._starts.random() < 0.5:
                    known[peer_id] = dialect
                else:
                    later.append((peer_id, dialect))
        member.start(self._starts, self.now_ms, known)
        self.invariants.on_started(member_id)
        self.note("start", f"{member_id} term {member.running.term} last {member.disk.last_index}")
        for peer_id, dialect in later:
            self._learn_in(self._starts.uniform(0, 300), member, peer_id, dialect)
        self._work_off(member)

    def _learn_in(
        self, delay_ms: float, member: SimMember, peer_id: str, dialect: PeerDialect
    ) -> None:
        incarnation = member.incarnation

        def learn() -> None:
            if member.raft is not None and member.incarnation == incarnation:
                member.raft.set_dialect(peer_id, dialect)
                self._work_off(member)

        self.at(delay_ms, learn)

    def _work_off(self, member: SimMember) -> None:
        """Carries out a member's Ready values, sends, plans its next tick, checks."""
        self._send(member, member.work())
        if member.begin_sync():
            incarnation = member.incarnation
            # Healed disks are fast: how fast a group catches up is not judged here.
            mean_ms = min(self.plan.sync_ms, 10.0) if self._is_healed else self.plan.sync_ms
            delay_ms = self._network.expovariate(1 / mean_ms)
            self.at(delay_ms, lambda: self._synced(member, incarnation))
        raft, incarnation = member.running, member.incarnation
        self.invariants.check(member.id)
        deadline_ms = raft.deadline_ms()
        if deadline_ms < float("inf"):
            delay_ms = max(deadline_ms - self.now_ms, 0.01)
            self.at(delay_ms, lambda: self._tick(member, incarnation, deadline_ms))

    def _synced(self, member: SimMember, incarnation: int) -> None:
        if member.raft is not None and member.incarnation == incarnation:
            self._send(member, member.sync_done())
            self._work_off(member)

    def _tick(self, member: SimMember, incarnation: int, deadline_ms: float) -> None:
        raft = member.raft
        if raft is None or member.incarnation != incarnation or member.paused:
            return
        if raft.deadline_ms() == deadline_ms:
            role = raft.role
            raft.tick(self.now_ms)
            if raft.role is not role:
                self.note("role", f"{member.id} {raft.role.name} term {raft.term}")
            self._work_off(member)

    # -- network

    def _send(self, member: SimMember, messages: list[Message]) -> None:
        for message in messages:
            self._send_one(member, message)

    def _send_one(self, member: SimMember, message: Message) -> None:
        plan, network = self.plan, self._network
        target = self.members[message.target]
        if member.java or target.java:
            converted = as_json(message)
            if converted is None:
                return
            message = converted
        if (member.id, target.id) in self._cut or network.random() < self._loss():
            return
        copies = 1
        if not self._is_healed and network.random() < plan.duplication:
            copies = 2
        for _ in range(copies):
            delay_ms = network.expovariate(1 / plan.delay_ms) if not self._is_healed else 1.0
            self._deliver_in(delay_ms, target, message)

    def _deliver_in(self, delay_ms: float, target: SimMember, message: Message) -> None:
        incarnation = target.incarnation
        self.at(delay_ms, lambda: self._deliver(target, incarnation, message))

    def _loss(self) -> float:
        return 0.0 if self._is_healed else self.plan.loss

    def _deliver(self, target: SimMember, incarnation: int, message: Message) -> None:
        raft = target.raft
        if raft is None or target.incarnation != incarnation:
            return
        if target.paused:
            self.at(50.0, lambda: self._deliver(target, incarnation, message))
            return
        if (message.sender, target.id) in self._cut:
            return
        role = raft.role
        raft.receive(message, self.now_ms)
        if raft.role is not role:
            self.note("role", f"{target.id} {raft.role.name} term {raft.term}")
        self._work_off(target)

    # -- faults

    def _crash(self) -> None:
        rng = self._faults
        member = self.members[rng.choice(sorted(self.members))]
        if member.raft is None:
            return
        kind = rng.random()
        if kind < 0.15:
            member.paused = True
            self.note("pause", member.id)
            self.at(rng.uniform(50, 3_000), lambda: self._resume(member))
            return
        if kind < 0.25 and self.plan.power_cuts:
            for victim in self.members.values():
                self._kill(victim)
            return
        self._kill(member)

    def _resume(self, member: SimMember) -> None:
        if member.raft is not None and member.paused:
            member.paused = False
            self._work_off(member)

    def _kill(self, member: SimMember) -> None:
        rng = self._faults
        if member.raft is None:
            return
        member.stop()
        wiped_count = sum(m.wiped for m in self.members.values())
        if self.plan.wipes and not wiped_count and rng.random() < 0.3:
            member.disk.wipe()
            member.wiped = True
            self.invariants.on_wiped(member.id)
            self.note("wipe", member.id)
        elif self.plan.power_cuts and rng.random() < 0.6:
            member.disk.lose_unsynced(rng)
            self.note("power_cut", f"{member.id} last {member.disk.last_index}")
        else:
            self.note("kill", f"{member.id} last {member.disk.last_index}")
        for other in self.members.values():
            if other.raft is not None:
                other.raft.unreachable(member.id)
        self.at(rng.uniform(10, 2_000), lambda: self._start(member.id))

    def _partition(self) -> None:
        rng, ids = self._faults, sorted(self.members)
        self._cut.clear()
        kind = rng.randrange(5)
        if kind == 0:
            half = set(rng.sample(ids, rng.randint(1, len(ids))))
            self._cut = {(a, b) for a in ids for b in ids if (a in half) != (b in half)}
        elif kind == 1:
            lone = rng.choice(ids)
            self._cut = {(a, b) for a in ids for b in ids if lone in (a, b)}
        elif kind == 2:
            self._cut = {(rng.choice(ids), rng.choice(ids)) for _ in range(len(ids))}
        elif kind == 3:
            bridge = rng.choice(ids)
            self._cut = {(a, b) for a in ids for b in ids if bridge not in (a, b)}
        self.note("partition", " ".join(f"{a}>{b}" for a, b in sorted(self._cut)))

    def _drop_segments(self) -> None:
        member = self.members[self._faults.choice(sorted(self.members))]
        raft, disk = member.raft, member.disk
        if raft is not None and raft.applied_index >= disk.first_index:
            index = min(raft.applied_index, disk.synced_index, disk.last_index)
            if index >= disk.first_index:
                disk.drop_before(disk.position_at(index))
                self.note("drop", f"{member.id} first {disk.first_index}")

    def _heal(self) -> None:
        self._is_healed = True
        self._cut.clear()
        self.note("heal", "")
        for member in self.members.values():
            self._start(member.id)
            self._resume(member)

    # -- work

    def _propose(self) -> None:
        for member in self.members.values():
            if member.raft is not None and member.raft.role is Role.LEADER and not member.paused:
                count = self._work.choice([1, 1, 2, 5])
                self._propose_to(member, count)

    def _propose_to(self, member: SimMember, count: int) -> int:
        """Proposes, and returns the index of the last entry, or -1."""
        bodies = []
        for _ in range(count):
            self._proposal_count += 1
            bodies.append(b"%d" % self._proposal_count + b"." * self._work.choice([0, 10, 90]))
        try:
            runs = member.running.propose(bodies, self.now_ms)
        except (NotLeaderError, ProposalDroppedError):
            return -1
        self._work_off(member)
        return runs[-1].last_index

    def _probe_is_committed(self) -> bool:
        for member in self.members.values():
            raft = member.raft
            if raft is not None and raft.is_ready_leader:
                index = self._propose_to(member, 1)
                if index >= 0:
                    return self._commits(raft, index)
        return False

    def _commits(self, raft: Raft, index: int) -> bool:
        return self.run_until(self.now_ms + 5_000, lambda: raft.commit_index >= index)

    def _is_converged(self) -> bool:
        ends = set()
        for member in self.members.values():
            raft = member.raft
            if raft is None or raft.commit_index != raft.last_index:
                return False
            if raft.recovering and not self.plan.java_ids:
                return False
            ends.add((raft.last_index, member.disk.last_term, raft.term))
        return len(ends) == 1

    def describe(self) -> str:
        """The state of all members, for a failure's text."""
        lines = []
        for member in self.members.values():
            raft = member.raft
            if raft is None:
                lines.append(f"{member.id} down")
            else:
                lines.append(
                    f"{member.id} {raft.role.name} term {raft.term} leader {raft.leader_id} "
                    f"commit {raft.commit_index} last {raft.last_index} "
                    f"first {member.disk.first_index} recovering {raft.recovering}"
                )
        return "\n".join(lines)


def run_seed(seed: int) -> Simulation:
    """Runs one seed; a failure carries its plan, its last events and how to repeat it."""
    simulation = Simulation(Plan.draw(seed))
    try:
        simulation.run()
    except Exception as error:
        error.add_note(f"{simulation.plan}")
        error.add_note("\n".join(simulation.trace[-60:]))
        error.add_note(simulation.describe())
        error.add_note(f"repeat with: python -m tests.simulation.run {seed}")
        raise
    return simulation


__all__ = ["Plan", "Simulation", "Violation", "run_seed"]
