"""GroupClocks: how far the wall clocks of a group's members are apart, and which of them is wrong.

A majority decides: the median of the known clocks is right when a majority of the members, two at
least, is within the limit of it. A clock further away is an outlier. Without such a majority (one
member, two that differ, most of them unknown) nothing is decided.

A clock of a peer is known as its distance to this member's monotonic clock, so that a jump of this
member's own wall clock shows at once. Each is measured over one round trip, as in NTP: it is off by
half of that at most. Pure.
"""

from enum import Enum
from typing import Final, NamedTuple

# Two clocks that agree are no majority of one.
_AGREEING_MIN: Final = 2


class ClockVerdict(Enum):
    """What is known of a member's wall clock."""

    AGREES = "agrees with the majority"
    OUTLIER = "is an outlier"
    UNDECIDED = "no majority agrees"


class ClockFinding(NamedTuple):
    """The clock of one member among those of its group.

    Attributes:
        verdict: of this member's clock.
        difference_ms: this member's clock minus the median of all that are known; 0 for no peer.
        apart: peers whose clocks are further than the limit from this one: their clocks minus it.
    """

    verdict: ClockVerdict
    difference_ms: int
    apart: dict[str, int]


class _Clock(NamedTuple):
    # Wall clock minus the monotonic clock of this member, ms.
    ahead_ms: float
    error_ms: float

    def is_near(self, other: "_Clock", limit_ms: float) -> bool:
        limit_ms += self.error_ms + other.error_ms
        return abs(self.ahead_ms - other.ahead_ms) <= limit_ms


class GroupClocks:
    """The wall clocks of the peers, as one member has measured them."""

    def __init__(self, quorum_count: int, limit_ms: int) -> None:
        """Knows no clock yet.

        Args:
            quorum_count: members that make a majority of the group.
            limit_ms: clocks that differ by more do not agree; 0: nothing is compared.
        """
        self.limit_ms = limit_ms
        self._agreeing_min = max(quorum_count, _AGREEING_MIN)
        self._clocks: dict[str, _Clock] = {}

    def measured(self, peer_id: str, wall_ms: int, sent_ms: float, received_ms: float) -> None:
        """Takes the wall clock that a peer answered with.

        A round trip that is longer than the limit says nothing.

        Args:
            wall_ms: of the peer, ms since 1970.
            sent_ms, received_ms: when it was asked, and when its answer came: monotonic time.
        """
        error_ms = (received_ms - sent_ms) / 2
        if 0 <= error_ms <= self.limit_ms / 2:
            self._clocks[peer_id] = _Clock(wall_ms - sent_ms - error_ms, error_ms)

    def forget(self, peer_id: str) -> None:
        """Takes that a peer is connected no more."""
        self._clocks.pop(peer_id, None)

    def judge(self, wall_ms: int, now_ms: float) -> ClockFinding:
        """Compares this member's clock with the others.

        Args:
            wall_ms: this member's wall clock.
            now_ms: its monotonic clock at the same moment.
        """
        own, limit_ms = _Clock(wall_ms - now_ms, 0.0), self.limit_ms
        clocks = self._clocks
        if not clocks or not limit_ms:
            return ClockFinding(ClockVerdict.UNDECIDED, 0, {})
        known = sorted([own, *clocks.values()])
        median = known[len(known) // 2]
        agreeing = sum(clock.is_near(median, limit_ms) for clock in known)
        verdict = ClockVerdict.UNDECIDED
        if agreeing >= self._agreeing_min:
            is_near = own.is_near(median, limit_ms)
            verdict = ClockVerdict.AGREES if is_near else ClockVerdict.OUTLIER
        apart = {
            peer_id: round(clock.ahead_ms - own.ahead_ms)
            for peer_id, clock in sorted(clocks.items())
            if not clock.is_near(own, limit_ms)
        }
        return ClockFinding(verdict, round(own.ahead_ms - median.ahead_ms), apart)
