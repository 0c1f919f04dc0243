"""ReceiveBudget: what all connections together may hold of bytes that nobody has worked on yet.

A frame may have 16 MiB and a port 10,000 connections, so the limits of one connection bound
nothing. When the budget is used up, room is made at the cost of those who hold most for nothing:
first connections that have not said who they are, then those of which nothing came lately, the
largest first. Whoever loses its connection so sends again on a new one.
"""

from typing import Final, Protocol

from twisted.logger import Logger

# Budget of a port whose owner names none.
BUDGET_BYTES: Final = 256 << 20
# A connection of which nothing came for so long counts as stalled, in seconds.
_STALLED_S: Final = 1.0
# One line in the log for all that is closed in this time.
_LOG_INTERVAL_S: Final = 10.0

_log = Logger()


class Holder(Protocol):
    """A connection that may hold bytes."""

    peer: str
    # Whether it has said who it is, where that is asked.
    is_trusted: bool

    @property
    def held_bytes(self) -> int: ...

    @property
    def active_at(self) -> float: ...

    def abort(self, reason: str) -> None:
        """Closes it at once; it then holds nothing."""


class ReceiveBudget:
    """Counts for all connections of some ports; all in the reactor's thread.

    Invariant: `used_bytes` is what all holders hold; `_holders` are those that hold something.
    """

    __slots__ = ("_closed_count", "_holders", "_logged_at", "bytes_max", "used_bytes")

    def __init__(self, bytes_max: int = BUDGET_BYTES) -> None:
        """Begins with nothing held.

        Args:
            bytes_max: what may be held in all.
        """
        assert bytes_max > 0
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._holders: set[Holder] = set()
        # Connections that were closed since the last line in the log, and when that was.
        self._closed_count = 0
        self._logged_at = float("-inf")

    def note(self, holder: Holder, before: int, now: int) -> None:
        """Counts what a connection holds.

        Args:
            holder: which one.
            before: bytes that were counted for it.
            now: bytes that it holds.
        """
        self.used_bytes += now - before
        if not now:
            self._holders.discard(holder)
        elif not before:
            self._holders.add(holder)

    def make_room(self, now_s: float) -> None:
        """Closes connections until a tenth of the budget is free, when it is used up.

        Args:
            now_s: seconds on the clock of the connections.
        """
        if self.used_bytes <= self.bytes_max:
            return

        def worth(holder: Holder) -> tuple[bool, bool, int]:
            is_moving = now_s - holder.active_at < _STALLED_S
            return holder.is_trusted, is_moving, -holder.held_bytes

        used_bytes, aim_bytes = self.used_bytes, self.bytes_max * 9 // 10
        reason = f"all connections hold {used_bytes} bytes of requests, limit {self.bytes_max}"
        for holder in sorted(self._holders, key=worth):
            if self.used_bytes <= aim_bytes:
                break
            self._closed_count += 1
            if now_s - self._logged_at >= _LOG_INTERVAL_S:
                self._logged_at = now_s
                _log.warn(
                    "closing {peer}, which holds {held} bytes: {reason} (key receiveBudgetBytes);"
                    " {count} closed so since the last such line",
                    peer=holder.peer,
                    held=holder.held_bytes,
                    reason=reason,
                    count=self._closed_count,
                )
                self._closed_count = 0
            holder.abort(reason)
