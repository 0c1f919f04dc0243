"""Proposals: messages of one reactor turn become one append, and wait for their commit.

The way of a send through this file:

    1. `add` puts the message and who waits for it into two lists; nothing else happens to the
       message in its turn.
    2. At the end of the turn `flush` appends the messages of all connections at once and moves
       the waiting requests, now with index and message id, to a queue ordered by index.
    3. `answer` takes from the front of that queue what is committed, encodes the answers, and
       gives each connection its answers in one piece. They are on their way while the queues are
       built; the broker's own parts are told after that, by `committed`.

A message that its leader lost before the commit may still be committed by the next leader: whoever
waits is told that the outcome is not known. There is no object, no log call and no Deferred for
each message on this way, only tuples.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ledgermq.broker.counts.put_times import PutTimes
from ledgermq.broker.sends.answering import SIZES, take_answers, wait_for
from ledgermq.broker.sends.gathering import OpenTopic, gather
from ledgermq.broker.sends.waiting import (
    SIZE,
    Done,
    Request,
    Waiting,
    WaitingTuple,
    encode_stored_response,
    encode_untraced_response,
    take_request_at,
    without_slaves,
)
from ledgermq.broker.slow_turn import SlowTurn
from ledgermq.commitlog import (
    AppendMessage,
    AppendResult,
    CommitLogError,
    FilesBehindError,
    MessageIllegalError,
    SegmentLackingError,
)
from ledgermq.dledger.errors import (
    EntryTooLargeError,
    LedgerError,
    NotLeaderError,
    ProposalDroppedError,
)
from ledgermq.measures.histogram import Histogram
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.headers import encode_send_response, send_response_pieces
from ledgermq.protocol.quick_frames import QuickSend
from ledgermq.protocol.record import RECORD_FIXED_BYTES, Host
from ledgermq.state.errors import (
    BrokerError,
    CommitTimeoutError,
    IllegalMessageError,
    ServiceUnavailableError,
    SystemBusyError,
)

# Requests that are looked at to find one of a client.
_LOOKED_AT_MAX: Final = 1000


class Appender(Protocol):
    """What is needed of a message store."""

    def append(self, messages: Sequence[AppendMessage]) -> list[AppendResult]: ...


class Connection(Protocol):
    """What is needed of a connection."""

    def send_frame(self, frame: bytes) -> None: ...


class SendWatcher(Protocol):
    """Who wants to know of each turn; all in the reactor's thread."""

    def appended(
        self,
        messages: Sequence[AppendMessage],
        results: Sequence[AppendResult],
        read_ms: float,
        checked_ms: float,
        now_ms: float,
    ) -> None:
        """They are in the log now; times as in `SlowTurn`."""

    def committed(self, end_index: int) -> None:
        """What is below an index is stored."""

    def failed(self, error: str) -> None:
        """What waits is lost, or its outcome is not known."""


class Limits(NamedTuple):
    """How much may wait for its commit, and how long."""

    messages_max: int
    bytes_max: int
    commit_timeout_ms: int


