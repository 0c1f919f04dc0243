"""Consumer groups of a simulated group that use their offsets seldom, and never again.

One has a client that is connected to whoever leads and says nothing for long; of the others each
commits a few times, with no client at all, and is never seen again.

I44  offsets expire when for so long no client of the group was connected to the leader and nothing
     was committed, and no sooner; unless their topic is gone
"""

import contextlib
import random
from collections.abc import Callable, Mapping
from typing import Final

from ledgermq.protocol.group_keys import split_group_key
from ledgermq.state.errors import BrokerError
from ledgermq.testing.simulation.broker import OFFSETS_RETENTION_MS
from ledgermq.testing.simulation.clients import TOPICS
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.next_format import members_of

SILENT: Final = "silent"
# Stands in records that let offsets go, of any format.
_EXPIRED: Final = b':"expired"'
_EVERY_MS: Final = 900.0
# The client of the silent group commits again: far less often than offsets live.
_COMMIT_MS: Final = 4 * OFFSETS_RETENTION_MS
_GUESTS_MAX: Final = 4
# A guest goes after so many commits.
_COMMITS: Final = 3


class Visitors:
    """The silent group and its guests."""

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
        # The process to which the silent group's client is connected, by member.
        self._connected: dict[str, int] = {}
        self._committed_ms = 0.0
        self._guest = 0
        # When each group asked last for a commit that was answered, or its client left; and the
        # number of the last commit.
        self._used_ms: dict[str, float] = {}
        self._offset = 0
        # Records that let go what is in use, and why.
        self._wrong: dict[bytes, tuple[object, ...]] = {}

    def begin(self) -> None:
        """Plans the first visit."""
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._visit)

    def is_live(self, member: SimMember, group: str) -> bool:
        """Whether a client of a group is connected to a member; of all others one always is."""
        if group.startswith("guest-"):
            return False
        return group != SILENT or self._connected.get(member.id) == member.incarnation

    def _visit(self) -> None:
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._visit)
        for member in self._members.values():
            broker = member.broker
            is_up = member.reactor is not None and not member.is_paused
            if is_up and broker is not None and broker.leadership.is_serving:
                member.enter(self._come, member)

    def _come(self, member: SimMember) -> None:
        broker = member.broker
        if broker is None or not broker.leadership.is_serving:
            return
        self.connect(member)
        now_ms = self._timeline.now_ms
        if SILENT not in self._used_ms or now_ms - self._committed_ms >= _COMMIT_MS:
            self._committed_ms = now_ms
            self.commit(member, SILENT)
        if self._guest < _GUESTS_MAX * _COMMITS:
            self.commit(member, f"guest-{self._guest // _COMMITS}")
            self._guest += 1

    def connect(self, member: SimMember) -> None:
        """The silent group's client connects to a member, until the process there ends."""
        self._connected[member.id] = member.incarnation

    def leave(self) -> None:
        """The silent group's client is gone."""
        for member_id, incarnation in self._connected.items():
            if self._members[member_id].incarnation == incarnation:
                self._used_ms[SILENT] = self._timeline.now_ms
        self._connected.clear()

    def commit(self, member: SimMember, group: str) -> None:
        """A group commits at a member that serves."""
        broker, asked_ms = member.broker, self._timeline.now_ms
        assert broker is not None
        incarnation = member.incarnation
        self._offset += 1

        def done(error: BrokerError | None) -> None:
            if error is None and member.incarnation == incarnation:
                self._used_ms[group] = max(asked_ms, self._used_ms.get(group, 0.0))

        with contextlib.suppress(BrokerError):
            broker.commit_offset(group, TOPICS[0], 0, self._offset, done)

    def on_proposed(self, member: SimMember, body: bytes) -> None:
        """A leader proposes a record of the state; one that was deposed meanwhile may be wrong."""
        if _EXPIRED not in body:
            return
        now_ms = self._timeline.now_ms
        for key in members_of(body)["put"]:
            topic, group = split_group_key(key)
            if member.broker is None or member.broker.state.find_topic(topic) is None:
                # Offsets of a topic that is gone expire, whichever clients are connected.
                continue
            is_live = self.is_live(member, group)
            used_ms = self._used_ms.get(group, 0.0)
            if is_live or now_ms - used_ms < OFFSETS_RETENTION_MS:
                self._wrong[body] = (key, member.id, is_live, used_ms, now_ms)

    def on_applied(self, body: bytes) -> None:
        """A member applies a record of the state."""
        if _EXPIRED in body:
            demand(body not in self._wrong, "I44 expired in use", self._wrong.get(body))
            self._hit("offsets expired")
