"""A stage for scripts: the simulated group of the product, with every event chosen by the script.

The world is the one that seeds run in, on the same cores, stores, disks and brokers, and with the
same statements asked after every event; but nothing is drawn. A message takes one millisecond, a
sync as long as the script says, the member that the script wants leads, a power cut keeps what the
script keeps. Messages can be held back and delivered later, or twice.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from ledgermq.commitlog import opening_record
from ledgermq.dledger.member_state import Candidate, Phase
from ledgermq.dledger.messages import Message
from ledgermq.testing.simulation.broker import STORE_HOST
from ledgermq.testing.simulation.clients import TOPICS
from ledgermq.testing.simulation.disk import SECTOR_BYTES
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.world import World

# What a script waits for comes within this time, or never.
PATIENCE_MS = 20_000.0
# What all but the favorite wait longer before they ask for votes.
_HANDICAP_MS = 3_000.0
# Of all names and bodies the same length, so that entries of two histories stand in the same place.
_FIRST_NUMBER = 100
_BODY_BYTES = 40
# A plan in which nothing happens by itself.
_CALM: dict[str, Any] = {
    "seed": 0,
    "member_count": 3,
    "is_sync_flush": True,
    "java_ids": (),
    "chaos_ms": 0.0,
    "delay_ms": 1.0,
    "keeps_order": True,
    "tail": 0.0,
    "loss": 0.0,
    "duplication": 0.0,
    "holds_cut": False,
    "is_encoded": False,
    "sync_ms": 1.0,
    "fault_every_ms": 1e9,
    "fault_weights": (),
    "trigger_chance": 0.0,
    "send_every_ms": 1e9,
    "producer_count": 1,
    "queue_count": 1,
    "body_bytes_max": 3_000,
    "segment_bytes": 65_536,
    # A sweep is one step, so is a file: nothing of it comes between what a script does.
    "sweep_step_bytes": 65_536,
    "file_slice_chars": 65_536,
    "victims": (),
}


class Choices:
    """In the place of chance: the same answer each time."""

    def __init__(self, number: float, at: int, *, below: int = 0) -> None:
        self.number = number
        self.at = at
        # Largest answer of `randrange`.
        self.below = below

    def random(self) -> float:
        return self.number

    def choice(self, among: Sequence[Any]) -> Any:
        return among[self.at]

    def randrange(self, end: int) -> int:
        return min(end - 1, self.below)


class Patience:
    """A member's draws of election times: the favorite is always first."""

    def __init__(self, stage: "Stage", member_id: str) -> None:
        self._stage = stage
        self._member_id = member_id

    def uniform(self, low: float, high: float) -> float:
        if self._stage.favorite == self._member_id:
            return low
        # A wait before a round has a lower end; the others only spread what comes together.
        return high + _HANDICAP_MS if low > 0 else high

    def getrandbits(self, count: int) -> int:
        """Numbers that only tell things apart."""
        return self._stage.names.getrandbits(count)


class Held:
    """Messages that a script keeps back."""

    def __init__(self, wanted: Callable[[Message], bool], *, is_copy: bool) -> None:
        self.wanted = wanted
        # The message itself goes its way.
        self.is_copy = is_copy
        self.is_open = True
        self.letters: list[tuple[Message, Callable[[], None]]] = []

    def stop(self) -> None:
        """Keeps no more; what is kept stays."""
        self.is_open = False

    def release(self) -> None:
        """Delivers all that is kept, at once and in order, cut links or not."""
        self.is_open = False
        letters, self.letters = self.letters, []
        for _, deliver in letters:
            deliver()


