"""Lanes: of the sends of one ordering key, one is on its way at a time, and the others wait for it.

A key takes one round trip for each message, so it has a capacity, and a program may offer more. The
time for a message runs while it waits in its lane. So a lane takes only as many sends as it can get
through in half of that time, at the best pace of late; the other half is for what may go wrong.
Further sends wait before the lane, in their order, and their time does not run. Where even those
could not all be sent within the time for a message, who comes next is refused at once: it was not
sent, and everybody learns of it early. What a lane holds also takes at most half of the producer's
room, so that one crowded key does not keep out all others.
"""

from collections import deque
from typing import Final, Generic, TypeVar

from ledgermq.client.errors import LaneFullError
from ledgermq.client.window import SendWindow

# Sends that a lane takes before its pace is known.
_FIRST_COUNT: Final = 16
# Sends whose pace is remembered.
_PACES: Final = 8
# Sends that may wait before a lane however slow it is.
_OUTSIDE_MIN: Final = 16
# A window counts bytes, too; the producer's own does that already.
_ANY_BYTES: Final = 2**62

T = TypeVar("T")


class Lane(Generic[T]):
    """The lane of one ordering key of one topic. It knows no clock."""

    __slots__ = (
        "_begun_s", "_count_max", "_paces_s", "_room", "_timeout_s", "is_busy", "topic", "waiting",
    )  # fmt: skip

    def __init__(self, topic: str, timeout_s: float, count_max: int) -> None:
        """Begins empty.

        Args:
            topic: for errors.
            timeout_s: the time for one message.
            count_max: sends in the lane at most, whatever the pace.
        """
        self.topic = topic
        # Sends that have room and wait for their turn.
        self.waiting: deque[T] = deque()
        # True while a send is on its way.
        self.is_busy = False
        self._timeout_s = timeout_s
        self._count_max = max(1, count_max)
        self._room = SendWindow(min(_FIRST_COUNT, self._count_max), _ANY_BYTES)
        # When the send on its way was tried first.
        self._begun_s = 0.0
        self._paces_s: deque[float] = deque(maxlen=_PACES)

    @property
    def is_unused(self) -> bool:
        """True when nobody is in the lane or waits before it."""
        return not self._room.count and not self._room.waiting_count

    async def enter(self, ordering_key: str) -> None:
        """Returns with room taken, in the order of the calls; `leave` gives it back.

        Raises:
            LaneFullError: too many wait already; nothing has changed.
        """
        if self._room.enter(0):
            return
        outside = self._room.waiting_count
        if outside >= _OUTSIDE_MIN and self._paces_s:
            pace_s = min(self._paces_s)
            if (self._room.count + outside + 1) * pace_s > self._timeout_s:
                raise LaneFullError(
                    ordering_key,
                    self.topic,
                    in_lane=self._room.count,
                    outside=outside,
                    pace_s=pace_s,
                    timeout_s=self._timeout_s,
                )
        await self._room.wait(0)

    def leave(self) -> None:
        """Gives room back."""
        self._room.release(0)

    def begin(self, now_s: float) -> None:
        """Notes that a send is tried for the first time."""
        self.is_busy = True
        self._begun_s = now_s

    def acknowledged(self, now_s: float) -> None:
        """Learns the pace from the send that was on its way."""
        self._paces_s.append(max(now_s - self._begun_s, 1e-6))
        count = int(self._timeout_s / 2 / min(self._paces_s))
        self._room.resize(min(max(1, count), self._count_max))
