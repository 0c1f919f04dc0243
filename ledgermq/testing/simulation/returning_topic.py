"""A topic of many queues in a simulated group, which is removed and comes back under its name.

Producers send to some of its queues, whose numbering goes on when it comes back. A group commits
offsets of all of them, which together are more than a part of a snapshot holds, so that a snapshot
tells them in several parts. A removal forgets them, and nothing that was committed for the topic
that came back.
"""

import contextlib
import random
from collections.abc import Mapping
from functools import partial
from typing import Final

from ledgermq.state.errors import BrokerError
from ledgermq.state.topics import TopicConfig
from ledgermq.state.under_way import OnCommitted
from ledgermq.testing.simulation.clients import RETURNING_TOPIC
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.tables import TableWatch

_GROUP: Final = "many-queues"
# With more pairs than go at once: a removal is worked off in pieces.
_SMALL_GROUPS: Final = ("few-queues-1", "few-queues-2", "few-queues-3")
_EVERY_MS: Final = 800.0
_TURNS_MAX: Final = 24
_REMOVED_CHANCE: Final = 0.35
# How often it comes back in the turn in which its removal is committed.
_AT_ONCE_CHANCE: Final = 0.7


class TopicOperator:
    """Makes the topic at whoever leads, commits offsets for it, and removes it."""

    def __init__(
        self,
        timeline: Timeline,
        members: Mapping[str, SimMember],
        watch: TableWatch,
        rng: random.Random,
        queue_count: int,
    ) -> None:
        self._timeline = timeline
        self._members = members
        self._watch = watch
        self._rng = rng
        self._topic = TopicConfig(RETURNING_TOPIC, queue_count, queue_count)
        self._turn_count = 0
        # Changes that were asked for: what comes late of an earlier one says nothing any more.
        self._change_count = 0

    def begin(self) -> None:
        """Plans the first turn; there is none without queues."""
        if self._topic.queue_count:
            self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._take_turn)

    def _take_turn(self) -> None:
        self._turn_count += 1
        if self._turn_count > _TURNS_MAX:
            return
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._take_turn)
        for member in self._members.values():
            if member.reactor is not None and not member.is_paused:
                member.enter(self._act, member)

    def _act(self, member: SimMember) -> None:
        broker = member.broker
        if broker is None or not broker.leadership.is_serving:
            return
        if broker.state.topics.find(RETURNING_TOPIC) is None:
            self._make(member)
        elif self._rng.random() < _REMOVED_CHANCE:
            self._remove(member)
        else:
            self.commit_all(member, self._turn_count)

    def _make(self, member: SimMember) -> None:
        broker = member.broker
        if broker is not None and broker.leadership.is_serving:
            made = partial(self._watch.on_acked, self._topic)
            broker.state.put_topic(self._topic, self._when_confirmed(member, made))

    def _remove(self, member: SimMember) -> None:
        broker = member.broker
        assert broker is not None
        self._watch.on_removing(self._topic)
        removed = self._when_confirmed(member, partial(self._removed, member))
        broker.state.remove_topic(RETURNING_TOPIC, removed)

    def _removed(self, member: SimMember) -> None:
        self._watch.on_removed(self._topic)
        if self._rng.random() < _AT_ONCE_CHANCE and member.reactor is not None:
            member.enter(self._make, member)

    def commit_all(self, member: SimMember, offset: int) -> None:
        """The group commits an offset of each queue; no caller waits for it."""
        broker = member.broker
        assert broker is not None
        with contextlib.suppress(BrokerError):
            for queue_id in range(self._topic.queue_count):
                broker.commit_offset(_GROUP, RETURNING_TOPIC, queue_id, offset, None)
            for group in _SMALL_GROUPS:
                broker.commit_offset(group, RETURNING_TOPIC, 0, offset, None)

    def _when_confirmed(self, member: SimMember, confirmed: partial[None]) -> OnCommitted:
        self._change_count += 1
        number, incarnation = self._change_count, member.incarnation

        def confirm() -> None:
            if self._change_count == number:
                confirmed()

        def done(error: BrokerError | None) -> None:
            if error is None and member.incarnation == incarnation:
                # What the turn commits is looked at when it is over.
                self._timeline.at(0.0, confirm)

        return done
