"""read: the messages of a topic as Arrow record batches, for pyarrow, pandas, polars and others.

    table = read("orders", "first", "last").read_all()

What is read is fixed at the begin: a range of offsets for each queue. Every message of it comes, or
an error; what arrives later does not. One batch is held at a time, and one answer of a broker.
Needs the extra `ledgermq[arrow]`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar

from ledgermq.client.blocking.consumers import PullConsumer
from ledgermq.client.config import ConsumerConfig
from ledgermq.client.errors import ClientError, ConfigError
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.pull_consumer import DEFAULT_READER
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.errors import RemoteProtocolError

try:
    import pyarrow

    _MISSING: ImportError | None = None
except ImportError as missing:
    _MISSING = missing

# A place in every queue: an end, an offset, a time; or an offset for each of some queues.
Place: TypeAlias = Literal["first", "last"] | int | datetime | Mapping[MessageQueue, int]

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 16 * 1024 * 1024
# A broker finds the message stored nearest to a time, and a new leader's clock may be behind: reads
# by time reach so much further on both sides, and messages are chosen by their own times.
_DISORDER_MS: Final = 10_000
# Messages of a request; brokers bound their bytes.
_PULL_MAX: Final = 1000
# Between two tries of a request that failed, or found a leader that lags.
_PAUSE_S: Final = 0.1

T = TypeVar("T")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read(
    topic: str,
    start: Place = "first",
    stop: Place = "last",
    *,
    name_servers: str = "127.0.0.1:9876",
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    timeout_s: float = 30.0,
    config: ConsumerConfig | None = None,
) -> "pyarrow.RecordBatchReader":
    """Reads a range of each queue of a topic, queue by queue.

    Args:
        topic: which must exist.
        start: the first message wanted: "first" that is still there; an offset, of every queue;
            a time, at or after which messages were stored; or an offset for each queue that is
            read.
        stop: the first message not wanted, said in the same ways; "last" is the end as it is now,
            and so is an offset or a time behind it.
        name_servers: ``host:port;host:port``.
        batch_rows: rows of a batch, at most.
        batch_bytes: bytes of bodies of a batch: it ends with the message that reaches them.
        timeout_s: how long to wait for the next message while brokers change or lag.
        config: times, security and namespace.

    Returns:
        A reader: iterate for batches, `read_all()` for a table, `read_pandas()`; polars and
        DuckDB take it as it is. Columns: topic, broker_name, queue_id, queue_offset, message_id,
        born_time and store_time (ms, UTC), tags and keys (null when there are none), body,
        properties, reconsume_times. `close()` ends its connections; so does its last batch.

    Raises:
        ConfigError: pyarrow is missing, or a value is not allowed.
        ClientError: also by the reader: the topic is unknown, a wanted message is gone, or brokers
            did not answer in time.
    """
    if _MISSING is not None:
        raise ConfigError(f"read needs the extra ledgermq[arrow]: {_MISSING}") from _MISSING
    for name, value in (("batch_rows", batch_rows), ("batch_bytes", batch_bytes)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; allowed: 1 or more", topic=topic)
    check_place("start", start, topic)
    check_place("stop", stop, topic)
    is_turned = (isinstance(start, int) and isinstance(stop, int) and stop < start) or (
        isinstance(start, datetime) and isinstance(stop, datetime) and stop < start
    )
    if is_turned:
        raise ConfigError(f"stop is {stop}, before start, which is {start}", topic=topic)
    make = partial(PullConsumer, name_servers, DEFAULT_READER, config=config)
    with make() as consumer:
        ranges = _Reading(consumer, topic, timeout_s).ranges(start, stop)
    schema = _schema()
    times = _ms(start), _ms(stop)

    def batches() -> Iterator[Any]:
        # Opened with the first batch: a reader that nobody reads holds nothing.
        with make() as consumer:
            reading = _Reading(consumer, topic, timeout_s)
            yield from reading.batches(ranges, times, schema, batch_rows, batch_bytes)

    return pyarrow.RecordBatchReader.from_batches(schema, batches())


def check_place(name: str, place: Any, topic: str) -> None:
    """Raises a ConfigError that names the field, unless a place is of an allowed form."""
    is_offset = isinstance(place, int) and not isinstance(place, bool)
    allowed = '"first", "last", an offset from 0 on, a time with its zone, or offsets by queue'
    if isinstance(place, Mapping):
        for queue, offset in place.items():
            if not isinstance(queue, MessageQueue) or queue.topic != topic:
                raise ConfigError(f"{name} has {queue!r}, no queue of the topic", topic=topic)
            check_place(f"{name} of {queue.broker_name}/{queue.queue_id}", offset, topic)
    elif isinstance(place, datetime):
        if place.tzinfo is None:
            raise ConfigError(f"{name} is {place!r}, without a time zone", topic=topic)
    elif not (is_offset and place >= 0) and place not in ("first", "last"):
        raise ConfigError(f"{name} is {place!r}; allowed: {allowed}", topic=topic)


class _Reading:
    """One read, with a consumer that is open."""

    def __init__(self, consumer: PullConsumer, topic: str, timeout_s: float) -> None:
        self._consumer = consumer
        self._topic = topic
        self._timeout_s = timeout_s
        # Nobody sets it: its waiting is a pause.
        self._pausing = threading.Event()

    def ranges(self, start: Place, stop: Place) -> dict[MessageQueue, tuple[int, int]]:
        """Returns the first offset of each queue, and the one behind its last.

        Raises:
            ConfigError: a queue that is named is not there.
            ClientError: the first message wanted is gone, or brokers do not answer.
        """
        queues = sorted(self._patiently(lambda: self._consumer.queues(self._topic)))
        named = [*(start if isinstance(start, Mapping) else ())]
        named += stop if isinstance(stop, Mapping) else ()
        for queue in named:
            if queue not in queues:
                there = ", ".join(f"{known.broker_name}/{known.queue_id}" for known in queues)
                raise ConfigError(
                    f"there is no queue {queue.broker_name}/{queue.queue_id}; there are: {there}",
                    topic=self._topic,
                )
        found = {}
        for queue in queues:
            if not named or queue in named:
                lowest, end = self._ends(queue)
                first = self._offset(queue, start, lowest, end, absent=lowest, past_ms=0)
                stop_offset = self._offset(
                    queue, stop, lowest, end, absent=end, past_ms=2 * _DISORDER_MS
                )
                last = min(stop_offset, end)
                if first < lowest and first < last:
                    raise _error(queue, f"start is {first}; the oldest that is left is {lowest}")
                found[queue] = first, last
        return found

    def _messages(self, queue: MessageQueue, first: int, last: int) -> Iterator[ReceivedMessage]:
        """Gives the messages of a range, one after the other; a gap is an error."""
        offset, until_s = first, self._deadline_s()
        while offset < last:
            pull = partial(
                self._consumer.pull, queue, offset, count_max=min(last - offset, _PULL_MAX)
            )
            found = self._patiently(pull)
            for message in found.messages:
                if offset < last:
                    if message.queue_offset != offset:
                        raise _error(queue, f"the message at offset {offset} is gone")
                    yield message
                    offset += 1
            if found.messages:
                until_s = self._deadline_s()
            elif found.min_offset > offset:
                raise _error(queue, f"the messages from {offset} to {found.min_offset} are gone")
            elif time.monotonic() > until_s:
                # A leader that knows less than the one that told the end, or a hole.
                raise _error(queue, f"nothing came at offset {offset} in {self._timeout_s} s")
            else:
                self._pausing.wait(_PAUSE_S)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Asks, and again for as long as another try may help and there is time."""
        until_s = self._deadline_s()
        while True:
            try:
                return ask()
            except ClientError as error:
                if not error.retriable or time.monotonic() > until_s:
                    raise
            self._pausing.wait(_PAUSE_S)

    def _deadline_s(self) -> float:
        return time.monotonic() + self._timeout_s

    def _ends(self, queue: MessageQueue) -> tuple[int, int]:
        lowest = self._patiently(lambda: self._consumer.min_offset(queue))
        return lowest, self._patiently(lambda: self._consumer.max_offset(queue))

    def _offset(
        self,
        queue: MessageQueue,
        place: Place,
        lowest: int,
        end: int,
        *,
        absent: int,
        past_ms: int,
    ) -> int:
        """Returns the offset of a place; of a time one that is surely not past it, or not before.

        Args:
            queue: where.
            place: what the program gave.
            lowest: the oldest offset that is left.
            end: the next one that the queue will have.
            absent: of a queue that the place does not name.
            past_ms: added to a time that was set back by as much as times may be out of order.
        """
        if isinstance(place, Mapping):
            return place.get(queue, absent)
        if isinstance(place, int):
            return place
        at_ms = _ms(place)
        if at_ms is not None and lowest < end:
            near_ms = max(0, at_ms - _DISORDER_MS + past_ms)
            near = self._patiently(lambda: self._consumer.offset_at(queue, near_ms))
            # The nearest one may lie before the time that was asked for.
            return max(lowest, near) + (1 if past_ms else 0)
        return lowest if place == "first" else end

    def batches(
        self,
        ranges: Mapping[MessageQueue, tuple[int, int]],
        times: tuple[int | None, int | None],
        schema: Any,
        batch_rows: int,
        batch_bytes: int,
    ) -> Iterator[Any]:
        """Gives the batches; of messages stored between two times (ms), where these are told."""
        after_ms, before_ms = times
        rows: list[ReceivedMessage] = []
        held_bytes = 0
        for queue, (first, last) in ranges.items():
            for message in self._messages(queue, first, last):
                at_ms = message.store_timestamp_ms
                if after_ms is not None and at_ms < after_ms:
                    continue
                if before_ms is not None and at_ms >= before_ms:
                    continue
                rows.append(_read_whole(message, queue))
                held_bytes += len(message.body)
                if len(rows) >= batch_rows or held_bytes >= batch_bytes:
                    yield _batch(rows, schema)
                    rows, held_bytes = [], 0
        if rows:
            yield _batch(rows, schema)


