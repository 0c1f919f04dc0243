"""ContradictingPeers: peers that contradicted a committed entry, and until when they are ignored.

A leader whose log contradicts what is committed cannot commit anything, but its log may be longer
or of a later term than those of the others. If they went on to vote for it and to follow it, it
would hold the group down. So nothing of it is taken for a while, twice as long after each further
contradiction; in that time the others elect a leader, whose heartbeats keep it from being elected
again. It is not for ever, as one forged message in an open group must not take a follower away from
its leader for good. Pure.
"""

from typing import Final

# In election timeouts: the others need one or two to elect a leader.
_FIRST_TIMEOUTS: Final = 10
_TIMEOUTS_MAX: Final = 640


class ContradictingPeers:
    """The peers that one member ignores."""

    def __init__(self) -> None:
        # By peer: how often it was rejected, and until when it is (ms).
        self._rejected: dict[str, tuple[int, float]] = {}

    @property
    def ids(self) -> frozenset[str]:
        """Peers that have not shown another log since they contradicted this member."""
        return frozenset(self._rejected)

    def reject(self, peer_id: str, election_timeout_ms: float, now_ms: float) -> None:
        """Ignores a peer that contradicts a committed entry."""
        count, _ = self._rejected.get(peer_id, (0, 0.0))
        timeouts = min(_FIRST_TIMEOUTS << min(count, 16), _TIMEOUTS_MAX)
        self._rejected[peer_id] = (count + 1, now_ms + timeouts * election_timeout_ms)

    def is_ignored(self, peer_id: str, now_ms: float) -> bool:
        """Tells whether nothing of a peer is to be taken now."""
        rejected = self._rejected.get(peer_id)
        return rejected is not None and now_ms < rejected[1]

    def clear(self, peer_id: str) -> None:
        """Counts a peer again: its log is that of this member, or it lost it."""
        self._rejected.pop(peer_id, None)
