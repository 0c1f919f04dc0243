"""What all connections of some ports together may hold: of bytes that came in and that nobody has
worked on yet (ReceiveBudget), and of answers that their peers do not read (SendBudget).

A frame may have 16 MiB and a port 10,000 connections, so the limits of one connection bound
nothing. When a budget is used up, room is made at the cost of those who hold most for nothing:
first connections that have not said who they are, then those of which nothing moved lately, the
largest first. Whoever loses its connection so asks again on a new one.
"""

from abc import ABC, abstractmethod
from typing import Final, Protocol

from twisted.logger import Logger

# Budget of a port whose owner names none.
BUDGET_BYTES: Final = 256 << 20
# What a connection may have unsent and is worked on all the same, when half of the budget is used.
SHORT_PAUSE_BYTES: Final = 256 << 10
# A connection of which nothing moved for so long counts as stalled, in seconds.
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
    def unsent_bytes(self) -> int: ...

    @property
    def active_at(self) -> float: ...

    @property
    def drained_at(self) -> float: ...

    def abort(self, reason: str) -> None:
        """Closes it at once; it then holds nothing."""


class _Budget(ABC):
    """Counts for all connections of some ports; all in the reactor's thread.

    Invariant: `used_bytes` is what all holders hold; `_holders` are those that hold something.
    """

    __slots__ = ("_closed_count", "_holders", "_logged_at", "bytes_max", "used_bytes")

    # What is held, and the key that says how much of it.
    kind: str
    key: str

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

    @abstractmethod
    def held_by(self, holder: Holder) -> int:
        """Returns what a connection holds."""

    @abstractmethod
    def moved_at(self, holder: Holder) -> float:
        """Returns when that last moved, seconds on the clock of the connections."""

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
            is_moving = now_s - self.moved_at(holder) < _STALLED_S
            return holder.is_trusted, is_moving, -self.held_by(holder)

        used_bytes, aim_bytes = self.used_bytes, self.bytes_max * 9 // 10
        reason = f"all connections hold {used_bytes} bytes of {self.kind}, limit {self.bytes_max}"
        for holder in sorted(self._holders, key=worth):
            if self.used_bytes <= aim_bytes:
                break
            self._closed_count += 1
            if now_s - self._logged_at >= _LOG_INTERVAL_S:
                self._logged_at = now_s
                _log.warn(
                    "closing {peer}, which holds {held} bytes: {reason} (key {key});"
                    " {count} closed so since the last such line",
                    peer=holder.peer,
                    held=self.held_by(holder),
                    reason=reason,
                    key=self.key,
                    count=self._closed_count,
                )
                self._closed_count = 0
            holder.abort(reason)


class ReceiveBudget(_Budget):
    """Of requests that came in and are not worked on, unfinished ones included."""

    __slots__ = ()

    kind = "requests"
    key = "receiveBudgetBytes"

    def held_by(self, holder: Holder) -> int:
        """Returns what came in."""
        return holder.held_bytes

    def moved_at(self, holder: Holder) -> float:
        """Returns when something came in or went out."""
        return holder.active_at


class SendBudget(_Budget):
    """Of answers that are not sent: what their peers do not read."""

    __slots__ = ()

    kind = "answers"
    key = "sendBudgetBytes"

    def held_by(self, holder: Holder) -> int:
        """Returns what is unsent."""
        return holder.unsent_bytes

    def moved_at(self, holder: Holder) -> float:
        """Returns when the peer last took something."""
        return holder.drained_at

    def pause_bytes(self, usual: int) -> int:
        """Returns what a connection may have unsent while its requests are worked on.

        Args:
            usual: while there is enough for all.
        """
        return usual if self.used_bytes * 2 <= self.bytes_max else min(usual, SHORT_PAUSE_BYTES)
