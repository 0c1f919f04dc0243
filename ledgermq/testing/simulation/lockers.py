"""Consumers in order of a simulated group: each asks whoever leads for one queue, now and then.

I41  a queue that a consumer was told to hold is no other's for as long as it counts on that
     (a consumer that goes back from a leader to the one before it may be told both)
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
        # The term of the latest leader that each consumer has spoken to: it does not go back.
        self._terms: dict[str, int] = {}
        # Who was told last that it holds the queue, and until when it counts on that.
        self._holder = ""
        self._until_ms = 0.0

    def begin(self) -> None:
        """Plans the first request."""
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._ask_one)

    def _ask_one(self) -> None:
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._ask_one)
        client_id, gives_up = self._rng.choice(_CLIENTS), self._rng.random() < 0.2
        for member in self._members.values():
            broker = member.broker
            is_up = member.reactor is not None and not member.is_paused
            if is_up and broker is not None and broker.leadership.is_serving:
                member.enter(self._ask, member, client_id, gives_up)

    def _ask(self, member: SimMember, client_id: str, gives_up: bool) -> None:
        broker = member.broker
        if broker is None or not broker.leadership.is_serving:
            return
        term = broker.leadership.term
        if term < self._terms.get(client_id, term):
            return
        self._terms[client_id] = term
        incarnation = member.incarnation
        if gives_up and client_id == self._holder:
            # It does not count on the queue any more, whatever becomes of its request.
            self._holder = ""
            broker.state.lock_requests.unlock(GROUP, [_QUEUE], client_id, _ignore)
            return

        def locked(held: list[QueueKey], error: BrokerError | None) -> None:
            if error is None and held and member.incarnation == incarnation:
                self._timeline.at(0.0, self._granted, client_id)

        broker.state.lock_requests.lock(GROUP, [_QUEUE], client_id, locked)

    def _granted(self, client_id: str) -> None:
        now_ms = self._timeline.now_ms
        is_free = self._holder in ("", client_id) or now_ms >= self._until_ms
        demand(is_free, "I41 two hold a queue", client_id, self._holder, now_ms, self._until_ms)
        if self._holder != client_id:
            self._hit("queue changed hands")
        self._holder, self._until_ms = client_id, now_ms + _COUNTED_ON_MS


def _ignore(_: BrokerError | None) -> None:
    """Nobody waits."""
