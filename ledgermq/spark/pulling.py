"""Pulls one range of a queue as raw records, several requests ahead, through changes of leader.

A range is read whole or an error says why not. The range is asked for in pieces that lie side by
side. A broker answers a piece with as much as it is set up to give at a time; what is left of the
piece is asked for next, and later pieces become smaller. While the caller works on what has come,
the answers to the next requests are on their way.

With a filter of tags the broker skips messages, so pieces cannot be foreseen: one request at a
time.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader
from ledgermq.protocol.route import MASTER_ID
from ledgermq.protocol.sysflag import PULL_SUBSCRIPTION
from ledgermq.spark.cluster import Cluster, PassingError, Patience, may_pass, refusal
from ledgermq.spark.errors import ClusterError, OffsetsRemovedError
from ledgermq.spark.partitions import QueueRange, queue_name
from ledgermq.spark.read_places import ReadFrom, ReadPlaces
from ledgermq.spark.wire import LostError, Wire

# Messages asked for at a time at most; brokers give fewer.
_COUNT_MAX: Final = 1024
_REQUESTS_MAX: Final = 32
_FOUND: Final = int(ResponseCode.SUCCESS)
_NOTHING: Final = int(ResponseCode.PULL_NOT_FOUND)
_RETRY: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
_NO_MATCH: Final = "NO_MATCHED_MESSAGE"
# How long a follower may lack what its leader has committed before the leader is asked.
_BEHIND_S: Final = 0.5

_log = logging.getLogger("ledgermq.spark")


class _BehindError(Exception):
    """A follower has not what it was asked for."""


class _Piece(NamedTuple):
    """A part of the range that is asked for."""

    start_offset: int
    end_offset: int
    # Number of its answer.
    opaque: int


class Run(NamedTuple):
    """Records that came, back to back."""

    records: bytes
    # They are those from here up to `end_offset`; with a filter, those of them that it let pass.
    start_offset: int
    end_offset: int


class Pace:
    """Waits so that no more bytes come in a second than are allowed."""

    def __init__(
        self,
        bytes_per_second: int,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Begins now; clock and wait are those of the machine, or of a test."""
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._wait = wait or threading.Event().wait
        # When what has come so far is paid for; time that went by unused is not saved up.
        self._free_at_s = clock()

    def spend(self, count: int) -> None:
        """Returns when so many bytes that have come are paid for."""
        now_s = self._clock()
        self._free_at_s = max(self._free_at_s, now_s) + count / self._bytes_per_second
        if count:
            self._wait(self._free_at_s - now_s)


