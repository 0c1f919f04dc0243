"""Sweeps: when a leader proposes the whole broker state once more.

Retention may drop what is before the last whole sweep. So one begins when the log has grown by a
segment since the last one, and by some times of what that took: a large state in a log of small
segments would fill it with nothing else. A long time without one gets one, too, and so does a
member that has lost its state.
"""

from typing import Final, Protocol

from ledgermq.broker.leadership import Leadership
from ledgermq.state.broker_state import BrokerState

# The log grows by so many times of a sweep before the next one.
_SWEEPS_APART: Final = 4


class Dispatched(Protocol):
    """How far the log is dispatched."""

    @property
    def max_physical_offset(self) -> int:
        """Position behind the last dispatched entry."""

    @property
    def dispatched_index(self) -> int:
        """The last dispatched entry."""


class Sweeps:
    """Asked each second, and after a long time."""

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
        # Where in the log the last sweep was seen under way.
        self._position = 0
        # Last entry when one was last begun by time.
        self._index = -1

    def look(self) -> None:
        """Begins one when the log has grown enough."""
        if not self._leadership.is_serving:
            return
        group = self._state.formats.group
        if group is not None and group.take_lack():
            self._state.begin_sweep()
        position = self._messages.max_physical_offset
        distance = max(self._segment_bytes, _SWEEPS_APART * self._state.sweep_bytes)
        if not self._state.is_swept:
            self._position = position
        elif position - self._position >= distance:
            self._position = position
            self._state.begin_sweep()

    def begin(self) -> None:
        """Begins one, unless nothing was written to the log since the last time."""
        index = self._messages.dispatched_index
        if self._leadership.is_serving and self._state.is_swept and index > self._index + 1:
            self._state.begin_sweep()
            self._index = index
