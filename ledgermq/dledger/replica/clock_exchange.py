"""ClockExchange: members tell each other their wall clocks in the answers to PING.

PING carries the time of its sender's monotonic clock; the answer repeats it and adds the wall clock
of the peer. So each member knows all clocks of its group, whatever its role, twice a second. Java
members are not asked: their clocks are not known.
"""

from collections.abc import Callable

from ledgermq.dledger.clock_skew import ClockFinding, GroupClocks
from ledgermq.dledger.replica import wire_binary
from ledgermq.dledger.replica.config import ReplicaConfig


class ClockExchange:
    """The wall clock of one member, and those of its peers."""

    def __init__(
        self, config: ReplicaConfig, wall_ms: Callable[[], int], seconds: Callable[[], float]
    ) -> None:
        """Asks no peer yet.

        Args:
            config: names the members, and the limit.
            wall_ms: ms since 1970.
            seconds: the reactor's clock, monotonic.
        """
        self.group = GroupClocks(config.core().quorum_count, config.clock_skew_max_ms)
        self.wall_ms = wall_ms
        self._seconds = seconds

    def ping(self) -> bytes:
        """Returns a PING frame."""
        return wire_binary.ping_frame(round(self._seconds() * 1_000_000))

    def answer(self, body: bytes) -> bytes:
        """Returns the frame that answers a PING.

        Raises:
            RemoteProtocolError: the body is none of a PING.
        """
        return wire_binary.ping_answer_frame(body, self.wall_ms())

    def answered(self, peer_id: str, body: bytes) -> None:
        """Takes the answer of a peer.

        Raises:
            RemoteProtocolError: the body is none of an answer to PING.
        """
        sent_us, wall_ms = wire_binary.decode_ping_answer(body)
        self.group.measured(peer_id, wall_ms, sent_us / 1000, self._seconds() * 1000)

    def judge(self) -> ClockFinding:
        """Compares this member's clock with those of its peers."""
        return self.group.judge(self.wall_ms(), self._seconds() * 1000)
