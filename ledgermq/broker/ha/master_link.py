"""MasterLink: what a master knows of one slave, and what it sends to it next.

    waiting        no report has come: nothing is sent
    transferring   frames from the requested offset on; a heart beat after a time of silence

The first report is the request, every later one an acknowledgement. A slave with an empty log asks
for 0 and begins with the master's last segment, as upstream's; to have it begin with all that is
left, its files are copied by hand first. No I/O; time is an argument.
Source: `HAConnection.java` (ReadSocketService, WriteSocketService).
"""

from math import inf

from ledgermq.broker.ha.errors import OffsetsDisagreeError, ReplicationError
from ledgermq.broker.ha.frames import BODY_BYTES_MAX, ReportReader, encode_frame
from ledgermq.broker.ha.replicated_log import ReplicatedLog
from ledgermq.dledger.store.errors import UnreadableError


class MasterLink:
    """One slave, seen from its master.

    Invariant: `acknowledged_offset` <= `next_offset` <= the log's `max_offset`, once they are not
    None; but of a slave that says it has nothing more than the last file begins with, 0.

    Attributes:
        acknowledged_offset: the slave's log reached at least so far; None before its first report.
        next_offset: of the next frame; None before the first report.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        *,
        batch_bytes_max: int,
        heart_beat_ms: int,
        silence_ms_max: int,
        now_ms: float,
    ) -> None:
        """Begins to wait for the first report.

        Args:
            log: of the master.
            batch_bytes_max: most bytes of one frame.
            heart_beat_ms: after so long without a frame an empty one is sent.
            silence_ms_max: a slave that is silent for longer is given up.
            now_ms: monotonic time, as in all calls.
        """
        self._log = log
        self._batch_bytes_max = min(batch_bytes_max, BODY_BYTES_MAX)
        self._heart_beat_ms = heart_beat_ms
        self._silence_ms_max = silence_ms_max
        self._reader = ReportReader()
        self._heard_ms = now_ms
        self._sent_ms = -inf
        self.acknowledged_offset: int | None = None
        self.next_offset: int | None = None

    def receive(self, data: bytes, now_ms: float) -> bool:
        """Takes bytes of the slave.

        Returns: True when a report was completed.

        Raises:
            OffsetsDisagreeError: the slave's log does not fit to this one, or cannot reach so far.
            ReplicationError: a report cannot be right.
        """
        self._heard_ms = now_ms
        end_offset = self._reader.feed(data)
        if end_offset is None:
            return False
        max_offset = self._log.max_offset
        if end_offset > max_offset:
            raise OffsetsDisagreeError(
                f"the slave's log ends at {end_offset}, behind the end of this master's at"
                f" {max_offset}: the slave holds what this master never had or has lost; one of"
                " the two stores has to be replaced by hand",
                own_offset=max_offset,
                peer_offset=end_offset,
            )
        if self.next_offset is None:
            self.next_offset = self._begin_at(end_offset, max_offset)
        elif end_offset > self.next_offset:
            # Messages would be told as replicated that nobody has but this master.
            raise OffsetsDisagreeError(
                f"the slave says that its log ends at {end_offset}, and was sent nothing behind"
                f" {self.next_offset}",
                own_offset=self.next_offset,
                peer_offset=end_offset,
            )
        self.acknowledged_offset = end_offset
        return True

    def _begin_at(self, end_offset: int, max_offset: int) -> int:
        if end_offset == 0:
            last_segment = max_offset - max_offset % self._log.segment_bytes
            return max(last_segment, self._log.min_offset)
        min_offset = self._log.min_offset
        if end_offset < min_offset:
            raise OffsetsDisagreeError(
                f"the slave's log ends at {end_offset}, before the first byte that this master"
                f" still has at {min_offset}: retention removed what the slave lacks; empty the"
                " slave's store, or copy the master's",
                own_offset=min_offset,
                peer_offset=end_offset,
            )
        return end_offset

    def take_frame(self, now_ms: float) -> bytes | None:
        """Returns the next frame to send: a piece of the log, or a heart beat when one is due.

        Raises:
            OffsetsDisagreeError: retention has removed what the slave would get next.
            ReplicationError: the disk does not give it.
        """
        if self.next_offset is None:
            return None
        begin = self.next_offset
        if begin < self._log.max_offset:
            if begin < self._log.min_offset:
                raise OffsetsDisagreeError(
                    f"retention removed the log from {begin} to {self._log.min_offset} before"
                    " the slave had it; empty the slave's store, or copy the master's",
                    own_offset=self._log.min_offset,
                    peer_offset=begin,
                )
            try:
                body = self._log.read(begin, self._batch_bytes_max)
            except UnreadableError as error:
                raise ReplicationError(f"cannot copy the log: {error}") from error
            if len(body):
                self.next_offset = begin + len(body)
                self._sent_ms = now_ms
                return encode_frame(begin, body)
        if now_ms - self._sent_ms >= self._heart_beat_ms:
            self._sent_ms = now_ms
            return encode_frame(begin, b"")
        return None

    def is_silent(self, now_ms: float) -> bool:
        """Tells whether the slave has to be given up."""
        return now_ms - self._heard_ms > self._silence_ms_max
