"""One run: a group of members, its clients and its faults, from a seed to a verdict.

    start ─> chaos: faults, sends, pulls ─> healing: all runs, all is fast ─> probes are
    acknowledged, all members converge ─> files, queues and history are compared

A statement that does not hold raises Violation; its notes tell the plan, the last events, the state
of each member and the command that repeats the run.
"""

import hashlib
import random
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from ledgermq.commitlog import DamagedFileError
from ledgermq.dledger.entry import EntrySlice
from ledgermq.dledger.errors import BrokenInvariantError
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import Message
from ledgermq.dledger.store.errors import CorruptStoreError, DiskFullError, StoreFailedError
from ledgermq.testing.simulation.clients import TOPICS, Consumer, Producer, refuser
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.faults import Fault, FaultMaker, draw_schedule
from ledgermq.testing.simulation.history import BrokerWatch
from ledgermq.testing.simulation.invariants import RaftWatch, Violation, demand
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.network import Network
from ledgermq.testing.simulation.plan import Plan

# Simulated time in which a healed group must have converged.
_CONVERGE_MS: Final = 40_000.0
_PROBE_MS: Final = 700.0
_NOTES_KEPT: Final = 200


class World:
    """One run."""

    def __init__(self, plan: Plan, schedule: Sequence[Fault] | None = None) -> None:
        """Builds the group; nothing runs yet.

        Args:
            plan: what was drawn.
            schedule: the faults; None for those of the plan.
        """
        self.plan = plan
        self.schedule = draw_schedule(plan) if schedule is None else list(schedule)
        self.timeline = Timeline()
        self.counts: dict[str, int] = {}
        self.notes: deque[str] = deque(maxlen=_NOTES_KEPT)
        self._digest = hashlib.sha256()
        streams = random.Random(f"streams {plan.seed}")
        self.network = Network(plan, self.timeline, random.Random(streams.random()), self.hit)
        self.members = {
            member_id: self._new_member(member_id, random.Random(streams.random()))
            for member_id in plan.ids
        }
        self.history = BrokerWatch(self.hit)
        self.raft_watch = RaftWatch(
            self.members,
            is_sync_flush=plan.is_sync_flush,
            hit=self.hit,
            on_committed=self.history.on_committed,
        )
        self.network.on_sent = self._on_sent
        self.faults = FaultMaker(
            plan,
            self.timeline,
            self.network,
            self.members,
            self.hit,
            self.note,
            self.raft_watch.on_lost,
        )
        self.producers = [
            self._new_producer(number, random.Random(streams.random()))
            for number in range(plan.producer_count)
        ]
        self._work = random.Random(streams.random())
        self._consumers = [
            self._new_consumer((topic, queue_id), random.Random(streams.random()))
            for topic in TOPICS
            for queue_id in range(plan.queue_count)
        ]
        self._arrivals: list[tuple[str, tuple[str, int], int]] = []
        # Whether each member was recovering when it was looked at.
        self._recovering: dict[str, bool] = {}
        # The process of each member that was looked at.
        self._started: dict[str, int] = {}
        self._roles: dict[str, tuple[Role, int]] = {}
        for member in self.members.values():
            self._watch(member)

    def _new_member(self, member_id: str, rng: random.Random) -> SimMember:
        return SimMember(member_id, self.plan, self.timeline, self.network, rng, TOPICS, self.hit)

    def _new_producer(self, number: int, rng: random.Random) -> Producer:
        return Producer(
            number, self.plan, self.timeline, self.network, self.members, self.history, rng
        )

    def _new_consumer(self, queue: tuple[str, int], rng: random.Random) -> Consumer:
        return Consumer(
            queue, self.plan, self.timeline, self.members, self.history, rng, self.damaged_read
        )

    def _watch(self, member: SimMember) -> None:
        producers = {producer.id: producer for producer in self.producers}
        member.watch = lambda what, index, run: self._on_change(member, what, index, run)
        member.watch_vote = lambda state: self._on_vote(member, state)
        member.on_stopped = self._on_stopped
        member.on_turn = self._on_turn
        member.on_damage = self._on_damage
        member.on_serving = self._on_serving
        member.refuse = refuser(producers, member)

    # -- what happens

    def hit(self, name: str) -> None:
        """Counts something that was met."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def note(self, kind: str, text: str) -> None:
        """Notes something for the trace."""
        line = f"{self.timeline.now_ms:10.2f} {kind} {text}"
        self.notes.append(line)
        self._digest.update(line.encode())

    def digest(self) -> str:
        """Returns a hash of all that happened."""
        return self._digest.hexdigest()

    def _on_sent(self, message: Message) -> None:
        self.raft_watch.on_sent(message)

    def _on_vote(self, member: SimMember, state: Any) -> None:
        self.raft_watch.on_vote_saved(member, state)
        self.faults.trigger("voted", member)

    def _on_change(self, member: SimMember, what: str, index: int, run: EntrySlice | None) -> None:
        self.raft_watch.on_change(member, what, index, run)
        if what != "append":
            self.note(what, f"{member.id} {index}")
            self.faults.trigger(what, member)

    def _on_serving(self, member: SimMember) -> None:
        assert member.broker is not None
        self.history.on_serving(member.id, member.broker.state.offsets.all())
        self.faults.trigger("serving", member)

    def _on_stopped(self, member: SimMember) -> None:
        """The machine stopped in the middle of a piece; what had left it before counts."""
        if self._started.get(member.id) == member.incarnation:
            self.raft_watch.look_last(member)
        self.faults.stopped_inside(member)

    def _on_turn(self, member: SimMember) -> None:
        """A piece of a program has run: look at what it did."""
        if member.refusal is not None:
            self._on_refusal(member)
            return
        broker, raft = member.broker, member.raft
        failure: BaseException | None = member.start_failure
        if failure is None and broker is not None:
            failure = broker.failure
        if failure is not None:
            self._on_failure(member, failure)
            return
        if raft is None:
            return
        if self._started.get(member.id) != member.incarnation:
            self._on_running(member)
        state = (raft.role, raft.term)
        if self._roles.get(member.id) != state:
            self._roles[member.id] = state
            self.note("role", f"{member.id} {raft.role.name} term {raft.term}")
            if raft.role is Role.LEADER:
                self.faults.trigger("elected", member)
        self._digest.update(
            b"%s %d %d %d" % (member.id.encode(), raft.term, raft.commit_index, raft.last_index)
        )
        self.raft_watch.check(member)
        if self._arrivals:
            arrivals, self._arrivals = self._arrivals, []
            for member_id, queue, end_offset in arrivals:
                self.history.on_dispatched(member_id, queue, end_offset)
        if raft.recovering is not self._recovering.get(member.id, False):
            self._recovering[member.id] = raft.recovering
            self.hit("RECOVERING entered" if raft.recovering else "RECOVERING left")

    def _on_running(self, member: SimMember) -> None:
        """The first turn of a process."""
        self._started[member.id] = member.incarnation
        raft, broker = member.raft, member.broker
        assert raft is not None and broker is not None
        self._roles.pop(member.id, None)
        self.raft_watch.on_started(member)
        self._check_store(member)
        broker.messages.on_dispatched(
            lambda arrivals: self._arrivals.extend(
                (member.id, (topic, queue_id), end) for topic, queue_id, end, _ in arrivals
            )
        )
        self.faults.trigger("started", member)

    def _check_store(self, member: SimMember) -> None:
        assert member.broker is not None
        try:
            self.history.check_store(member.id, member.broker.messages)
        except DamagedFileError as error:
            self.damaged_read(member, error)

    def damaged_read(self, member: SimMember, error: DamagedFileError) -> None:
        """A read found bytes that are not what they must be; the next process repairs them."""
        is_victim = member.id in self.raft_watch.losers
        # Pages of a queue that a failed sync lost are noticed late; queues are made again.
        is_victim |= error.is_derived and member.disk.has_lost_writes
        demand(is_victim, "I14 damage that nobody did", member.id, str(error))
        self.hit("damage found by a read")
        self.note("damaged", f"{member.id} {error}")
        self.faults.end(member, is_power_cut=False, down_ms=200.0)
        if error.is_derived:
            member.disk.texts.pop("/store/dispatch.checkpoint", None)
        else:
            member.suspect(str(error))

    def _on_damage(self, member: SimMember, error: CorruptStoreError) -> None:
        """A store found that it lost entries."""
        is_victim = member.id in self.raft_watch.losers
        demand(is_victim, "I14 damage that nobody did", member.id, str(error))
        self.raft_watch.on_lost(member, member.durable_end()[0])

    def _on_refusal(self, member: SimMember) -> None:
        """A store that is damaged: an operator replaces the disk."""
        is_victim = member.id in self.raft_watch.losers
        demand(is_victim, "I14 damage that nobody did", member.id, str(member.refusal))
        self.note("refused", f"{member.id} {member.refusal}")
        self.faults.end(member, is_power_cut=False, down_ms=300.0)
        self.faults.wipe(member)

    def _on_failure(self, member: SimMember, error: BaseException) -> None:
        """A member stopped by itself: somebody starts it again."""
        self.note("failed", f"{member.id} {type(error).__name__}: {error}")
        if isinstance(error, Violation | BrokenInvariantError | AssertionError):
            raise error
        is_disk = isinstance(error, OSError | DiskFullError | StoreFailedError)
        is_rot = isinstance(error, CorruptStoreError) and member.id in self.raft_watch.losers
        if not (is_disk or is_rot):
            raise Violation(f"I32 a member stopped: {member.id} {error!r}") from error
        self.raft_watch.look_last(member)
        self.hit("member stopped by a disk fault")
        self.faults.end(member, is_power_cut=False, down_ms=400.0)
        if is_rot:
            self.faults.wipe(member)

    # -- a whole run

    def run(self) -> None:
        """Runs all phases.

        Raises:
            Violation: a statement does not hold.
        """
        plan = self.plan
        for member in self.members.values():
            self.timeline.at(self._work.uniform(0, 200), self.faults.start, member)
        for producer in self.producers:
            self._again(producer)
        for consumer in self._consumers:
            consumer.begin()
        self.faults.plan_all(self.schedule)
        self.timeline.run_until(plan.chaos_ms)
        self.settle()

    def settle(self) -> None:
        """Ends all faults; the group must come together then, and all it holds is compared.

        Raises:
            Violation: a statement does not hold.
        """
        self._heal()
        deadline_ms = self.timeline.now_ms + _CONVERGE_MS
        self._probe()
        if self.timeline.run_until(deadline_ms, self._is_converged):
            self._check_end()
            return
        whole = [
            member
            for member in self.members.values()
            if member.raft is not None
            and not member.raft.recovering
            and member.raft.last_index >= 0
        ]
        has_quorum = len(whole) > self.plan.member_count // 2
        is_halted = not has_quorum and bool(self.raft_watch.losers)
        demand(is_halted, "I15 a healed group does not converge", self.describe())
        self.hit("group halts, a majority lost state")

    def _again(self, producer: Producer) -> None:
        def fire() -> None:
            if not self.faults.is_healed:
                producer.send_some()
                self.timeline.at(self._work.expovariate(1 / self.plan.send_every_ms), fire)

        self.timeline.at(self._work.expovariate(1 / self.plan.send_every_ms), fire)

    def _heal(self) -> None:
        self.note("heal", "")
        self.faults.is_healed = self.network.is_healed = True
        self.network.cuts.clear()
        for member in self.members.values():
            if member.id in self.raft_watch.losers:
                # What no read has found, a scrub would find in time.
                self.faults.end(member, is_power_cut=False, down_ms=100.0)
                member.suspect("scrub")
                member.disk.texts.pop("/store/dispatch.checkpoint", None)
            member.sync_ms = 0.5
            member.disk.free_bytes = None
            member.disk.sync_errors = 0
            member.disk.stop_at = None
            member.resume()

    def _probe(self) -> None:
        """Sends until the group has converged, so that recovering members can end it."""
        is_done = sum(producer.acked_count for producer in self.producers) >= self._probe_goal()
        is_whole = bool(self.plan.java_ids) or all(
            member.raft is not None and not member.raft.recovering
            for member in self.members.values()
        )
        if is_done and is_whole:
            return
        self.producers[0].send()
        self.timeline.at(_PROBE_MS, self._probe)

    def _probe_goal(self) -> int:
        if not hasattr(self, "_goal"):
            self._goal = sum(producer.acked_count for producer in self.producers) + 1
        return self._goal

    _goal: int

    def _is_converged(self) -> bool:
        if sum(producer.acked_count for producer in self.producers) < self._probe_goal():
            return False
        ends = set()
        for member in self.members.values():
            raft, broker = member.raft, member.broker
            if raft is None or broker is None or raft.commit_index != raft.last_index:
                return False
            if broker.messages.dispatched_index != raft.commit_index:
                return False
            if raft.recovering and not self.plan.java_ids:
                # A Java leader does not know, so there the end of a recovery takes another term.
                return False
            ends.add((raft.last_index, raft._log.last_term, raft.term))
        return len(ends) == 1

    def _check_end(self) -> None:
        self.raft_watch.check_end()
        for member in self.members.values():
            assert member.broker is not None
            self.history.check_end(member.id, member.broker.messages)

    def describe(self) -> str:
        """Returns the state of all members, for a failure's text."""
        lines = []
        for member in self.members.values():
            raft, store = member.raft, member.store
            if raft is None or store is None:
                lines.append(f"{member.id} down, refusal {member.refusal}")
            else:
                broker = member.broker
                dispatched = broker.messages.dispatched_index if broker is not None else None
                lines.append(
                    f"{member.id} {raft.role.name} term {raft.term} leader {raft.leader_id}"
                    f" commit {raft.commit_index} dispatched {dispatched}"
                    f" log {store.first_index}..{raft.last_index} recovering {raft.recovering}"
                    f" paused {member.is_paused}"
                )
        return "\n".join(lines)


def run_seed(seed: int) -> World:
    """Runs one seed to its end; a failure carries what is needed to look at it."""
    return run_world(World(Plan.draw(seed)))


def run_world(world: World) -> World:
    """Runs a world to its end; a failure carries plan, last events, state and command."""
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"{world.plan}")
        error.add_note("\n".join(world.notes))
        error.add_note(world.describe())
        error.add_note(f"repeat with: ledgermq simulate --seed {world.plan.seed}")
        raise
    return world
