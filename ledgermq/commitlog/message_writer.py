"""MessageWriter: the messages of one reactor turn become records, and one append.

Queue offsets are given out here and written into the record; the physical offset is written by the
log when it knows the record's place. What was appended is not committed: nobody may see it before
dispatch does. When the log refuses, nothing was appended and no queue offset was consumed.
Source: CommitLog.java, DLedgerCommitLog.java of 4.9.3 (asyncPutMessage, asyncPutMessages).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.encoding import (
    OWN_TOPIC_PREFIX,
    RECORD_BYTES_MAX,
    AppendMessage,
    encode_messages,
    keep_offsets,
)
from ledgermq.commitlog.errors import LeaderNotReadyError, MessageIllegalError
from ledgermq.commitlog.light_queues import (
    LIGHT_QUEUE_ID,
    wanted_queues,
    with_offsets,
    without_offsets,
)
from ledgermq.commitlog.queue_ends import QUEUES_TOPIC, encode_queue_ends
from ledgermq.commitlog.queue_offsets import QueueOffsets
from ledgermq.commitlog.queues import is_queue_name
from ledgermq.commitlog.row import TopicQueue
from ledgermq.commitlog.rows import RowMaker
from ledgermq.commitlog.store_times import StoreTimes
from ledgermq.protocol.properties import PROPERTIES_BYTES_MAX
from ledgermq.protocol.record import (
    RECORD_FIXED_BYTES,
    TOPIC_BYTES_MAX,
    V6_HOSTS_BYTES,
    Host,
    encode_record,
)
from ledgermq.protocol.sysflag import TRANSACTION_PREPARED

# Topic of the record that opens a leader's term, and of replicated broker state. Their records
# carry the transaction type "prepared", so that no consume queue takes them, neither here nor in
# Java.
TERM_TOPIC: Final = OWN_TOPIC_PREFIX + "TERM"
STATE_TOPIC: Final = OWN_TOPIC_PREFIX + "STATE"


class AppendResult(NamedTuple):
    """Where a message was appended; it is not committed yet."""

    # Index of its entry.
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a result
    physical_offset: int
    record_bytes: int
    # 0 for prepared and rollback records, which take no place in a queue.
    queue_offset: int
    store_timestamp: int


class _Encoded(NamedTuple):
    """Records that may be appended."""

    records: list[bytes]
    # Queue and queue offset of each.
    numbers: list[tuple[TopicQueue, int]]
    # As they are stored: with their offsets in light queues.
    messages: Sequence[AppendMessage]


class MessageWriter:
    """What the writing sides of a ledger and of a plain log share.

    A subclass says where the log stands (`_segment`) and appends (`_append_records`).
    """

    def __init__(
        self,
        queue_offsets: QueueOffsets,
        store_times: StoreTimes,
        limits: StoreConfig,
        row_maker: RowMaker,
    ) -> None:
        """Bind the parts.

        Args:
            store_times: says when what is appended is stored.
            limits: body_bytes_max and has_light_queues are used.
            row_maker: makes what dispatch will need.
        """
        self._queue_offsets = queue_offsets
        self._store_times = store_times
        self._body_bytes_max = limits.body_bytes_max
        self._has_light_queues = limits.has_light_queues
        self._row_maker = row_maker
        # What the messages of each topic and queue id share, once their names were checked.
        self._topic_queues: dict[tuple[str, int], TopicQueue] = {}
        # Light queues in which this turn claimed offsets.
        self._light_claimed: list[TopicQueue] = []
        # Store time of the log's last record.
        self._last_timestamp = 0

    def begin_behind(self, timestamp: int) -> None:
        """Begin to append behind a record that was stored at a time."""
        self._last_timestamp = timestamp

    def append(self, messages: Sequence[AppendMessage]) -> list[AppendResult]:
        """Append the messages of a whole turn, in order, at once.

        Returns: one result for each message.

        Raises:
            MessageIllegalError: one of them breaks a limit.
            LeaderNotReadyError: this member has not taken up its leadership.
            LedgerError: the log refuses (not the leader, too much pending, no room, ...).
            After any of them nothing was appended and no queue offset was consumed.
        """
        if not messages:
            return []
        if not self._queue_offsets.is_open:
            raise LeaderNotReadyError()
        timestamp = self._store_times.next_ms(self._last_timestamp)
        turn = self._queue_offsets.begin_turn()
        self._light_claimed = []
        bodies, numbers, messages = self._encode(messages, timestamp)
        segment: int | None = self._segment()
        if segment == self._queue_offsets.told_in_segment:
            segment = None
        first: list[AppendMessage] = []
        if segment is not None:
            # They stand before the turn's messages, so the ends are right as they are now.
            first = self._queue_ends(messages[0].store_host, timestamp)
            first_bodies, first_numbers, _ = self._encode(first, timestamp)
            bodies, numbers = first_bodies + bodies, first_numbers + numbers
        results = self._append_records(bodies, [*first, *messages], numbers, timestamp)
        self._last_timestamp = timestamp
        keep_offsets(numbers, turn)
        for queue in self._light_claimed:
            queue.keep(turn)
        if segment is not None:
            # The ends of very many queues may reach into later segments, which need no others.
            last = results[len(first) - 1].physical_offset if first else None
            told = segment if last is None else self._segment(last)
            self._queue_offsets.told_in_segment = told
        return results[len(first) :]

    def _segment(self, offset: int | None = None) -> int:
        """Return the segment of a physical offset, without one that in which the next record goes:
        each tells the queues' ends once.
        """
        raise NotImplementedError

    def _append_records(
        self,
        records: list[bytes],
        messages: Sequence[AppendMessage],
        numbers: list[tuple[TopicQueue, int]],
        timestamp: int,
    ) -> list[AppendResult]:
        """Append records, hand their rows to dispatch, and return the results.

        Args:
            records: as `messages` were encoded.
            numbers: queue and queue offset of each.

        Raises:
            LedgerError: nothing was appended.
        """
        raise NotImplementedError

    def _queue_ends(self, store_host: Host, timestamp: int) -> list[AppendMessage]:
        shape = AppendMessage(
            topic=QUEUES_TOPIC,
            queue_id=0,
            flag=0,
            sys_flag=TRANSACTION_PREPARED,
            born_timestamp=timestamp,
            born_host=store_host,
            store_host=store_host,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"",
            properties=b"",
        )
        bodies = encode_queue_ends(self._queue_offsets.ends())
        return [shape._replace(body=body) for body in bodies]

    def _encode(self, messages: Sequence[AppendMessage], timestamp: int) -> _Encoded:
        """Encode messages one behind the other; nothing here is given out yet."""

        def find_queue(message: AppendMessage, position: int) -> TopicQueue:
            _check_queue(message, position)
            return self._row_maker.topic_queue(message.topic.encode("ascii"), message.queue_id)

        records, numbers, changed = encode_messages(
            messages if isinstance(messages, list) else list(messages),
            timestamp,
            self._queue_offsets.turn,
            self._topic_queues,
            find_queue,
            self._with_light_offsets if self._has_light_queues else None,
            self._body_bytes_max,
        )
        if changed:
            messages = [changed.get(at, message) for at, message in enumerate(messages)]
        return _Encoded(records, numbers, messages)

    def _with_light_offsets(self, message: AppendMessage, queue_offset: int) -> bytes:
        """Return the properties of a message with its offsets in light queues, and count on there.

        Args:
            queue_offset: in its own queue.
        """
        properties = without_offsets(message.properties)
        if message.sys_flag & TRANSACTION_PREPARED:
            return properties
        names = wanted_queues(message.topic, properties)
        if not names:
            return properties
        own = (message.topic, message.queue_id)
        offsets = {own[0]: queue_offset} if own[1] == LIGHT_QUEUE_ID else {}
        for name in names:
            if name not in offsets:
                queue = self._row_maker.topic_queue(name.encode("ascii"), LIGHT_QUEUE_ID)
                offsets[name] = queue.claim(self._queue_offsets.turn)
                self._light_claimed.append(queue)
        return with_offsets(properties, [offsets[name] for name in names])


def _check_queue(message: AppendMessage, position: int) -> None:
    if not is_queue_name(message.topic, message.queue_id):
        raise MessageIllegalError(
            "topic and queue id",
            f"{message.topic[:200]!r} {message.queue_id}",
            f"1 to {TOPIC_BYTES_MAX} of %|-_a-zA-Z0-9, and an id of 0 or more",
            position,
        )


def check_message(message: AppendMessage, body_bytes_max: int) -> None:
    """Check one message by itself, before it is gathered with those of other senders.

    Raises:
        MessageIllegalError: with what `append` would raise for it.
    """
    _check_queue(message, 0)
    if len(message.body) > body_bytes_max:
        raise MessageIllegalError("body bytes", len(message.body), body_bytes_max)
    properties_bytes = len(message.properties)
    if properties_bytes > PROPERTIES_BYTES_MAX:
        raise MessageIllegalError("properties bytes", properties_bytes, PROPERTIES_BYTES_MAX)
    # With the longest addresses.
    fixed_bytes = RECORD_FIXED_BYTES + V6_HOSTS_BYTES
    record_bytes = fixed_bytes + len(message.body) + len(message.topic) + properties_bytes
    if record_bytes > RECORD_BYTES_MAX:
        raise MessageIllegalError("record bytes", record_bytes, RECORD_BYTES_MAX)


def opening_record(term: int, store_host: Host, now_ms: int) -> bytes:
    """Return the record that opens a leader's term: valid for Java, and in no queue.

    Args:
        term: the leader's term.
        store_host: address and port of the leading broker.
        now_ms: wall clock, ms since 1970.
    """
    return encode_record(
        TERM_TOPIC.encode("ascii"),
        0,
        0,
        0,
        0,
        TRANSACTION_PREPARED,
        now_ms,
        store_host,
        now_ms,
        store_host,
        0,
        0,
        b"term=%d" % term,
        b"",
    )
