"""The operator of a simulated group: makes topics and consumer groups now and then, and removes
some.

Each has a name and a form of its own and is never changed, nor made again when it was removed, so
that whatever a member says of it is right or wrong. What the broker did not confirm may or may not
be there.
"""

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ledgermq.state.errors import BrokerError
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from ledgermq.state.under_way import OnCommitted
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.tables import Config, TableWatch

_EVERY_MS: Final = 1_500.0
# Each snapshot of the tables holds all of them, on every member.
_MADE_MAX: Final = 5
# How often one of them is removed instead of another one made.
_REMOVED_CHANCE: Final = 0.35


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
        # Confirmed, and not to be removed yet.
        self._made: list[Config] = []

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
                if self._made and self._rng.random() < _REMOVED_CHANCE:
                    gone = self._made.pop(self._rng.randrange(len(self._made)))
                    member.enter(self._remove, member, gone)
                    return
                self._count += 1
                member.enter(self._make, member, self._draw())
                return

    def _draw(self) -> Config:
        number = self._rng.randrange(1, 17)
        if self._rng.random() < 0.5:
            return TopicConfig(f"made-{self._count}", number, number)
        return SubscriptionGroup(f"made-{self._count}", retries_max=number)

    def _make(self, member: SimMember, config: Config) -> None:
        broker = member.broker
        if broker is None or not broker.leadership.is_serving:
            return

        def made() -> None:
            self._watch.on_acked(config)
            self._made.append(config)

        if isinstance(config, TopicConfig):
            broker.state.put_topic(config, self._when_confirmed(member, made))
        else:
            broker.state.put_group(config, self._when_confirmed(member, made))

    def _remove(self, member: SimMember, config: Config) -> None:
        broker = member.broker
        if broker is None or not broker.leadership.is_serving:
            return
        self._watch.on_removing(config)
        removed = self._when_confirmed(member, partial(self._watch.on_removed, config))
        if isinstance(config, TopicConfig):
            broker.state.remove_topic(config.name, removed)
        else:
            broker.state.remove_group(config.name, True, removed)

    def _when_confirmed(self, member: SimMember, confirmed: Callable[[], None]) -> OnCommitted:
        incarnation = member.incarnation

        def done(error: BrokerError | None) -> None:
            if error is None and member.incarnation == incarnation:
                # What the turn commits is looked at when it is over.
                self._timeline.at(0.0, confirmed)

        return done
