"""ConnectionLimits: what one connection may hold and how long it may be silent."""

from dataclasses import dataclass

from ledgermq.protocol.connection import OUTSTANDING_MAX
from ledgermq.protocol.framing import FRAME_BYTES_MAX
from ledgermq.protocol.tcp_times import ACCEPTED_TIMES, TcpTimes

_MIB = 1024 * 1024


@dataclass(slots=True, frozen=True, kw_only=True)
class ConnectionLimits:
    """Limits of one connection; a time of 0 switches its check off."""

    # Greatest frame that is read, with its length bytes.
    frame_bytes_max: int = FRAME_BYTES_MAX
    # The same until a peer is known, where the owner of the port finds that out; larger ones only
    # as `admits_large` of the connection has it. 0: no such limit.
    unknown_frame_bytes_max: int = 0
    # Unsent bytes at which a peer counts as too slow and the connection is closed.
    unsent_bytes_max: int = 64 * _MIB
    # Unsent bytes above which reading pauses; it resumes below half of it.
    pause_bytes: int = 8 * _MIB
    # Own requests that may wait for their answers.
    outstanding_max: int = OUTSTANDING_MAX
    # Neither a read nor a write for so long closes the connection (Java: 120 s).
    idle_timeout_s: float = 120.0
    # The first whole frame must come within this time of the connection.
    first_frame_timeout_s: float = 30.0
    # After which one is closed whose peer is still not known to be allowed anything, where that
    # matters (unknown_frame_bytes_max).
    unknown_timeout_s: float = 60.0
    # A frame must be whole within this time of its first byte.
    frame_timeout_s: float = 30.0
    # A frame that comes more slowly, in this many checks in a row, is cut off before that.
    frame_bytes_s_min: int = 1024
    slow_checks_max: int = 5
    # Unsent bytes of which none goes out for so long close the connection.
    drain_timeout_s: float = 60.0
    # What the kernel waits for a peer whose machine does not answer.
    tcp_times: TcpTimes = ACCEPTED_TIMES

    def __post_init__(self) -> None:
        assert 0 < self.pause_bytes <= self.unsent_bytes_max
        assert self.outstanding_max > 0


def is_over(begun_s: float | None, now_s: float, timeout_s: float) -> bool:
    """Tells whether a time is over, seconds on the clock; None and 0: there is none."""
    return begun_s is not None and timeout_s > 0 and now_s - begun_s >= timeout_s
