"""Inbox: what one connection has read and not worked on: an unfinished frame, frames, requests.

No Twisted and no clock: the time is passed in.
"""

from typing import Final

from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.transport.budgets import Holder, ReceiveBudget
from ledgermq.protocol.transport.limits import ConnectionLimits

# A read that brings less of an unfinished frame is a drip, and so many of them are no accident: a
# length, a header and a body that are written one by one are fewer. A thousand peers that drip at
# one moment would have a turn for themselves, and who asks meanwhile waits for all of them.
_DRIP_BYTES: Final = 1024
_DRIPS_MAX: Final = 3
# Who can bring so much at once does not drip: it was read too early.
_GUSH_BYTES: Final = 16_384
# Seconds that such a frame is not read for at first, which nobody notices whose packets are small;
# and how often that is doubled.
_REST_S: Final = 0.05
_DOUBLINGS_MAX: Final = 3


class Inbox:
    """What waits, in order: `commands`, the frames behind them, the beginning of another."""

    __slots__ = (
        "_begun_at",
        "_budget",
        "_counted_bytes",
        "_decoder",
        "_drips_count",
        "_greeting_end_s",
        "_is_large_admitted",
        "_limits",
        "_slow_checks_count",
        "commands",
        "frames",
        "has_received_frame",
    )

    def __init__(self, limits: ConnectionLimits, budget: ReceiveBudget | None) -> None:
        """Begins with nothing.

        Args:
            limits: of the connection.
            budget: for what it holds; None: nobody counts.
        """
        self._limits = limits
        self._budget = budget
        # What the budget knows of.
        self._counted_bytes = 0
        self._decoder = FrameDecoder(limits.frame_bytes_max)
        # Whether the unfinished frame may be larger than that of an unknown peer.
        self._is_large_admitted = False
        # Seconds on the clock: when the unfinished frame began.
        self._begun_at: float | None = None
        # When the peer must have said who it is; None: it need not.
        self._greeting_end_s: float | None = None
        # Reads that brought next to nothing of it.
        self._drips_count = 0
        # Checks in a row that found it too slow.
        self._slow_checks_count = 0
        # Whether there ever was a whole frame.
        self.has_received_frame = False
        # Requests and frames that are not worked on yet.
        self.commands: list[RemotingCommand] = []
        self.frames: list[bytes] = []

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to work on."""
        return bool(self.frames or self.commands)

    @property
    def is_dripping(self) -> bool:
        """Whether an unfinished frame comes in drips, and there is nothing else to work on."""
        return self._drips_count >= _DRIPS_MAX and not self.is_waiting

    @property
    def rest_s(self) -> float:
        """For how long nothing more should be read of a frame that comes in drips, in seconds."""
        return _REST_S * float(2 ** min(self._drips_count - _DRIPS_MAX, _DOUBLINGS_MAX))

    @property
    def held_bytes(self) -> int:
        """Bytes of frames, whole or not; requests that became commands do not count."""
        return self._decoder.buffered_bytes + sum(map(len, self.frames))

    @property
    def wanted_bytes(self) -> int:
        """Size of the unfinished frame, 0 while it is not known."""
        return self._decoder.wanted_bytes

    def feed(self, data: bytes, now_s: float) -> bool:
        """Takes the next bytes of the stream; tells whether they completed a frame.

        Raises:
            RemoteProtocolError: as FrameDecoder.feed.
        """
        frames = self._decoder.feed(data)
        if not self._decoder.buffered_bytes:
            self._begun_at = None
        elif frames or self._begun_at is None:
            self._begun_at = now_s
            self._is_large_admitted = False
        if frames or len(data) >= _GUSH_BYTES:
            self._drips_count = 0
        elif len(data) < _DRIP_BYTES:
            self._drips_count += 1
        if not frames:
            return False
        self.has_received_frame = True
        if self.frames:
            self.frames += frames
        else:
            self.frames = frames
        return True

    def begin_greeting(self, end_s: float, frame_bytes_max: int) -> None:
        """Takes small frames alone, and finds fault from `end_s` on, until `end_greeting`."""
        self._greeting_end_s = end_s
        self._decoder.limit(min(frame_bytes_max, self._limits.frame_bytes_max))

    def end_greeting(self) -> None:
        """Takes frames as ever."""
        if self._greeting_end_s is not None:
            self._greeting_end_s = None
            self._decoder.limit(self._limits.frame_bytes_max)

    def count(self, holder: Holder, now_s: float) -> None:
        """Tells the budget what is held, after a chunk was worked on; may close connections, this
        one too.
        """
        budget = self._budget
        if budget is None:
            return
        held_bytes = self.held_bytes if self.frames else self._decoder.buffered_bytes
        if held_bytes != self._counted_bytes:
            budget.note(holder, self._counted_bytes, held_bytes)
            self._counted_bytes = held_bytes
            if budget.used_bytes > budget.bytes_max:
                budget.make_room(now_s)

    def clear(self, holder: Holder) -> None:
        """Forgets all, for the connection is closed."""
        self.commands, self.frames = [], []
        self._decoder.clear()
        if self._budget is not None and self._counted_bytes:
            self._budget.note(holder, self._counted_bytes, 0)
            self._counted_bytes = 0

    def find_large(self) -> bytes | None:
        """Returns the header of an unfinished frame that is larger than an unknown peer's may be,
        each time until `admit_large`; None when there is none, or its header is not whole.

        Raises:
            RemoteProtocolError: as much came of it as an unknown peer may send, without a header.
        """
        size_max = self._limits.unknown_frame_bytes_max
        if self._is_large_admitted or not 0 < size_max < self._decoder.wanted_bytes:
            return None
        head = self._decoder.find_head()
        if head is None and self._decoder.buffered_bytes > size_max:
            raise RemoteProtocolError("header length", self._decoder.buffered_bytes, size_max)
        return head

    def admit_large(self) -> None:
        """Lets the unfinished frame come."""
        self._is_large_admitted = True

    def begin_anew(self, now_s: float) -> None:
        """Counts the time of the unfinished frame from here: its peer could not go on.

        One that brings it in drips could, and is not waited for.
        """
        if self._begun_at is not None and not self.is_dripping:
            self._begun_at = now_s

    def fault_at(self, now_s: float) -> str | None:
        """Says what is wrong with how the unfinished frame comes; called about once a second."""
        begun_at, limits = self._begun_at, self._limits
        if self._greeting_end_s is not None and now_s >= self._greeting_end_s:
            return "it did not say who it is in time"
        if begun_at is None:
            self._slow_checks_count = 0
            return None
        size, elapsed_s = self._decoder.buffered_bytes, now_s - begun_at
        if 0 < limits.frame_timeout_s <= elapsed_s:
            return f"frame not whole in {limits.frame_timeout_s:g} s, {size} bytes of it came"
        # One late check proves nothing: what the peer sent may still wait in the socket.
        is_slow = size < elapsed_s * limits.frame_bytes_s_min
        self._slow_checks_count = self._slow_checks_count + 1 if is_slow else 0
        if self._slow_checks_count < limits.slow_checks_max:
            return None
        return (
            f"frame too slow, {size} bytes of it came, {limits.frame_bytes_s_min} a second are"
            " the least"
        )
