"""Which formats of the entries' bodies the members' programs read, as numbers.

The ledger carries bytes that it does not look into. Whoever stands on it (the applier) may change
their format from one program to the next, while members are replaced one by one: so each member
tells when it connects what its applier reads, and what stands in its log already. Both are numbers
that mean nothing here but "newer than": an applier reads all formats up to one.

    reads   the newest format that a member's applier reads
    needs   the newest format that stands applied there: only who reads it can follow

A leader may write a format that all members of the group read: each has told so to this process,
and has not told otherwise since, or is a Java member, which applies nothing of ours. One that was
never met reads the oldest only. A member whose applier does not read what stands applied at the
other end of a connection is refused there, by whichever side looks first, and both say so.

Only what a member answers on the connection that this process made to it counts as told: there is
one at a time, so that nothing that a former process of that member said comes late. Pure.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

# What every program reads, and all that is known of one that tells nothing.
OLDEST: Final = 1
# Of a number that a peer tells.
FORMAT_MAX: Final = 65_535


class Formats(NamedTuple):
    """What one member tells."""

    reads: int = OLDEST
    needs: int = OLDEST
    # Its applier has lost what the log told long ago, and needs all of it from the leader.
    lacks_state: bool = False


class GroupFormats:
    """What one process knows of all members."""

    def __init__(
        self, self_id: str, peer_ids: Iterable[str], own: Callable[[], Formats] = Formats
    ) -> None:
        """Nobody has told anything.

        Args:
            self_id: of this member.
            peer_ids: all others of the group.
            own: tells what this member's applier reads and needs now.
        """
        self._self_id = self_id
        self._own = own
        # Newest format that each peer is known to read; None for a Java member.
        self._reads: dict[str, int | None] = dict.fromkeys(peer_ids, OLDEST)
        # Peers with which this member cannot work together, and why.
        self._mismatches: dict[str, str] = {}
        # Whether some peer told that it lacks the state.
        self._is_state_lacked = False

    @property
    def own(self) -> Formats:
        """What this member tells."""
        return self._own()

    @property
    def peers(self) -> Mapping[str, int | None]:
        """Newest format that each peer is known to read; None for a Java member."""
        return self._reads

    @property
    def alarm(self) -> str | None:
        """Why members do not work together, for operators; None while they do."""
        return "; ".join(self._mismatches.values()) or None

    def take_lack(self) -> bool:
        """Tells whether a peer lacked the state when it was greeted since the last call."""
        is_lacked, self._is_state_lacked = self._is_state_lacked, False
        return is_lacked

    def read_by_all(self) -> int:
        """Returns the newest format that all members are known to read."""
        told = [reads for reads in self._reads.values() if reads is not None]
        return min([self.own.reads, *told])

    def greeted(self, peer_id: str, formats: Formats | None) -> str | None:
        """Takes what a peer answered to the greeting of this process; None: it is a Java member.

        Returns:
            Why the two cannot work together, None when they can.
        """
        self._reads[peer_id] = None if formats is None else formats.reads
        self._is_state_lacked |= formats is not None and formats.lacks_state
        return self._judge(peer_id, formats)

    def asked_by(self, peer_id: str, formats: Formats) -> str | None:
        """Judges the greeting of a peer; returns why it is refused, None when it is not."""
        return self._judge(peer_id, formats)

    def _judge(self, peer_id: str, formats: Formats | None) -> str | None:
        mismatch = None if formats is None else self._mismatch(peer_id, formats)
        self._mismatches.pop(peer_id, None)
        if mismatch is not None:
            self._mismatches[peer_id] = mismatch
        return mismatch

    def _mismatch(self, peer_id: str, formats: Formats) -> str | None:
        own = self.own
        if formats.reads < own.needs:
            return _text(peer_id, formats.reads, self._self_id, own.needs)
        if own.reads < formats.needs:
            return _text(self._self_id, own.reads, peer_id, formats.needs)
        return None


def _text(reader_id: str, reads: int, holder_id: str, needs: int) -> str:
    return (
        f"the program of {reader_id} reads formats up to {reads}, and the state of {holder_id} is"
        f" in format {needs}: start {reader_id} with a program that reads format {needs}"
    )
