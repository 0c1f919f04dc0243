"""Consumers of a simulated group that ask for the offsets of others, of every member.

As a consumer does that gets a queue: what it is told is where it begins. A member that was deposed
and does not know it is asked like any other; it may be silent. So may a follower that its leader
does not answer; what it tells otherwise, like a slave, is as old as what it has applied. What is
asked of a process that has no time lies in its sockets, among what its peers have told it
meanwhile.

I45  an offset that is told is none before one that was answered as stored when it was asked for,
     but by a follower whose leader did not answer it
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.defer import maybeDeferred
from twisted.python.failure import Failure

from ledgermq.protocol.headers import QueryConsumerOffsetResponseHeader
from ledgermq.state.errors import BrokerError
from ledgermq.testing.simulation.clients import GROUP, TOPICS
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.history import BrokerWatch
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.member import SimMember

_EVERY_MS: Final = 150.0
# What a member tells that knows of no offset.
_NONE: Final = -1


class Askers:
    """Those who ask, and what they may be told."""

    def __init__(
        self,
        timeline: Timeline,
        members: Mapping[str, SimMember],
        queue_count: int,
        watch: BrokerWatch,
        hit: Callable[[str], None],
        rng: random.Random,
    ) -> None:
        self._timeline = timeline
        self._members = members
        self._queues = [(topic, number) for topic in TOPICS for number in range(queue_count)]
        self._watch = watch
        self._hit = hit
        self._rng = rng

    def begin(self) -> None:
        """Plans the first question."""
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._ask_all)

    def _ask_all(self) -> None:
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._ask_all)
        queue = self._rng.choice(self._queues)
        for member in self._members.values():
            if member.reactor is not None:
                member.reactor.callLater(0, self.ask, member, queue)

    def ask(self, member: SimMember, queue: tuple[str, int]) -> None:
        """Asks a member for the offset that the consumers' group has of a queue."""
        broker = member.broker
        if broker is None:
            return
        was_serving, reasons = broker.leadership.is_serving, list[BrokerError]()
        floor, asked_ms = self._watch.stored_offsets.get(queue, _NONE), self._timeline.now_ms
        incarnation = member.incarnation

        def answered(answer: Any) -> None:
            if answer is None or member.incarnation != incarnation:
                self._hit("question for an offset not answered")
                return
            if isinstance(answer, Failure):
                answer.trap(BrokerError)
                offset = _NONE
            else:
                offset = answer.header(QueryConsumerOffsetResponseHeader).offset
            if reasons:
                self._hit("question to a follower that its leader did not answer")
                return
            facts = (member.id, queue, offset, floor, asked_ms)
            self._timeline.at(0.0, self._told, *facts)
            if not was_serving:
                self._hit("offset told by a follower")

        maybeDeferred(broker.query_offset, GROUP, *queue, reasons.append).addBoth(answered)

    def _told(
        self, member_id: str, queue: tuple[str, int], offset: int, floor: int, asked_ms: float
    ) -> None:
        facts = (member_id, queue, offset, floor, asked_ms)
        demand(offset >= floor, "I45 an older offset is told", *facts)
        self._hit("offset told")
