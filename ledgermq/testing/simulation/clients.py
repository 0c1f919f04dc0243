"""Clients of the simulated group: producers that never repeat themselves, consumers that commit.

Each send is another message (producer, number), so that what is stored twice or out of order shows.
A client knows a member that led a moment ago, asks the next one when it is refused, and gives up
after a while: then it does not know what became of its message.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from ledgermq.commitlog import (
    AppendMessage,
    DamagedFileError,
    GetMessageResult,
    GetMessageStatus,
)
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.command import decode as decode_command
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.state.errors import BrokerError, IllegalMessageError, SystemBusyError
from ledgermq.testing.simulation.broker import STORE_HOST
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.history import Ack, BrokerWatch
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.network import Network
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.service import ServiceWatch

TOPICS: Final = ("TopicA", "TopicB")
# Has many queues, is removed and comes back; only some runs have it.
RETURNING_TOPIC: Final = "TopicC"
GROUP: Final = "readers"
_TIMEOUT_MS: Final = 4_000.0
_WAITING_MAX: Final = 64
_PULLED_MAX: Final = 8
_COMMIT_MS: Final = 700.0


class _Connection:
    """What a broker sees of a client."""

    def __init__(self, client: "Producer", member: SimMember) -> None:
        self.client = client
        self.member = member

    def send_frame(self, frame: bytes) -> None:
        """Brings answers to the client."""
        for part in FrameDecoder().feed(frame):
            command = decode_command(part)
            self.client.watch.on_answer(self.client.id, command.opaque)
            self.client.service.on_answer(self.member.id, self.client.id, command.opaque)
            self.client.answer_from(self.member, command)


class Producer:
    """Sends messages, one by one or in bursts, and remembers what it was told."""

    def __init__(
        self,
        number: int,
        plan: Plan,
        timeline: Timeline,
        network: Network,
        members: Mapping[str, SimMember],
        watch: BrokerWatch,
        service: ServiceWatch,
        rng: random.Random,
    ) -> None:
        self.id = f"p{number}"
        self._plan = plan
        self._timeline = timeline
        self._network = network
        self._members = members
        self.watch = watch
        self.service = service
        self._rng = rng
        self._target_id = plan.ids[number % plan.member_count]
        self._topics = (*TOPICS, RETURNING_TOPIC) if plan.returning_queue_count else TOPICS
        self._count = 0
        # Requests without an answer: queue, body, and the highest acknowledged offset before.
        self._waiting: dict[int, tuple[tuple[str, int], bytes, int]] = {}
        self.acked_count = 0

    def send_some(self) -> None:
        """Sends one message, or a burst."""
        for _ in range(self._rng.choice((1, 1, 1, 2, 5))):
            if len(self._waiting) < _WAITING_MAX:
                self.send()

    def send(self) -> None:
        """Sends the next message to the member that this producer takes for the leader."""
        self.send_to(self._members[self._target_id])

    def send_to(self, member: SimMember) -> None:
        """Sends the next message to a member."""
        rng = self._rng
        self._count += 1
        opaque = self._count
        topic, queue_id = rng.choice(self._topics), rng.randrange(self._plan.queue_count)
        padding = b"." * rng.randrange(self._plan.body_bytes_max)
        body = b"%s-%d %s" % (self.id.encode(), opaque, padding)
        queue = (topic, queue_id)
        self.watch.sent.add(body)
        self._waiting[opaque] = (queue, body, self.watch.acked_ends.get(queue, -1))
        # A key of its own, and one that it shares with others.
        name = self.id.encode()
        keys = b"KEYS\x01%s-%d %s-group-%d" % (name, opaque, name, opaque // 10)
        now_ms = int(self._timeline.now_ms)
        message = AppendMessage(
            topic, queue_id, 0, 0, now_ms, STORE_HOST, STORE_HOST, 0, 0, body, keys
        )
        self._network.carry(
            self.id, member.id, lambda: self._arrive(member, message, opaque, queue_id)
        )
        self._timeline.at(_TIMEOUT_MS, self._give_up, opaque)

    def _arrive(
        self, member: SimMember, message: AppendMessage, opaque: int, queue_id: int
    ) -> None:
        if member.reactor is not None:
            member.reactor.callLater(0, self._ask, member, message, opaque, queue_id)

    def _ask(self, member: SimMember, message: AppendMessage, opaque: int, queue_id: int) -> None:
        broker = member.broker
        if broker is None:
            return
        if (self.id, opaque) in self.watch.taken:
            # A copy that the network made: TCP brings none, so nobody has to cope with it.
            return
        self.watch.taken.add((self.id, opaque))
        try:
            broker.send(message, _Connection(self, member), opaque, queue_id)
            self.service.on_taken(member.id, self.id, opaque)
        except BrokerError:
            self._network.carry(member.id, self.id, lambda: self._refused(opaque))

    def answer_from(self, member: SimMember, command: RemotingCommand) -> None:
        """A member answered with success."""
        self._network.carry(member.id, self.id, lambda: self._answered(command))

    def failed(self, member: SimMember, opaque: int, error: BrokerError) -> None:
        """A member answered with an error to a send that it took before.

        Most mean that the outcome is not known; two promise that nothing was stored.
        """
        self.watch.on_answer(self.id, opaque)
        self.service.on_answer(member.id, self.id, opaque)
        waiting = self._waiting.get(opaque)
        if waiting is not None and isinstance(error, SystemBusyError | IllegalMessageError):
            self.watch.refused.add(waiting[1])
        self._network.carry(member.id, self.id, lambda: self._give_up(opaque))

    def _answered(self, command: RemotingCommand) -> None:
        waiting = self._waiting.pop(command.opaque, None)
        if waiting is None:
            return
        queue, body, floor = waiting
        fields = command.ext_fields or {}
        self.watch.on_ack(Ack(queue, int(fields["queueOffset"]), body), floor)
        self.acked_count += 1

    def _refused(self, opaque: int) -> None:
        waiting = self._waiting.pop(opaque, None)
        if waiting is not None:
            self.watch.refused.add(waiting[1])
            self._turn_away()

    def _give_up(self, opaque: int) -> None:
        if self._waiting.pop(opaque, None) is not None:
            self._turn_away()

    def _turn_away(self) -> None:
        """Asks another member from now on."""
        member = self._members[self._target_id]
        leader_id = member.replica.leader_id if member.replica is not None else None
        if leader_id is not None and leader_id != self._target_id:
            self._target_id = leader_id
        else:
            self._target_id = self._rng.choice(self._plan.ids)


class Consumer:
    """Reads one queue from its beginning, and commits how far it is."""

    def __init__(
        self,
        queue: tuple[str, int],
        plan: Plan,
        timeline: Timeline,
        members: Mapping[str, SimMember],
        watch: BrokerWatch,
        rng: random.Random,
        damaged: Callable[[SimMember, DamagedFileError], None],
    ) -> None:
        self._damaged = damaged
        self._queue = queue
        self._plan = plan
        self._timeline = timeline
        self._members = members
        self._watch = watch
        self._rng = rng
        self._offset = 0
        self._committed_ms = 0.0

    def begin(self) -> None:
        """Plans the first pull."""
        self._timeline.at(self._rng.uniform(0, self._plan.pull_every_ms), self._pull)

    def _pull(self) -> None:
        self._timeline.at(self._rng.expovariate(1 / self._plan.pull_every_ms), self._pull)
        member = self._members[self._rng.choice(self._plan.ids)]
        if member.reactor is None or member.is_paused:
            return
        member.reactor.callLater(0, self._ask, member)

    def _ask(self, member: SimMember) -> None:
        broker = member.broker
        if broker is None or broker.failure is not None:
            return
        topic, queue_id = self._queue
        # Now and then what was read before is read again.
        is_again = self._rng.random() < 0.1
        offset = self._rng.randrange(self._offset + 1) if is_again else self._offset
        try:
            result = broker.pull(topic, queue_id, offset, _PULLED_MAX)
            if result.status is GetMessageStatus.FOUND:
                self._watch.on_read(self._queue, offset, result.parts)
            self._move(offset, result)
            now_ms = self._timeline.now_ms
            if now_ms - self._committed_ms > _COMMIT_MS:
                committed = self._offset

                def done(error: BrokerError | None) -> None:
                    if error is None:
                        # Behind the step that commits it.
                        acked = self._watch.on_offset_acked
                        self._timeline.at(0.0, acked, GROUP, self._queue, committed)

                # Half of them wait for the answer, as by `commit()`.
                waits = self._rng.random() < 0.5
                broker.commit_offset(GROUP, topic, queue_id, committed, done if waits else None)
                self._committed_ms = now_ms
        except DamagedFileError as error:
            self._damaged(member, error)
        except BrokerError:
            return

    def _move(self, offset: int, result: GetMessageResult[bytes]) -> None:
        if result.status is GetMessageStatus.FOUND and offset == self._offset:
            self._offset += len(result.parts)
        elif result.status is GetMessageStatus.OFFSET_TOO_SMALL:
            self._offset = max(self._offset, result.next_begin_offset)


def refuser(
    producers: Mapping[str, Producer], member: SimMember
) -> Callable[[Any, int, int, BrokerError], None]:
    """Returns what a member calls when a send that it took fails."""

    def refuse(connection: Any, opaque: int, _: int, error: BrokerError) -> None:
        producers[connection.client.id].failed(member, opaque, error)

    return refuse
