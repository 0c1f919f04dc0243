"""Deliveries in a simulated group: what a leader takes out of internal queues, as delay levels and
half messages do, behind the plan that tells of it.

Each queue holds the messages 0, 1, 2, ... without an end, each of them is due at once. Some are
passed without a delivery, as if they were not there any more.

I47  each message of an internal queue is delivered once, in order, whoever leads when; so each
     member that has applied a delivery knows how far its queue is worked off, also from a snapshot
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ledgermq.broker.waits.deliveries import Deliveries
from ledgermq.commitlog import AppendMessage, AppendResult
from ledgermq.protocol.sysflag import TRANSACTION_PREPARED
from ledgermq.state.errors import BrokerError, is_refused
from ledgermq.state.queue_progress import HALF_QUEUE, QueueProgress, Run
from ledgermq.testing.simulation.broker import STORE_HOST, SimBroker
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.member import SimMember

# Takes no place in a queue, for nobody reads it.
DELIVERED_TOPIC: Final = "delivered"
_EVERY_MS: Final = 600.0
_PLANS_MAX: Final = 16
_QUEUES: Final = (HALF_QUEUE, 1, 18)
_COUNT_MAX: Final = 3
_PASSED_CHANCE: Final = 0.2


class DeliveryWatch:
    """What the log says of deliveries."""

    def __init__(self, hit: Callable[[str], None]) -> None:
        """Nothing was delivered."""
        self._hit = hit
        self._next: dict[int, int] = {}
        # The entry that told of each queue last: a member whose log begins behind a delivery is
        # told by a snapshot.
        self._index: dict[int, int] = {}

    def on_record(self, index: int, value: Mapping[str, Any]) -> None:
        """A record of the state is committed: a plan passes what needs no delivery."""
        if value["kind"] == "sweep" and value.get("part") == 0:
            self._take_snapshot(index, value.get("progress") or {})
        if value["kind"] == "plan":
            for queue, next_offset, count in value["runs"]:
                if not count:
                    self._take(index, queue, next_offset - 1)

    def _take_snapshot(self, index: int, cursors: Mapping[str, int]) -> None:
        """A snapshot begins: it tells all that stands before it in the log."""
        for queue, expected in self._next.items():
            told = cursors.get(str(queue), 0)
            demand(told == expected, "I47 snapshot of other cursors", index, queue, told, expected)
            self._index[queue] = index
            self._hit("delivery cursor told by a snapshot")

    def check(self, member_id: str, progress: QueueProgress, applied_index: int | None) -> None:
        """I47 of one member; as `TableWatch.check`."""
        value = progress.to_json()
        known = {**value["offsetTable"], HALF_QUEUE: value.get("halfOffset", 0)}
        for queue, index in self._index.items():
            if applied_index is None or index <= applied_index:
                cursor, expected = known.get(queue, 0), self._next[queue]
                facts = (member_id, queue, cursor, expected, index)
                demand(cursor >= expected, "I47 cursor forgotten", *facts)

    def on_delivered(self, index: int, body: bytes) -> None:
        """A delivery is committed."""
        queue, number = body.split()
        self._take(index, int(queue), int(number))
        self._hit("planned delivery")

    def _take(self, index: int, queue: int, number: int) -> None:
        expected = self._next.get(queue, 0)
        demand(number >= expected, "I47 delivered twice", index, queue, number, expected)
        demand(number <= expected, "I47 delivery forgotten", index, queue, number, expected)
        self._next[queue] = number + 1
        self._index[queue] = index


class Deliverers:
    """Has whoever leads deliver, now and then."""

    def __init__(
        self,
        timeline: Timeline,
        members: Mapping[str, SimMember],
        rng: random.Random,
    ) -> None:
        self._timeline = timeline
        self._members = members
        self._rng = rng
        self._count = 0

    def begin(self) -> None:
        """Plans the first plan."""
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._have_one_deliver)

    def _have_one_deliver(self) -> None:
        if self._count >= _PLANS_MAX:
            return
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._have_one_deliver)
        for member in self._members.values():
            broker = member.broker
            is_up = member.reactor is not None and not member.is_paused
            if is_up and broker is not None and broker.leadership.is_serving:
                self._count += 1
                member.enter(self._deliver, member)

    def _deliver(self, member: SimMember) -> None:
        broker = member.broker
        if broker is None or not broker.leadership.is_serving:
            return
        queues = self._rng.sample(_QUEUES, self._rng.randint(1, len(_QUEUES)))
        counts = [
            0 if self._rng.random() < _PASSED_CHANCE else self._rng.randint(1, _COUNT_MAX)
            for _ in queues
        ]
        # What is passed goes first: it counts whatever becomes of the deliveries.
        deliver(broker, sorted(zip(queues, counts, strict=True), key=lambda one: one[1] > 0))


def deliver(broker: SimBroker, counts: Sequence[tuple[int, int]]) -> None:
    """Takes messages out of queues.

    Args:
        broker: of a member that serves.
        counts: of each queue, how many; 0 passes one without a delivery.
    """
    progress, now_ms = broker.state.progress, broker.wall_ms()
    runs, messages = [], []
    for queue, count in counts:
        cursor = progress.cursor(queue)
        runs.append(Run(queue, cursor + 1, count))
        for number in range(cursor, cursor + count):
            body = b"%d %d" % (queue, number)
            messages.append(
                AppendMessage(
                    DELIVERED_TOPIC, 0, 0, TRANSACTION_PREPARED, now_ms,
                    STORE_HOST, STORE_HOST, 0, 0, body, b"",
                )
            )  # fmt: skip
    former = progress.advance(runs)

    def done(_: Sequence[AppendResult], error: BrokerError | None) -> None:
        # As the broker: what takes long stands in the log.
        if is_refused(error):
            progress.take_back(former)

    deliveries = Deliveries(broker.proposals, broker.state.plan_body, STORE_HOST, broker.wall_ms)
    deliveries.append(runs, messages, done)
