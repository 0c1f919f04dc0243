"""The operator of a simulated group: makes topics and consumer groups now and then.

Each has a name and a form of its own and is never changed, so that whatever a member says of it is
right or wrong. What the broker did not confirm may or may not be there.
"""

import random
from collections.abc import Mapping
from typing import Final

from ledgermq.state.errors import BrokerError
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.tables import Config, TableWatch

_EVERY_MS: Final = 1_500.0
# Each snapshot of the tables holds all of them, on every member.
_MADE_MAX: Final = 5


class Admin:
    """Asks whoever leads."""

    def __init__(
        self,
        timeline: Timeline,
        members: Mapping[str, SimMember],
        watch: TableWatch,
        rng: random.Random,
    ) -> None:
        self._timeline = timeline
        self._members = members
        self._watch = watch
        self._rng = rng
        self._count = 0

    def begin(self) -> None:
        """Plans the first one."""
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._make_one)

    def _make_one(self) -> None:
        if self._count >= _MADE_MAX:
            return
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._make_one)
        for member in self._members.values():
            broker = member.broker
            is_up = member.reactor is not None and not member.is_paused
            if is_up and broker is not None and broker.leadership.is_serving:
                self._count += 1
                member.enter(self._ask, member, self._draw())
                return

    def _draw(self) -> Config:
        number = self._rng.randrange(1, 17)
        if self._rng.random() < 0.5:
            return TopicConfig(f"made-{self._count}", number, number)
        return SubscriptionGroup(f"made-{self._count}", retries_max=number)

    def _ask(self, member: SimMember, config: Config) -> None:
        broker = member.broker
        if broker is None or not broker.leadership.is_serving:
            return
        incarnation = member.incarnation

        def done(error: BrokerError | None) -> None:
            if error is None and member.incarnation == incarnation:
                # What the turn commits is looked at when it is over.
                self._timeline.at(0.0, self._watch.on_acked, config)

        if isinstance(config, TopicConfig):
            broker.state.put_topic(config, done)
        else:
            broker.state.put_group(config, done)
