"""Snapshots: when a leader writes the whole broker state into the log again.

Whoever reads the log from any segment on must find the state in it, so that retention may drop what
is before. So each segment gets a snapshot, and a long time without one does; and one is written
when a change could only be told by it.
"""

from typing import Protocol

from ledgermq.broker.leadership import Leadership
from ledgermq.broker.state_log import BrokerState


class Dispatched(Protocol):
    """How far the log is dispatched."""

    @property
    def max_physical_offset(self) -> int:
        """Position behind the last dispatched entry."""

    @property
    def dispatched_index(self) -> int:
        """The last dispatched entry."""


class Snapshots:
    """Asked each second, and each time that a snapshot is due without any other reason."""

    def __init__(
        self,
        state: BrokerState,
        leadership: Leadership,
        messages: Dispatched,
        segment_bytes: int,
    ) -> None:
        """Nothing is known of the log yet."""
        self._state = state
        self._leadership = leadership
        self._messages = messages
        self._segment_bytes = segment_bytes
        # Segment of the log that the last snapshot was written into.
        self._segment = 0
        # Last entry when one was last written by time.
        self._index = -1

    def look(self) -> None:
        """Writes one when the log has come to another segment, or the state asks for it."""
        if not self._leadership.is_serving:
            return
        segment = self._messages.max_physical_offset // self._segment_bytes
        if self._state.is_snapshot_due or segment != self._segment:
            self._segment = segment
            self._state.write_snapshot()

    def write(self) -> None:
        """Writes one, unless nothing was written to the log since the last time."""
        index = self._messages.dispatched_index
        if self._leadership.is_serving and index > self._index + 1:
            self._state.write_snapshot()
            self._index = index
