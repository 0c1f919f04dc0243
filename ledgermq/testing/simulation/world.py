"""One run: a group of members, its clients and its faults, from a seed to a verdict.

    start ─> chaos: faults, sends, pulls ─> healing: all runs, all is fast ─> probes are
    acknowledged, all members converge ─> files, queues and history are compared

A statement that does not hold raises Violation; its notes tell the plan, the last events, the state
of each member and the command that repeats the run.
"""

import hashlib
import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final

from ledgermq.commitlog import DamagedFileError
from ledgermq.dledger.entry import EntrySlice
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import LinkMessage, PushResponse
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.dledger.store.opening import RecoveryReport
from ledgermq.state.broker_state import BrokerState
from ledgermq.testing.simulation.admin import Admin
from ledgermq.testing.simulation.askers import Askers
from ledgermq.testing.simulation.births import BirthWatch
from ledgermq.testing.simulation.clients import TOPICS, Consumer, Producer, refuser
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.coverage import Coverage
from ledgermq.testing.simulation.deliveries import Deliverers
from ledgermq.testing.simulation.endings import Endings
from ledgermq.testing.simulation.faults import Fault, FaultMaker, draw_schedule
from ledgermq.testing.simulation.formats import FormatWatch
from ledgermq.testing.simulation.healing import Healing, Watchers
from ledgermq.testing.simulation.history import BrokerWatch
from ledgermq.testing.simulation.invariants import RaftWatch, demand
from ledgermq.testing.simulation.lockers import Lockers
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.network import Network
from ledgermq.testing.simulation.next_format import members_of
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.returning_topic import TopicOperator
from ledgermq.testing.simulation.rule_changes import RulesOperator
from ledgermq.testing.simulation.scene import Scene
from ledgermq.testing.simulation.service import ServiceWatch, check_drop
from ledgermq.testing.simulation.tables import TableWatch
from ledgermq.testing.simulation.visitors import Visitors

