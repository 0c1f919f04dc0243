"""OffsetExpiry: a leader lets go offsets that nobody uses any more.

A group uses its offsets while a client of it is connected to the leader, and when it commits. Of a
group that has done neither for so long all offsets go, and of any group those for topics that have
not been there for so long. The broker's own groups keep theirs.

When a group was last seen is known to the leader alone, and not stored: a new leader, also the same
member after a restart, begins to count when it comes upon a group for the first time. So offsets
live longer than they must, never shorter. Nothing here depends on how many offsets there are: some
are looked at in a step, and what goes is one small command.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final

from ledgermq.protocol.group_keys import split_group_key
from ledgermq.state.commands import OffsetsExpired
from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.errors import BrokerError
from ledgermq.state.names import SYSTEM_GROUP_PREFIX
from ledgermq.state.topics import TopicConfig
from ledgermq.state.under_way import OnCommitted

# Pairs of topic and group that one step looks at, in ms less than five, and lets go.
_LOOKED_AT_MAX: Final = 5_000
_EXPIRED_MAX: Final = 500


class _Times:
    """When names were used last; one that is not met during a whole walk is forgotten."""

    def __init__(self) -> None:
        self._former: dict[str, float] = {}
        self._present: dict[str, float] = {}

    def find(self, name: str) -> float | None:
        return self._present.get(name, self._former.get(name))

    def keep(self, name: str, time_ms: float) -> None:
        self._present[name] = time_ms

    def end_walk(self) -> None:
        self._former, self._present = self._present, {}

    def clear(self) -> None:
        self._former, self._present = {}, {}


class OffsetExpiry:
    """What a leader knows of the use of offsets.

    Invariant: no time is before a use that this leader knows of; a name without one counts as used
    when it is met.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        find_topic: Callable[[str], TopicConfig | None],
        propose: Callable[[OffsetsExpired, OnCommitted], None],
        clock_ms: Callable[[], float],
    ) -> None:
        """Knows nothing yet.

        Args:
            offsets: those that are applied.
            find_topic: gives a topic that is there, or on its way.
            propose: brings a command into the log.
            clock_ms: monotonic time.
        """
        self._offsets = offsets
        self._find_topic = find_topic
        self._propose = propose
        self._clock_ms = clock_ms
        # Of groups, infinite while a client is there; and of pairs without their topic, since when
        # it is missed.
        self._used = _Times()
        self._missed = _Times()
        # Last key that was looked at.
        self._place = ""
        self._is_waiting = False
        # Leaderships of this member.
        self._count = 0

    def lead(self) -> None:
        """This member begins to lead: what it knew of former times does not count."""
        self._used.clear()
        self._missed.clear()
        self._place = ""
        self._is_waiting = False
        self._count += 1

    def note(self, keys: Iterable[str]) -> None:
        """Notes commits, by topic@group."""
        now_ms = self._clock_ms()
        for key in keys:
            _, group = split_group_key(key)
            if self._used.find(group) != inf:
                self._used.keep(group, now_ms)

    def step(
        self,
        is_live: Callable[[str], bool],
        retention_ms: float,
        on_expired: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        """Looks at some offsets, at others each time; called on a leader now and then.

        Args:
            is_live: whether a client of a group is connected.
            retention_ms: so long offsets stay that nobody uses; 0 for ever.
            on_expired: told the keys of those that are gone.
        """
        if retention_ms <= 0 or self._is_waiting:
            return
        expired = self._look(is_live, retention_ms)
        if not expired:
            return
        self._is_waiting = True
        count = self._count

        def done(error: BrokerError | None) -> None:
            if self._count != count:
                return
            self._is_waiting = False
            # What was refused is found again by the next walk.
            if error is None and on_expired is not None:
                on_expired(expired)

        self._propose(OffsetsExpired(tuple(expired)), done)

    def _look(self, is_live: Callable[[str], bool], retention_ms: float) -> list[str]:
        """Goes a few keys on; returns those whose time is over."""
        now_ms = self._clock_ms()
        expired: list[str] = []
        count = 0
        for key, _ in self._offsets.behind(self._place):
            if count == _LOOKED_AT_MAX or len(expired) == _EXPIRED_MAX:
                return expired
            count += 1
            self._place = key
            if now_ms - self._used_ms(key, is_live, now_ms) >= retention_ms:
                expired.append(key)
        # The next step begins again at the first one.
        self._place = ""
        self._used.end_walk()
        self._missed.end_walk()
        return expired

    def _used_ms(self, key: str, is_live: Callable[[str], bool], now_ms: float) -> float:
        topic, group = split_group_key(key)
        if group.startswith(SYSTEM_GROUP_PREFIX):
            return now_ms
        used_ms = self._used.find(group)
        if is_live(group):
            used_ms = inf
        elif used_ms is None or used_ms == inf:
            # The client that was there at the last look may have left just now.
            used_ms = now_ms
        self._used.keep(group, used_ms)
        if self._find_topic(topic) is not None:
            return used_ms
        missed_ms = self._missed.find(key)
        if missed_ms is None:
            missed_ms = now_ms
        self._missed.keep(key, missed_ms)
        # Who uses a topic that is gone uses nothing.
        return missed_ms
