"""SlaveLink: one connection of a slave to its master.

Frames are appended where the own log ends and nowhere else: a frame that does not begin there ends
the connection with the reason, and nothing is ever truncated. The end is reported when the
connection opens, after each chunk that moved it, and after a time without a report. Torn frames are
dropped with their connection; the next one begins with what the log holds then. No I/O but the
log's; time is an argument. Source: `HAService.java` (HAClient).
"""

from collections import deque

from ledgermq.broker.ha.errors import OffsetsDisagreeError
from ledgermq.broker.ha.frames import Frame, FrameReader, encode_report
from ledgermq.broker.ha.replicated_log import ReplicatedLog
from ledgermq.commitlog import SegmentLackingError


class SlaveLink:
    """One master, seen from its slave.

    Attributes:
        frame_count: good frames so far, heart beats too.
        master_offset: the master's log reached at least so far, as its frames show; None before
            the first one.
    """

    def __init__(
        self, log: ReplicatedLog, *, heart_beat_ms: int, silence_ms_max: int, now_ms: float
    ) -> None:
        """Begins with a report that is due.

        Args:
            log: of the slave.
            heart_beat_ms: after so long without a report one is due.
            silence_ms_max: a master that is silent for longer is given up.
            now_ms: monotonic time, as in all calls.
        """
        self._log = log
        self._heart_beat_ms = heart_beat_ms
        self._silence_ms_max = silence_ms_max
        self._reader = FrameReader()
        self._heard_ms = now_ms
        self._reported_ms = now_ms
        # The end that the master was told last; None before the first report.
        self._reported_offset: int | None = None
        # Frames that are here and not yet appended: there is no file for the first of them.
        self._frames: deque[Frame] = deque()
        self.frame_count = 0
        self.master_offset: int | None = None

    def receive(self, data: bytes, now_ms: float) -> None:
        """Takes bytes of the master and appends the frames that they complete.

        Where a file is lacking it stops, and `is_waiting`: then no more bytes should come before
        `go_on`.

        Raises:
            OffsetsDisagreeError: the master's log does not fit to this one. Frames before it were
                appended, it and all behind it were not.
            ReplicationError: a frame cannot be right.
            OSError, CommitLogError: the log refuses.
        """
        self._heard_ms = now_ms
        self._frames += self._reader.feed(data)
        self.go_on()

    @property
    def is_waiting(self) -> bool:
        """Tells whether frames wait for a file."""
        return bool(self._frames)

    def go_on(self) -> None:
        """Appends what waits, as far as there are files; see `receive`."""
        while self._frames:
            frame = self._frames[0]
            self._check(frame)
            if frame.body:
                try:
                    self._log.append_raw(frame.physical_offset, frame.body)
                except SegmentLackingError:
                    return
            self._frames.popleft()
            self.frame_count += 1
            self.master_offset = frame.physical_offset + len(frame.body)

    def _check(self, frame: Frame) -> None:
        begin, segment_bytes = frame.physical_offset, self._log.segment_bytes
        end_offset = self._log.max_offset
        if end_offset != 0 and begin != end_offset:
            raise OffsetsDisagreeError(
                f"the master sends its log from {begin} on, but this slave's ends at"
                f" {end_offset}: nothing was appended; compare the two stores, then empty the"
                " slave's or copy the master's",
                own_offset=end_offset,
                peer_offset=begin,
            )
        into_segment = begin % segment_bytes
        if (end_offset == 0 and into_segment) or into_segment + len(frame.body) > segment_bytes:
            raise OffsetsDisagreeError(
                f"the master's files do not begin and end where this slave's do: a frame of"
                f" {len(frame.body)} bytes at {begin} does not fit into files of"
                f" {segment_bytes} bytes (key mappedFileSizeCommitLog)",
                own_offset=end_offset,
                peer_offset=begin,
            )

    def take_report(self, now_ms: float) -> bytes | None:
        """Returns the report to send now, None when none is due."""
        end_offset = self._log.max_offset
        is_due = now_ms - self._reported_ms >= self._heart_beat_ms
        if end_offset == self._reported_offset and not is_due:
            return None
        self._reported_offset = end_offset
        self._reported_ms = now_ms
        return encode_report(end_offset)

    def is_silent(self, now_ms: float) -> bool:
        """Tells whether the master has to be given up."""
        return now_ms - self._heard_ms > self._silence_ms_max