class Proposals:
    """Everything that was sent to this broker and is not yet committed.

    Invariants: the queue of waiting requests is ordered by index and by deadline; `count` and
    `bytes` are the sums over what is gathered and what waits.
    """

    def __init__(
        self,
        store: Appender,
        *,
        limits: Limits,
        call_at_end_of_turn: Callable[[Callable[[], None]], object],
        clock_ms: Callable[[], float],
        store_host_hex: str,
        region_id: str,
        is_trace_on: bool,
        refuse: Callable[[Any, int, int, BrokerError], None],
    ) -> None:
        """Begins empty.

        Args:
            store: where messages are appended.
            limits: what may wait.
            call_at_end_of_turn: has a function called when the reactor has served all that was
                readable.
            clock_ms: monotonic time.
            store_host_hex: address and port of this broker as message ids begin.
            region_id: told with each answer.
            is_trace_on: told with each answer, too.
            refuse: answers a request (connection, opaque, serialize type) with an error.
        """
        self._store = store
        self._limits = limits
        self._call_at_end_of_turn = call_at_end_of_turn
        self._clock_ms = clock_ms
        self._id_prefix = store_host_hex
        self._region_id = region_id
        self._is_trace_on = is_trace_on
        self._encode = encode_send_response if is_trace_on else encode_untraced_response
        # Of an answer, for the kernel.
        self._pieces = send_response_pieces(region_id) if is_trace_on else None
        self._refuse = refuse
        # Called when what a turn gathered is in the log: the ledger's turn may follow at once.
        self.on_appended: Callable[[], None] = _nothing
        # Has files made that the log lacks (SegmentLackingError); fires when they are there.
        self.make_room: Callable[[], Deferred[None]] = _no_room_is_made
        # Told of messages that took long: turn, a client, its message id, when all were answered.
        self.on_slow: Callable[[SlowTurn, str, str, float], None] = _nobody_is_told
        # Makes spans of sampled messages; None: nobody asked for any.
        self.spans: SendWatcher | None = None
        self._messages: list[AppendMessage] = []
        self._requests: list[Request] = []
        # When the first of them had been read, and when all had been checked; 0: they are not.
        self._read_ms = self._checked_ms = 0.0
        self._waiting: deque[WaitingTuple] = deque()
        # Those of them that do not wait for slaves; empty where there are none to wait for.
        self._without_slaves: deque[WaitingTuple] = deque()
        # Whom `committed` has to tell of what is answered already.
        self._dones: list[tuple[Done, Sequence[AppendResult] | None]] = []
        # Messages and their bytes that are gathered or wait.
        self.count = 0
        self.bytes = 0
        # Since the start: messages committed and answered, their bytes, and messages that failed.
        self.times = PutTimes()
        # Bytes of what clients sent, then messages by size; see `wait_for`.
        self._sizes = [0] * (len(SIZES) + 2)
        self.committed_count = 0
        self.committed_bytes = 0
        self.failed_count = 0
        # Of those, by the class of the error.
        self.failures: dict[str, int] = {}

    def message_sizes(self) -> Histogram:
        """Returns the sizes of what clients sent since the start, as records, in bytes."""
        histogram = Histogram(tuple(map(float, SIZES)))
        histogram.total, *histogram.counts = self._sizes
        return histogram

    def add(
        self,
        message: AppendMessage,
        size_bytes: int,
        connection: Connection | None,
        opaque: int,
        serialize_type: int,
        queue_id: int,
        done: Done | None = None,
    ) -> None:
        """Takes a message into the append of this turn.

        Args:
            message: checked, with its final topic, queue and properties.
            size_bytes: about what its record will take.
            connection: who gets the answer; None for a one-way send.
            opaque: of the request.
            serialize_type: of the request.
            queue_id: told in the answer.
            done: `without_slaves`, or None.

        Raises:
            SystemBusyError: too much waits; nothing was taken.
        """
        count = self.count
        if count >= self._limits.messages_max or self.bytes > self._limits.bytes_max:
            raise self._busy(1)
        if not self._requests:
            self._begin_turn()
        self.count = count + 1
        self.bytes += size_bytes
        self._messages.append(message)
        self._requests.append((connection, opaque, serialize_type, queue_id, 1, size_bytes, done))

    def add_batch(
        self,
        messages: Sequence[AppendMessage],
        size_bytes: int,
        connection: Connection | None,
        opaque: int,
        serialize_type: int,
        queue_id: int,
        done: Done | None = None,
    ) -> None:
        """Takes the messages of one batch, which get one answer; see `add`.

        Raises:
            SystemBusyError: too much waits; none was taken.
        """
        count = len(messages)
        limits = self._limits
        if self.count + count > limits.messages_max or self.bytes > limits.bytes_max:
            raise self._busy(count)
        request = (connection, opaque, serialize_type, queue_id, count, size_bytes, done)
        self._gather(messages, request)

    def add_quick(
        self,
        sends: list[QuickSend],
        topics: Mapping[bytes, OpenTopic],
        connection: Connection,
        store_host: Host,
        last_property: bytes,
        record_bytes_max: int,
    ) -> int:
        """Takes sends of a chunk as far as `gather` does, whose arguments these are, and as there
        is room; their bytes are counted when they are here.

        Returns: how many were taken.
        """
        if not self.has_room:
            return 0
        room = self._limits.messages_max - self.count
        if len(sends) > room:
            sends = sends[:room]
        messages, requests = self._messages, self._requests
        before = len(messages)
        self.bytes += gather(
            sends, topics, connection, store_host, last_property, record_bytes_max,
            messages, requests,
        )  # fmt: skip
        taken = len(messages) - before
        self.count += taken
        if taken and len(requests) == taken:
            self._begin_turn()
        return taken

    @property
    def has_room(self) -> bool:
        """False when as much waits as may."""
        return self.count < self._limits.messages_max and self.bytes <= self._limits.bytes_max

    def check_room(self) -> None:
        """Raises SystemBusyError when as much waits as may: for requests that end in `add_own`."""
        if not self.has_room:
            raise self._busy(1)

    def add_own(self, messages: Sequence[AppendMessage], done: Done) -> None:
        """Takes records that the broker itself makes, whatever waits: state, deliveries, retries.

        Who makes them on behalf of a client asks `check_room` first.

        Args:
            messages: at least one.
            done: called once: when all are committed, or when it is known that nobody will tell.
        """
        size_bytes = sum(
            RECORD_FIXED_BYTES + len(message.topic) + len(message.body) + len(message.properties)
            for message in messages
        )
        self._gather(messages, (None, 0, 0, 0, len(messages), size_bytes, done))

    def _gather(self, messages: Sequence[AppendMessage], request: Request) -> None:
        assert messages
        if not self._requests:
            self._begin_turn()
        self.count += len(messages)
        self.bytes += request[SIZE]
        self._messages.extend(messages)
        self._requests.append(request)

    def _begin_turn(self) -> None:
        """Has what is gathered from now on appended at the end of the turn."""
        self._read_ms, self._checked_ms = self._clock_ms(), 0.0
        self._call_at_end_of_turn(self.flush)

    def flush(self) -> None:
        """Appends what was gathered in this turn; a failed append fails exactly those requests."""
        messages, requests = self._messages, self._requests
        if not requests:
            return
        # The first time: those that wait for a file are flushed twice.
        self._checked_ms = self._checked_ms or self._clock_ms()
        self._messages, self._requests = [], []
        while True:
            try:
                results = self._store.append(messages)
                break
            except SegmentLackingError:
                self._wait_for_room(messages, requests)
                return
            except MessageIllegalError as error:
                culprit = take_request_at(messages, requests, error.position)
                self._fail_unappended([culprit], IllegalMessageError(str(error)))
            except (CommitLogError, LedgerError, OSError) as error:
                self._fail_unappended(requests, _broker_error(error, len(messages)))
                return
            if not requests:
                return
        self._wait_for(requests, results)
        if self.spans is not None:
            now_ms = self._clock_ms()
            self.spans.appended(messages, results, self._read_ms, self._checked_ms, now_ms)
        self.on_appended()

    def _wait_for_room(self, messages: list[AppendMessage], requests: list[Request]) -> None:
        """Has these appended, with all that comes meanwhile, when there is a file for them."""
        # While there are any, nobody asks for a flush at the end of a turn.
        self._messages, self._requests = messages, requests
        made: Deferred[Any] = self.make_room()
        made.addCallbacks(lambda _: self.flush(), self._no_room)

    def _no_room(self, failure: Failure) -> None:
        messages, requests = self._messages, self._requests
        self._messages, self._requests = [], []
        assert isinstance(failure.value, Exception)
        self._fail_unappended(requests, _broker_error(failure.value, len(messages)))

    def _wait_for(self, requests: list[Request], results: list[AppendResult]) -> None:
        """Queues requests whose messages are in the log now."""
        now_ms, sizes = self._clock_ms(), self._sizes
        deadline_ms = now_ms + self._limits.commit_timeout_ms
        before = sum(sizes) - sizes[0]
        for_all, not_for_slaves = wait_for(
            requests, results, self._id_prefix, deadline_ms, without_slaves, sizes
        )
        sent_count = sum(sizes) - sizes[0] - before
        self.times.appended(
            results[-1].index, len(results), now_ms, sent_count, self._read_ms, self._checked_ms
        )
        self._waiting += for_all
        self._without_slaves += not_for_slaves

    def answer(self, end_index: int) -> None:
        """Answers the clients that sent what is below an index, one piece of bytes for each
        connection; the broker's own parts are told by `committed`.

        Args:
            end_index: first index that is not committed.
        """
        slow, first = None, None
        if self.times.waits_below(end_index):
            slow = self.times.committed(end_index, self._clock_ms())
            # Who waits longest; it is gone when all are answered.
            first = None if slow is None else next(_with_client(self._waiting), None)
            if self.spans is not None:
                self.spans.committed(end_index)
        if self._without_slaves:
            self._answer(self._without_slaves, end_index)
        self._answer(self._waiting, end_index)
        if slow is not None:
            peer, message_id = ("a client", "one-way") if first is None else first
            self.on_slow(slow, peer, message_id, self._clock_ms())

    def committed(self, end_index: int) -> None:
        """Answers everything below an index, the broker's own parts, too: what they sent is
        committed, and dispatched.

        Args:
            end_index: first index that is not.
        """
        self.answer(end_index)
        self._tell()

    def committed_here(self, end_index: int) -> None:
        """Answers those below an index that do not wait for slaves."""
        self._answer(self._without_slaves, end_index)
        self._tell()

    def _tell(self) -> None:
        dones, self._dones = self._dones, []
        for done, results in dones:
            done(results, None)

    def _answer(self, waiting: deque[WaitingTuple], end_index: int) -> None:
        frames_of, dones, count, size = take_answers(
            waiting, end_index, self._pieces, self._encode, self._region_id
        )
        self.count -= count
        self.bytes -= size
        self.committed_count += count
        self.committed_bytes += size
        for connection, frames in frames_of.items():
            connection.send_frame(b"".join(frames) if len(frames) > 1 else frames[0])
        if dones:
            self._dones += dones

    def stored(self, end_index: int, code: ResponseCode, remark: str) -> None:
        """Answers everything below an index as stored, though not on as many disks as was asked
        for: clients take the code for a status, not for a failure.

        Args:
            end_index: as for `committed`.
            code: SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT.
            remark: why.
        """
        if self.spans is not None:
            self.spans.committed(end_index)
        while self._waiting and self._waiting[0][0] < end_index:
            entry = Waiting(*self._waiting.popleft())
            self.count -= entry.message_count
            self.bytes -= entry.size_bytes
            self.committed_count += entry.message_count
            self.committed_bytes += entry.size_bytes
            if entry.connection is not None:
                answer = encode_stored_response(
                    entry, code, remark, self._region_id, self._is_trace_on
                )
                entry.connection.send_frame(answer)
            elif entry.done is not None:
                entry.done(entry.results, None)

    def expire(self) -> None:
        """Answers what waits for longer than the limit; it may still be committed later."""
        now_ms = self._clock_ms()
        timeout_ms = self._limits.commit_timeout_ms
        for waiting in (self._waiting, self._without_slaves):
            while waiting and waiting[0][9] <= now_ms:
                error = CommitTimeoutError(
                    f"no majority confirmed the message at index {waiting[0][0]} in"
                    f" {timeout_ms} ms (key maxWaitAckTimeMs); it may still be stored later"
                )
                self._fail(Waiting(*waiting.popleft()), error)

    def fail_all(self, error: BrokerError) -> None:
        """Fails everything that is gathered or waits; used when leadership is lost."""
        requests = self._requests
        self.times.forget()
        if self.spans is not None:
            self.spans.failed(str(error))
        self._messages, self._requests = [], []
        self._fail_unappended(requests, error)
        waiting = [*self._waiting, *self._without_slaves]
        self._waiting.clear()
        self._without_slaves.clear()
        dones, self._dones = self._dones, []
        for done, _ in dones:
            done(None, error)
        for entry in waiting:
            self._fail(Waiting(*entry), error)

    @property
    def is_empty(self) -> bool:
        """True when nothing is gathered and nothing waits."""
        return not (self._requests or self._waiting or self._without_slaves or self._dones)

    def _fail_unappended(self, requests: Sequence[Request], error: BrokerError) -> None:
        for connection, opaque, serialize_type, queue_id, count, size, done in requests:
            entry = Waiting(
                -1,
                connection,
                opaque,
                serialize_type,
                "",
                queue_id,
                0,
                count,
                size,
                0.0,
                done,
                None,
            )
            self._fail(entry, error)

    def _fail(self, entry: Waiting, error: BrokerError) -> None:
        self.count -= entry.message_count
        self.bytes -= entry.size_bytes
        self.failed_count += entry.message_count
        kind = type(error).__name__
        self.failures[kind] = self.failures.get(kind, 0) + entry.message_count
        if entry.connection is not None:
            self._refuse(entry.connection, entry.opaque, entry.serialize_type, error)
        elif entry.done is not None:
            entry.done(None, error)

    def _busy(self, count: int) -> SystemBusyError:
        limits = self._limits
        return SystemBusyError(
            f"system busy: {self.count} messages with {self.bytes} bytes wait for a majority and"
            f" {count} more came; allowed are {limits.messages_max} messages (key"
            f" sendThreadPoolQueueCapacity) and {limits.bytes_max} bytes (key maxSendBytesInFlight)"
        )


def _broker_error(error: Exception, count: int) -> BrokerError:
    """What a failed append means to those who sent the messages."""
    match error:
        case NotLeaderError():
            return ServiceUnavailableError(f"message not stored: {error}")
        case ProposalDroppedError() | FilesBehindError():
            return SystemBusyError(f"system busy: {error}")
        case EntryTooLargeError():
            return IllegalMessageError(f"one of {count} messages of this moment: {error}")
        case _:
            return ServiceUnavailableError(f"message not stored: {error}")


def _with_client(waiting: Iterable[WaitingTuple]) -> Iterator[tuple[str, str]]:
    """Returns client and message id of those that wait for an answer, of the first ones."""
    for entry in islice(waiting, _LOOKED_AT_MAX):
        if entry[1] is not None:
            yield entry[1].peer, entry[4]


def _nobody_is_told(slow: SlowTurn, peer: str, message_id: str, answered_ms: float) -> None:
    """Nobody wants to know what was slow."""


def _nothing() -> None:
    """Nobody waits for it."""


def _no_room_is_made() -> Deferred[None]:
    """The ledger makes its files by itself."""
    raise AssertionError("only a plain log lacks files")