def _read_whole(message: ReceivedMessage, queue: MessageQueue) -> ReceivedMessage:
    """Returns a message whose body and properties can be read; else a ClientError says where it is:
    who wrote it so keeps nobody from what is around it.
    """
    try:
        _ = message.body, message.properties
    except RemoteProtocolError as error:
        text = (
            f"the message at offset {message.queue_offset} cannot be read: {error};"
            " start and stop may name offsets behind and before it"
        )
        raise _error(queue, text) from error
    return message


def _error(queue: MessageQueue, what: str) -> ClientError:
    return ClientError(what, topic=queue.topic, broker=queue.broker_name, queue_id=queue.queue_id)


def _ms(place: Place) -> int | None:
    """Returns a time as ms since 1970, rounded up; None of what is no time."""
    if not isinstance(place, datetime):
        return None
    return -((_EPOCH - place) // timedelta(milliseconds=1))


def _schema() -> Any:
    moment, text = pyarrow.timestamp("ms", tz="UTC"), pyarrow.string()
    return pyarrow.schema(
        {
            "topic": text,
            "broker_name": text,
            "queue_id": pyarrow.int32(),
            "queue_offset": pyarrow.int64(),
            "message_id": text,
            "born_time": moment,
            "store_time": moment,
            "tags": text,
            "keys": text,
            "body": pyarrow.binary(),
            "properties": pyarrow.map_(text, text),
            "reconsume_times": pyarrow.int32(),
        }
    )


def _batch(rows: list[ReceivedMessage], schema: Any) -> Any:
    columns = [
        [row.topic for row in rows],
        [row.queue.broker_name for row in rows],
        [row.queue.queue_id for row in rows],
        [row.queue_offset for row in rows],
        [row.message_id for row in rows],
        [row.born_timestamp_ms for row in rows],
        [row.store_timestamp_ms for row in rows],
        [row.tags or None for row in rows],
        [row.keys or None for row in rows],
        [row.body for row in rows],
        [list(row.properties.items()) for row in rows],
        [row.reconsume_times for row in rows],
    ]
    return pyarrow.record_batch(
        [pyarrow.array(values, field.type) for values, field in zip(columns, schema, strict=True)],
        schema=schema,
    )
