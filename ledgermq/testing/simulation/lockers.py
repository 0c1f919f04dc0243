"""Consumers in order of a simulated group: each asks for one queue, now and then.

Each asks one of those that say that they lead, or all of them: a member that was deposed and does
not know it yet is asked as long as it serves, also by who has spoken to its successor.

I41  a queue that a consumer was told to hold is no other's for as long as it counts on that
"""

import random
from collections.abc import Callable, Mapping
from typing import Final

from ledgermq.state.errors import BrokerError
from ledgermq.state.queue_locks import QueueKey
from ledgermq.testing.simulation.clients import GROUP, TOPICS
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.member import SimMember

_EVERY_MS: Final = 700.0
_CLIENTS: Final = ("c1", "c2", "c3")
_QUEUE: Final = QueueKey(TOPICS[0], "broker", 0)
# So long does a consumer count on a queue without news: lockMaxLiveTime of upstream's client.
_COUNTED_ON_MS: Final = 30_000.0


class Lockers:
    """Three consumers of one queue."""

    def __init__(
        self,
        timeline: Timeline,
        members: Mapping[str, SimMember],
        hit: Callable[[str], None],
        rng: random.Random,
    ) -> None:
        self._timeline = timeline
        self._members = members
        self._hit = hit
        self._rng = rng
        # How often each consumer has given the queue back: what it asked before counts no more.
        self._returns = dict.fromkeys(_CLIENTS, 0)
        # Who was told last that it holds the queue, and until when it counts on that.
        self._holder = ""
        self._until_ms = 0.0

    def begin(self) -> None:
        """Plans the first request."""
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._ask_one)

    def _ask_one(self) -> None:
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._ask_one)
        client_id, gives_up = self._rng.choice(_CLIENTS), self._rng.random() < 0.2
        serving = [member for member in self._members.values() if _serves(member)]
        if len(serving) > 1:
            self._hit("two members take themselves for leaders")
            if self._rng.random() < 0.5:
                serving = [self._rng.choice(serving)]
        gives_up = gives_up and client_id == self._holder
        for member in serving:
            assert member.reactor is not None
            piece = self.give_back if gives_up else self.ask
            member.reactor.callLater(0, piece, member, client_id)

    def give_back(self, member: SimMember, client_id: str) -> None:
        """A consumer gives the queue back: it does not count on it any more, whatever becomes of
        its request.
        """
        self._returns[client_id] += 1
        if self._holder == client_id:
            self._holder = ""
        if member.broker is not None and member.broker.leadership.is_serving:
            member.broker.state.lock_requests.unlock(GROUP, [_QUEUE], client_id, _ignore)

    def ask(self, member: SimMember, client_id: str) -> None:
        """A consumer asks a member for the queue, if that serves."""
        broker = member.broker
        if broker is None or not broker.leadership.is_serving:
            return
        incarnation, returns = member.incarnation, self._returns[client_id]

        def locked(held: list[QueueKey], error: BrokerError | None) -> None:
            if error is None and held and member.incarnation == incarnation:
                self._timeline.at(0.0, self._granted, client_id, returns)

        broker.state.lock_requests.lock(GROUP, [_QUEUE], client_id, locked)

    def _granted(self, client_id: str, returns: int) -> None:
        if self._returns[client_id] != returns:
            return
        now_ms = self._timeline.now_ms
        is_free = self._holder in ("", client_id) or now_ms >= self._until_ms
        demand(is_free, "I41 two hold a queue", client_id, self._holder, now_ms, self._until_ms)
        if self._holder != client_id:
            self._hit("queue changed hands")
        self._holder, self._until_ms = client_id, now_ms + _COUNTED_ON_MS


def _serves(member: SimMember) -> bool:
    broker = member.broker
    return member.reactor is not None and broker is not None and broker.leadership.is_serving


def _ignore(_: BrokerError | None) -> None:
    """Nobody waits."""