class RangePull:
    """One pass over a range of a queue."""

    def __init__(
        self,
        cluster: Cluster,
        wanted: QueueRange,
        *,
        group: str,
        tags: frozenset[str],
        fetch_bytes: int,
        fails_on_data_loss: bool,
        bytes_per_second: int | None = None,
        read_from: ReadFrom = ReadFrom.LEADER,
    ) -> None:
        """Opens nothing yet.

        Args:
            cluster: stays the caller's.
            wanted: the range.
            group: the consumer group in whose name brokers answer.
            tags: only messages with one of them, and perhaps a few others; empty: all.
            fetch_bytes: about so much is on its way, and so much is handed out at a time.
            fails_on_data_loss: False skips, with a warning, what retention has removed.
            bytes_per_second: no more is asked for, on the average; None: as fast as it goes.
            read_from: which members of the broker group are asked.
        """
        self._places = ReadPlaces(read_from, wanted)
        # Whom the requests on their way were sent to.
        self._member_id = MASTER_ID
        self._follower_patience = Patience(min(_BEHIND_S, cluster.timeout_s))
        self._pace = None if bytes_per_second is None else Pace(bytes_per_second)
        self._cluster = cluster
        self._wanted = wanted
        self._name = queue_name(wanted.queue)
        self._group = group
        self._subscription = " || ".join(sorted(tags)) or "*"
        self._is_filtered = bool(tags)
        self._fetch_bytes = fetch_bytes
        self._fails_on_data_loss = fails_on_data_loss
        self._patience = Patience(cluster.timeout_s)
        # Everything before is handed out or about to be.
        self._position = wanted.start_offset
        # Everything before is asked for.
        self._asked = wanted.start_offset
        self._pieces: deque[_Piece] = deque()
        # Where the piece ends of which an answer brought a part only; None: nowhere.
        self._rest_end: int | None = None
        # Messages of a piece, and the most that one answer ever brought.
        self._piece_count = _COUNT_MAX
        self._answer_count_max = 1
        self._answer_bytes = fetch_bytes

    def runs(self) -> Iterator[Run]:
        """Yields the records of the range in order, about fetch_bytes at a time.

        Raises:
            OffsetsRemovedError: some of them are gone.
            ClusterError: nobody served the queue for the whole timeout.
        """
        parts: list[bytes] = []
        size, start = 0, self._position
        while self._position < self._wanted.end_offset:
            before = self._position
            body = self._advance()
            if body is None:
                # Something was skipped: what came before it is a run of its own.
                if parts:
                    yield Run(b"".join(parts), start, before)
                parts, size, start = [], 0, self._position
                continue
            if self._pace is not None:
                self._pace.spend(len(body))
            parts.append(body)
            size += len(body)
            if size >= self._fetch_bytes:
                self._ask_before_handing_out()
                yield Run(b"".join(parts), start, self._position)
                parts, size, start = [], 0, self._position
        if parts:
            yield Run(b"".join(parts), start, self._position)

    def _advance(self) -> bytes | None:
        """Returns the next records: none where there was nothing for now, None for a gap."""
        try:
            self._ask_ahead()
            piece = self._pieces.popleft()
            wire = self._wire()
            answer = wire.receive(piece.opaque)
            if answer.code in (_FOUND, _NOTHING, _RETRY, _MOVED):
                return self._take(piece, answer)
            if not may_pass(answer) and self._member_id == MASTER_ID:
                raise ClusterError(f"a pull from {self._name}", refusal(wire.address, answer))
            raise PassingError(refusal(wire.address, answer))
        except _BehindError:
            self._start_again()
            if not self._follower_patience.pause():
                self._turn_to_another()
            return b""
        except (PassingError, LostError) as error:
            self._start_again()
            if self._member_id != MASTER_ID:
                self._turn_to_another()
                return b""
            self._cluster.forget(self._wanted.queue)
            if self._patience.pause():
                return b""
            self._leave_deleted(error)
            return None

    def _wire(self) -> Wire:
        """Returns the connection to the member that is asked now."""
        queue = self._wanted.queue
        self._member_id = MASTER_ID
        self._member_id = self._places.choose(self._cluster.members(queue))
        return self._cluster.wire_to_member(queue, self._member_id)

    def _turn_to_another(self) -> None:
        """Leaves a follower out: it has not what is asked for, or does not answer."""
        self._places.leave_out(self._member_id)
        self._cluster.forget(self._wanted.queue, self._member_id)
        self._follower_patience.progressed()

    def _take(self, piece: _Piece, answer: RemotingCommand) -> bytes | None:
        """Moves on by what an answer brought."""
        try:
            header = answer.header(PullMessageResponseHeader)
        except RemoteProtocolError as error:
            what = f"a pull from {self._name}"
            raise ClusterError(what, f"unreadable answer: {error}") from error
        next_offset = header.next_begin_offset
        if answer.code == _FOUND and next_offset > piece.start_offset:
            self._learn(piece, next_offset, len(answer.body))
            self._move_to(next_offset, piece)
            return answer.body
        is_kept = header.min_offset <= piece.start_offset
        if is_kept and self._is_unmatched(answer) and next_offset > piece.start_offset:
            self._move_to(next_offset, piece)
            return b""
        if self._member_id != MASTER_ID:
            # It may keep less than its leader, and answers like this where it lacks something.
            raise _BehindError
        if not is_kept:
            self._skip(min(header.min_offset, self._wanted.end_offset))
            return None
        if answer.code == _RETRY and next_offset > piece.start_offset:
            self._skip(min(next_offset, self._wanted.end_offset))
            return None
        # A busy broker, or a new leader that has not yet dispatched all that it has.
        raise PassingError(
            f"nothing at offset {piece.start_offset}, the queue holds {header.min_offset} up to"
            f" {header.max_offset}"
        )

    def _is_unmatched(self, answer: RemotingCommand) -> bool:
        """Tells whether the filter let no message pass, rather than that messages are gone."""
        if answer.code != _RETRY or not self._is_filtered:
            return False
        return self._member_id == MASTER_ID or answer.remark == _NO_MATCH

    def _learn(self, piece: _Piece, next_offset: int, size: int) -> None:
        """Fits the pieces to what the broker gives at a time."""
        got = next_offset - piece.start_offset
        self._answer_count_max = max(self._answer_count_max, min(got, _COUNT_MAX))
        if got < piece.end_offset - piece.start_offset:
            self._piece_count = got
        else:
            self._piece_count = min(2 * self._piece_count, self._answer_count_max)
        self._answer_bytes = max(size, 1024)

    def _move_to(self, next_offset: int, piece: _Piece) -> None:
        self._patience.progressed()
        self._follower_patience.progressed()
        self._position = min(next_offset, self._wanted.end_offset)
        if self._is_filtered:
            self._asked = self._position
        elif self._position < piece.end_offset:
            self._rest_end = piece.end_offset

    def _skip(self, found_offset: int) -> None:
        """Goes on behind what is gone, or raises."""
        error = OffsetsRemovedError(self._name, self._position, found_offset)
        if self._fails_on_data_loss:
            raise error
        _log.warning("skipped: %s", error)
        self._start_again()
        self._position = self._asked = found_offset

    def _leave_deleted(self, error: Exception) -> None:
        """Leaves out the rest of a topic that was deleted, or says what nobody did in time."""
        queue, end = self._wanted.queue, self._wanted.end_offset
        if self._fails_on_data_loss or not self._cluster.is_deleted(queue):
            self._patience.wait(f"a pull from {self._name}", error)
        _log.warning(
            "skipped: topic %s was deleted before offsets %d to %d of %s were read",
            *(queue.topic, self._position, end, self._name),
        )
        self._position = self._asked = end

    def _start_again(self) -> None:
        """Forgets what is on its way; the connection does not mind answers nobody takes."""
        self._pieces.clear()
        self._rest_end = None
        self._asked = self._position

    def _ask_before_handing_out(self) -> None:
        """As _ask_ahead; a failure shows again when the next records are wanted."""
        try:
            self._ask_ahead()
        except (PassingError, LostError):
            self._start_again()
            self._cluster.forget(self._wanted.queue, self._member_id)

    def _ask_ahead(self) -> None:
        """Sends requests until about fetch_bytes are on their way."""
        requests_max = 1
        if not self._is_filtered:
            requests_max = max(2, min(_REQUESTS_MAX, self._fetch_bytes // self._answer_bytes))
        end = self._wanted.end_offset
        is_full = len(self._pieces) >= requests_max or self._asked >= end
        if is_full and self._rest_end is None:
            return
        wire = self._wire()
        if self._rest_end is not None:
            self._pieces.appendleft(self._ask(wire, self._position, self._rest_end))
            self._rest_end = None
        while len(self._pieces) < requests_max and self._asked < end:
            piece_end = min(self._asked + self._piece_count, end)
            self._pieces.append(self._ask(wire, self._asked, piece_end))
            self._asked = piece_end

    def _ask(self, wire: Wire, start: int, end: int) -> _Piece:
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=self._wanted.topic,
            queue_id=self._wanted.queue_id,
            queue_offset=start,
            max_msg_nums=_COUNT_MAX if self._is_filtered else end - start,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=self._subscription,
            sub_version=0,
            expression_type="TAG",
        )
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        return _Piece(start, end, wire.send(command))