_NOTES_KEPT: Final = 200
_TRACE_LINES: Final = 1_000
# How often what nobody answers is looked for.
_LOOK_MS: Final = 1_000.0


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
        # All that happened: hashed in pieces, for one hash a line would take longer than the line.
        self._digest = hashlib.sha256()
        self._trace: list[str] = []
        streams = random.Random(f"streams {plan.seed}")

        def stream() -> random.Random:
            return random.Random(streams.random())

        self.network = Network(plan, self.timeline, stream(), self.hit)
        self.members = {member_id: self._new_member(member_id, stream()) for member_id in plan.ids}
        self.formats = FormatWatch(self.members, self.hit)
        self.tables = TableWatch(self.hit, self.formats)
        self.history = BrokerWatch(self.tables, plan)
        self.service = ServiceWatch(self.members, lambda: self.timeline.now_ms, self.hit)
        self.coverage = Coverage(plan.timing.election_timeout_ms, self.hit)
        self.raft_watch = RaftWatch(
            self.members, hit=self.hit, on_committed=self.history.on_committed
        )
        self.births = BirthWatch(self.members, self.hit)
        self.network.untrusted = self.raft_watch.losers
        self.network.on_sent = self._on_sent
        self.network.on_read = self._on_read
        self.scene = self._new_scene()
        self.faults = self._new_faults()
        self._endings = Endings(
            self.scene,
            self.faults,
            self.raft_watch,
            self._on_turn,
            stream(),
        )
        self.producers = [
            self._new_producer(number, stream()) for number in range(plan.producer_count)
        ]
        self._work = stream()
        self._consumers = [
            self._new_consumer(queue, stream())
            for queue in product(TOPICS, range(plan.queue_count))
        ]
        self._make_operators(stream)
        self._arrivals: list[tuple[str, tuple[str, int], int]] = []
        # Members that began to serve in this turn, and what each must know then.
        self._serving: list[tuple[str, BrokerState, int]] = []
        # Whether each member was recovering when it was looked at.
        self._recovering: dict[str, bool] = {}
        # The process of each member that was looked at.
        self._started: dict[str, int] = {}
        self._roles: dict[str, tuple[Role, int]] = {}
        for member in self.members.values():
            self._watch(member)

    def _make_operators(self, stream: Callable[[], random.Random]) -> None:
        plan = self.plan
        self._admin = Admin(self.timeline, self.members, self.tables, stream())
        self.lockers = Lockers(self.timeline, self.members, self.hit, stream())
        self.visitors = Visitors(self.timeline, self.members, self.hit, stream())
        self.askers = Askers(
            self.timeline, self.members, plan.queue_count, self.history, self.hit, stream()
        )
        self.rules = RulesOperator(self.timeline, self.members, self.tables.rules, stream())
        self._deliverers = Deliverers(self.timeline, self.members, stream())
        self.topic_operator = TopicOperator(
            self.timeline, self.members, self.tables, stream(), plan.returning_queue_count
        )

    def _new_scene(self) -> Scene:
        return Scene(
            plan=self.plan,
            timeline=self.timeline,
            network=self.network,
            members=self.members,
            coverage=self.coverage,
            hit=self.hit,
            note=self.note,
        )

    def _new_faults(self) -> FaultMaker:
        faults = FaultMaker(
            self.scene,
            self.coverage.on_end,
            self._send_to,
            self.raft_watch,
            self.births.forget,
            self.formats,
        )
        self.network.on_greeted = self._on_greeted
        self.network.on_refused = faults.programs.on_refused
        return faults

    def _new_member(self, member_id: str, rng: random.Random) -> SimMember:
        return SimMember(member_id, self.plan, self.timeline, self.network, rng, TOPICS, self.hit)

    def _new_producer(self, number: int, rng: random.Random) -> Producer:
        return Producer(
            number,
            self.plan,
            self.timeline,
            self.network,
            self.members,
            self.history,
            self.service,
            rng,
        )

    def _new_consumer(self, queue: tuple[str, int], rng: random.Random) -> Consumer:
        return Consumer(
            queue,
            self.plan,
            self.timeline,
            self.members,
            self.history,
            rng,
            self._endings.on_damaged_read,
        )

    def _watch(self, member: SimMember) -> None:
        producers = {producer.id: producer for producer in self.producers}
        member.watch = lambda what, index, run: self._on_change(member, what, index, run)
        member.watch_vote = lambda state: self._on_vote(member, state)
        member.on_stopped = self._on_stopped
        member.on_turn = self._on_turn
        member.on_damage = self._endings.on_damage
        member.on_found = self._endings.on_found
        member.on_opened = self._on_opened
        member.on_serving = self._on_serving
        member.on_state_applied = self._on_state_applied
        member.on_state_proposed = self.visitors.on_proposed
        member.on_format_chosen = self.formats.on_chosen
        member.is_live = self.visitors.is_live
        member.on_dropped = check_drop
        member.refuse = refuser(producers, member)

    # -- what happens

    def hit(self, name: str) -> None:
        """Counts something that was met."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def note(self, kind: str, text: str) -> None:
        """Notes something for the trace."""
        line = f"{self.timeline.now_ms:10.2f} {kind} {text}"
        self.notes.append(line)
        self._trace.append(line)
        if len(self._trace) >= _TRACE_LINES:
            self._hash_trace()

    def digest(self) -> str:
        """Returns a hash of all that happened."""
        self._hash_trace()
        return self._digest.hexdigest()

    def _hash_trace(self) -> None:
        self._digest.update("\n".join(self._trace).encode())
        self._trace.clear()

    def _on_greeted(self, member_id: str, peer_id: str, reads: int) -> None:
        self.raft_watch.on_met(member_id, peer_id)
        self.formats.on_greeted(member_id, peer_id, reads)

    def _on_sent(self, message: LinkMessage) -> None:
        self.service.on_sent(message)
        self.raft_watch.on_sent(message)
        self.coverage.on_sent(message)

    def _on_read(self, message: LinkMessage) -> None:
        if isinstance(message, PushResponse):
            raft = self.members[message.target].raft
            if raft is not None:
                self.coverage.on_arrived(raft, message)

    def _send_to(self, member: SimMember, count: int) -> None:
        """Producers send to one member, whoever leads."""
        if not self.scene.is_healed:
            producer = self._work.choice(self.producers)
            for _ in range(count):
                producer.send_to(member)

    def _on_vote(self, member: SimMember, state: Any) -> None:
        self.raft_watch.on_vote_saved(member, state)
        self.births.on_saved(member, state)
        self.faults.trigger("voted", member)

    def _on_change(self, member: SimMember, what: str, index: int, run: EntrySlice | None) -> None:
        self.raft_watch.on_change(member, what, index, run)
        if what != "append":
            self.note(what, f"{member.id} {index}")
            if what == "truncate" and member.raft is not None:
                self.coverage.on_cut(member.raft)
            self.faults.trigger(what, member)

    def _on_serving(self, member: SimMember) -> None:
        assert member.broker is not None and member.raft is not None
        # The term in which it serves: Raft may have been told of a newer one in the same turn.
        known_index = self.raft_watch.known_to(member.broker.leadership.term)
        # Looked at when the turn is over: what it commits is known then, removals among it.
        self._serving.append((member.id, member.broker.state, known_index))
        self.faults.on_serving(member)
        self.faults.trigger("serving", member)

    def _on_state_applied(self, member: SimMember, index: int, body: bytes) -> None:
        assert member.broker is not None and member.store is not None
        self.formats.on_applied(member, index)
        self.visitors.on_applied(body)
        self.tables.on_expired(index, members_of(body))
        if member.broker.state.is_whole_from(member.store.first_index):
            self.tables.on_applied(member.id, member.broker.state, index)

    def _on_stopped(self, member: SimMember) -> None:
        """The machine stopped in the middle of a piece; what had left it before counts."""
        if self._started.get(member.id) == member.incarnation:
            self.raft_watch.look_last(member)
        self.faults.stopped_inside(member)

    def _on_turn(self, member: SimMember) -> None:
        """A piece of a program has run: look at what it did."""
        serving, self._serving = self._serving, []
        if member.refusal is not None:
            self._endings.on_refusal(member)
            return
        broker, raft = member.broker, member.raft
        failure: BaseException | None = member.start_failure
        if failure is None and broker is not None:
            failure = broker.failure
        if failure is not None:
            self._endings.on_failure(member, failure)
            return
        if raft is None:
            return
        is_right = member.running_ids == self.plan.ids or member.takes_any_list
        demand(is_right, "I48 runs with another member list", member.id, member.running_ids)
        if self._started.get(member.id) != member.incarnation:
            self._on_running(member)
        state = (raft.role, raft.term)
        if self._roles.get(member.id) != state:
            self._roles[member.id] = state
            self.note("role", f"{member.id} {raft.role.name} term {raft.term}")
            if raft.role is Role.LEADER:
                self.coverage.on_elected(self.timeline.now_ms)
                self.births.on_elected(member)
                self.faults.on_elected(member, raft.term)
                self.faults.trigger("elected", member)
        try:
            if self.raft_watch.check(member):
                self._trace.append(f"{self.timeline.now_ms} {raft.commit_index} {raft.last_index}")
        except CorruptStoreError as error:
            self._endings.on_found(member, error)
            return
        self.service.check(member)
        for member_id, tables, known_index in serving:
            self.tables.on_serving(member_id, tables, known_index)
        if broker is not None:
            self.tables.rules.look(member.id, broker.rules)
        if self._arrivals:
            arrivals, self._arrivals = self._arrivals, []
            for member_id, queue, end_offset in arrivals:
                self.history.on_dispatched(member_id, queue, end_offset)
        if raft.recovering is not self._recovering.get(member.id, False):
            self._recovering[member.id] = raft.recovering
            if raft.recovering:
                self.hit("RECOVERING entered")
                self.coverage.on_found(member.id, "vote file")
            else:
                self.hit("RECOVERING left")
                self.coverage.on_recovered(member.id)

    def _on_running(self, member: SimMember) -> None:
        """The first turn of a process."""
        self._started[member.id] = member.incarnation
        raft, broker = member.raft, member.broker
        assert raft is not None and broker is not None
        self._roles.pop(member.id, None)
        self.raft_watch.on_started(member)
        self.births.on_started(member)
        self.formats.on_applied(member, broker.messages.dispatched_index)
        self._check_store(member)
        self.tables.check(member.id, broker.state, broker.messages.dispatched_index)
        report = broker.report
        if report is not None and report.rebuilt_because:
            self.coverage.on_found(member.id, "checkpoint")
        if report is not None and report.rebuilt_queues:
            self.coverage.on_found(member.id, "CQ")
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
            self._endings.on_damaged_read(member, error)

    def _on_opened(self, member: SimMember, report: RecoveryReport) -> None:
        """A store is open: what it mended."""
        if report.cut_reason is not None:
            self.hit("torn record at tail")
        if report.rebuilt_units:
            self.coverage.on_found(member.id, "index")

    # -- a whole run

    def run(self) -> None:
        """Runs all phases.

        Raises:
            Violation: a statement does not hold.
        """
        try:
            self._play()
            self.settle()
        finally:
            self._close()
        self.coverage.on_over(self.raft_watch.leaders, self.raft_watch.votes)

    def _play(self) -> None:
        late_ms = dict(self.plan.late_starts)
        for member in self.members.values():
            start_ms = self._work.uniform(0, 200) + late_ms.get(member.id, 0.0)
            self.timeline.at(start_ms, self.faults.start, member)
            if member.id in late_ms:
                self.hit("member started late")
        for producer in self.producers:
            self._again(producer)
        for consumer in self._consumers:
            consumer.begin()
        self._admin.begin()
        self.lockers.begin()
        self.visitors.begin()
        self.askers.begin()
        self.rules.begin()
        self._deliverers.begin()
        self.topic_operator.begin()
        self._look()
        self.faults.plan_all(self.schedule)
        self.timeline.run_until(self.plan.chaos_ms)

    def _close(self) -> None:
        """Ends the members' threads, which are threads of the system; all else stays to be seen."""
        for member in self.members.values():
            if member.reactor is not None:
                member.reactor.end()

    def settle(self) -> None:
        """Ends all faults: the group must become whole, and its files and history must agree.

        Raises:
            Violation: it does not.
        """
        watchers = Watchers(self.raft_watch, self.history, self.service, self.tables)
        Healing(self.scene, self.faults, self.producers, watchers, self.describe).run()

    def _look(self) -> None:
        self.service.check_time()
        for member in self.members.values():
            if member.raft is not None and not self.scene.is_healed:
                self.coverage.on_look(member.raft)
        self.timeline.at(_LOOK_MS, self._look)

    def _again(self, producer: Producer) -> None:
        def fire() -> None:
            if not self.scene.is_healed:
                producer.send_some()
                self.timeline.at(self._work.expovariate(1 / self.plan.send_every_ms), fire)

        self.timeline.at(self._work.expovariate(1 / self.plan.send_every_ms), fire)

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
    """Runs one seed to its end; a failure carries plan, last events, state and command."""
    world = World(Plan.draw(seed))
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"{world.plan}")
        error.add_note("\n".join(world.notes))
        error.add_note(world.describe())
        error.add_note(f"repeat with: ledgermq simulate --seed {seed}")
        raise
    return world