class Stage:
    """A group at rest, and the hands that move it."""

    def __init__(self, **changes: Any) -> None:
        """Nothing runs yet; `changes` are those of the calm plan."""
        plan = Plan(**{**_CALM, **changes})
        self.world = world = World(plan, ())
        self.ids = plan.ids
        self.favorite = "n0"
        self.names = random.Random(0)
        network = world.network
        network.is_healed = True
        self._carry = network.carry
        network.carry = self._hold_or_carry
        network.on_sent = self._note_sent
        self._sent: Message | None = None
        self.held: list[Held] = []
        self._producer = world.producers[0]
        self._producer._count = _FIRST_NUMBER
        self._producer._rng = Choices(0.0, 0)
        for member in world.members.values():
            self._rule(member)

    def _rule(self, member: SimMember) -> None:
        """Takes all chance out of a member."""
        member._draw_sync_ms = lambda: member.sync_ms
        member.disk.interrupted_share = 0.0
        make_replica = member._make_replica

        def make_ruled(*arguments: Any) -> Any:
            replica = make_replica(*arguments)
            replica._rng = Patience(self, member.id)
            return replica

        member._make_replica = make_ruled

    def __getitem__(self, member_id: str) -> SimMember:
        return self.world.members[member_id]

    # -- time

    def run(self, milliseconds: float) -> None:
        """Time passes."""
        self.world.timeline.run_until(self.world.timeline.now_ms + milliseconds)

    def until(self, is_true: Callable[[], bool], what: str) -> None:
        """Time passes until something holds; it must come."""
        end_ms = self.world.timeline.now_ms + PATIENCE_MS
        came = is_true() or self.world.timeline.run_until(end_ms, is_true)
        demand(came, f"I15 it never comes that {what}", self.world.describe())

    def settle(self) -> None:
        """All is well again: the group must converge, and files, queues and history must agree."""
        for held in self.held:
            held.is_open = False
        self.start()
        self.world.settle()

    # -- members

    def start(self, *member_ids: str) -> None:
        """Starts these members, or all that do not run."""
        for member_id in member_ids or self.ids:
            self.world.faults.start(self[member_id])

    def kill(self, *member_ids: str) -> None:
        """These processes end at once; their page caches stay."""
        for member_id in member_ids:
            self[member_id].end(is_power_cut=False)

    def stop_in_order(self, member_id: str) -> None:
        """This process closes its files and ends."""
        member = self[member_id]
        self.until(lambda: member.replica is not None and member.raft is not None, "it runs")
        member.leave(lambda left: left.end(is_power_cut=False))
        self.until(lambda: not member.is_running, f"{member_id} has stopped")

    def cut_power(self, *member_ids: str, keeps: Callable[[str, int], bool] | None = None) -> None:
        """These machines stop; of what was not synced, they keep the sectors (path, offset) that
        the script keeps.
        """
        for member_id in member_ids:
            disk = self[member_id].disk
            if keeps is not None:
                for path, file in disk.files.items():
                    for at in range(0, len(file.content), SECTOR_BYTES):
                        end = at + SECTOR_BYTES
                        if not keeps(path, at):
                            file.content[at:end] = file.durable[at:end]
            disk._rng = Choices(0.99, 0) if keeps is None else Choices(0.0, -1)
            self[member_id].end(is_power_cut=True)

    def restart(self, *member_ids: str) -> None:
        """These processes end and start again."""
        self.kill(*member_ids)
        self.start(*member_ids)

    def lead(self, member_id: str) -> None:
        """This member is to lead, and to serve."""
        self.elect(member_id)
        self.until(lambda: self.serves(member_id), f"{member_id} serves")

    def elect(self, member_id: str) -> None:
        """This member is to be elected; it need not have committed anything yet."""
        self.favorite = member_id
        self._hasten(member_id)
        self.until(lambda: self.is_leader(member_id), f"{member_id} leads")

    def _hasten(self, member_id: str) -> None:
        """What the member waits for before it asks for votes is over: it was drawn before."""
        member = self[member_id]
        duty = member.raft._duty if member.raft is not None else None
        if isinstance(duty, Candidate) and duty.phase is Phase.WAITING:
            duty.deadline_ms = self.world.timeline.now_ms
            member.enter(member.replica._schedule_turn)

    def is_leader(self, member_id: str) -> bool:
        """Whether this member believes that it leads."""
        raft = self[member_id].raft
        return raft is not None and raft.role.name == "LEADER"

    def serves(self, member_id: str) -> bool:
        """Whether this member takes sends."""
        broker = self[member_id].broker
        return broker is not None and broker.leadership.is_serving

    def hand_over(self, sender: str, target: str) -> None:
        """The leader hands the leadership to another member."""
        member = self[sender]
        assert member.replica is not None
        self.favorite = target
        member.enter(lambda: member.replica and member.replica.transfer(target))
        self.until(lambda: self.serves(target), f"{target} took over")

    def propose(self, leader_id: str, count: int) -> None:
        """Puts records of equal size on the log of a leader, also of one that does not serve."""
        member = self[leader_id]
        replica = member.replica
        assert replica is not None
        record = opening_record(replica.term, STORE_HOST, member.wall_ms())
        member.enter(lambda: replica.propose([record] * count))
        self.run(20)

    def last_index(self, member_id: str) -> int:
        """End of a member's log; -1 when it does not run."""
        raft = self[member_id].raft
        return -1 if raft is None else raft.last_index

    def commit_index(self, member_id: str) -> int:
        """Commit index of a member; -1 when it does not run."""
        raft = self[member_id].raft
        return -1 if raft is None else raft.commit_index

    def holds_all(self, *member_ids: str) -> None:
        """Waits until these members have one log, and all of it is committed."""

        def is_one() -> bool:
            ends = {(self.last_index(i), self.commit_index(i)) for i in member_ids}
            return len(ends) == 1 and len(set(next(iter(ends)))) == 1

        self.until(is_one, f"{' '.join(member_ids)} hold the same")

    def term_at(self, member_id: str, index: int) -> int:
        """Term of an entry of a member's log; -1 for one that it lacks."""
        store = self[member_id].store
        assert store is not None
        return store.term_at(index) if store.first_index <= index <= store.last_index else -1

    def clean(self, *member_ids: str) -> None:
        """Retention of these members finds a full disk; over when what it gives up is gone."""
        for member_id in member_ids:
            member = self[member_id]
            member.enter(lambda m=member: m.broker.clean())
        self.run(20)

    # -- links and messages

    def isolate(self, *member_ids: str) -> None:
        """Nothing passes between these members and the others; all else is healed."""
        self.split(member_ids, tuple(i for i in self.ids if i not in member_ids))

    def split(self, *parts: Sequence[str]) -> None:
        """Members of different parts do not reach each other."""
        part_of = {member_id: part for part in parts for member_id in part}
        ids, cuts = self.ids, self.world.network.cuts
        cuts.clear()
        cuts.update((a, b) for a in ids for b in ids if part_of[a] is not part_of[b])

    def heal(self) -> None:
        """All links carry again."""
        self.world.network.cuts.clear()

    def hold(
        self,
        kind: type | tuple[type, ...],
        sender: str,
        target: str,
        wanted: Callable[[Any], bool] = lambda message: True,
        *,
        is_copy: bool = False,
    ) -> Held:
        """Keeps back the messages of a kind, or copies of them, on one way."""

        def is_wanted(message: Message) -> bool:
            way = (message.sender, message.target)
            return isinstance(message, kind) and way == (sender, target) and wanted(message)

        held = Held(is_wanted, is_copy=is_copy)
        self.held.append(held)
        return held

    def _note_sent(self, message: Message) -> None:
        self._sent = message
        self.world._on_sent(message)

    def _hold_or_carry(self, sender: str, target: str, deliver: Callable[[], None]) -> None:
        message, self._sent = self._sent, None
        if message is not None and (message.sender, message.target) == (sender, target):
            for held in self.held:
                if held.is_open and held.wanted(message):
                    held.letters.append((message, deliver))
                    if not held.is_copy:
                        return
        self._carry(sender, target, deliver)

    # -- clients

    def send(
        self, member_id: str, count: int = 1, *, body_bytes: int = _BODY_BYTES, topic_at: int = 0
    ) -> None:
        """Sends messages to a member, whether or not it leads; they arrive within this step."""
        producer = self._producer
        producer._rng = Choices(0.0, topic_at, below=body_bytes)
        for _ in range(count):
            producer._target_id = member_id
            producer.send()
        self.run(2)

    def send_all(
        self, member_id: str, count: int = 1, *, body_bytes: int = _BODY_BYTES, topic_at: int = 0
    ) -> None:
        """Sends messages, and waits until they are acknowledged."""
        goal = self.acked_count + count
        self.send(member_id, count, body_bytes=body_bytes, topic_at=topic_at)
        self.until(lambda: self.acked_count >= goal, f"{member_id} acknowledges")

    @property
    def acked_count(self) -> int:
        """Sends that were acknowledged."""
        return self._producer.acked_count

    def read(self, member_id: str, offset: int = 0) -> None:
        """A consumer reads the queue of the script at a member; what it gets is looked at."""
        member, queue = self[member_id], (TOPICS[0], 0)
        broker = member.broker
        assert broker is not None
        result = broker.pull(*queue, offset, 32)
        self.world.history.on_read(queue, offset, result.parts)


def group(member_count: int = 3, *, body_bytes: int = _BODY_BYTES, **changes: Any) -> Stage:
    """A group that runs, led by n0, with one acknowledged message on all members."""
    stage = Stage(member_count=member_count, **changes)
    stage.start()
    stage.lead("n0")
    state = stage["n0"].broker.state
    stage.until(lambda: state.is_swept, "the new leader has told the state")
    stage.send_all("n0", body_bytes=body_bytes)
    stage.holds_all(*stage.ids)
    return stage
