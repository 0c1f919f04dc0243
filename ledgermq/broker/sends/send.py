"""SEND_MESSAGE (10, 310) and SEND_BATCH_MESSAGE (320): checks, topic creation, and into this
turn's append.

The hot path of the broker. A topic that passed all checks once is remembered until the topic table
changes, and the text of the properties is only taken apart when it mentions one of the few names
that mean something here. A send that passes is answered by `proposals.py` when its entry is
committed. Source: `SendMessageProcessor.java`, `AbstractSendMessageProcessor.java`.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.records.delayed_messages import waiting_message
from ledgermq.broker.records.half_messages import half_message
from ledgermq.broker.records.namings import check_properties
from ledgermq.broker.sends.gathering import (
    COMPILED,
    OpenTopic,
    gather_batch,
)
from ledgermq.broker.sends.light_admission import LightAdmission
from ledgermq.broker.sends.message_types import (
    CHECKED_TYPES,
    check_type,
    refuse_timers,
)
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.broker.sends.topic_admission import TopicAdmission
from ledgermq.broker.sends.waiting import Done, without_slaves
from ledgermq.commitlog import RECORD_BYTES_MAX, AppendMessage, without_offsets
from ledgermq.protocol.batch import BATCH_COUNT_MAX, BatchMessage, decode_batch
from ledgermq.protocol.codes import ONE_WAY_FLAG, RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import SendMessageRequestHeader, decode_send_header
from ledgermq.protocol.properties import (
    CLUSTER,
    DELAY_TIME_LEVEL,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    KEY_SEPARATOR,
    KEYS,
    KEYS_COUNT_MAX,
    PROPERTIES_BYTES_MAX,
    TIMERS,
    TRANSACTION_PREPARED,
    WAIT_STORE_MSG_OK,
    count_keys,
    find_property,
    format_properties,
    parse_properties,
)
from ledgermq.protocol.quick_frames import QuickSend, read_quick_sends
from ledgermq.protocol.record import RECORD_FIXED_BYTES, V6_HOSTS_BYTES
from ledgermq.protocol.sysflag import INNER_BATCH_MASK, MULTI_TAGS, TRANSACTION_MASK
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state import names
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import (
    IllegalMessageError,
    InvalidRequestError,
    NoPermissionError,
)
from ledgermq.state.topics import TopicConfig

# What checks add to the properties of a half message.
_HALF_BYTES_SPARE: Final = 128
_SEPARATOR: Final = "\x02"
_BATCH_CODE: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_WAIT_MARK: Final = f"{WAIT_STORE_MSG_OK}\x01"
_WAITS: Final = f"{_WAIT_MARK}true"
_WAIT_TRUE: Final = f"{_SEPARATOR}{_WAIT_MARK}true{_SEPARATOR}"
_MARKED: Final = TRANSACTION_MASK | INNER_BATCH_MASK
_DELAY_MARK: Final = f"{DELAY_TIME_LEVEL}\x01"
_TRANSACTION_MARK: Final = f"{TRANSACTION_PREPARED}\x01"
_CLUSTER_MARK: Final = f"{CLUSTER}\x01"
# Of the three names of timers.
_TIMER_MARK: Final = "TIMER_DEL"
# Of INNER_MULTI_DISPATCH, and of offsets that only a leader may write.
_LIGHT_MARK: Final = "INNER_MULTI_"
# Of a message in a batch, as text and as bytes.
_LOOKED_AT: Final = tuple(
    (name, name.encode())
    for name in (DELAY_TIME_LEVEL, TRANSACTION_PREPARED, INNER_MULTI_DISPATCH, *TIMERS)
)


# Returns how many quick sends, from the front of a connection's frames, access control lets pass.
CountSends = Callable[[CommandProtocol, list[bytes], list[QuickSend]], int]


class SendProcessor:
    """Takes sends and puts their messages into the append of the turn."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        state: BrokerState,
        proposals: Proposals,
        *,
        store_host: tuple[bytes, int],
        now_ms: Callable[[], int],
        rng: Random,
        statistics: Statistics,
        light: LightAdmission,
        waits_for_slaves: bool,
    ) -> None:
        """Binds the parts.

        Args:
            config: limits and switches.
            leadership: whether sends are taken.
            state: topics and groups, also for those that a send creates.
            proposals: where messages go.
            store_host: address and port of this broker, stored with each message.
            now_ms: wall clock.
            rng: chooses queues for clients that do not.
            statistics: counts what is taken.
            light: checks what goes into light queues.
            waits_for_slaves: whether sends do, unless their property WAIT says otherwise.
        """
        self._config = config
        self._leadership = leadership
        self._state = state
        self._topics = state.topics
        self._proposals = proposals
        self._store_host = store_host
        self._admission = TopicAdmission(config, state, now_ms)
        self._rng = rng
        self._statistics = statistics
        self._light = light
        self._waits_for_slaves = waits_for_slaves
        self._puts = statistics.puts
        self._cluster_property = f"{CLUSTER}\x01{config.cluster_name}"
        self._last_property = self._cluster_property.encode()
        # Of a record with two IPv4 addresses, so that there is room for the longest ones.
        self._record_bytes_max = min(config.message_bytes_max, RECORD_BYTES_MAX) - V6_HOSTS_BYTES
        # Topics that need no more checks: name -> what a message needs to know. Valid for one
        # generation of the table.
        self._open_topics: dict[str, TopicConfig] = {}
        # The same for quick sends.
        self._quick_topics: dict[bytes, OpenTopic] = {}
        self._generation = -1
        statistics.count_from(self._take_counts)

    def send_quick(
        self,
        connection: CommandProtocol,
        frames: list[bytes],
        count_sends: CountSends | None = None,
    ) -> int:
        """Takes the quick sends at the front of a chunk, up to a frame that is none.

        Args:
            connection: who sends.
            frames: without their length bytes.
            count_sends: None: there is no access control.

        Returns: how many were taken; they are answered when they are committed. Those that are
            refused are not: `send` says why, to each.
        """
        leadership = self._leadership
        if not leadership.is_serving or leadership.closed_because is not None:
            return 0
        if self._topics.generation != self._generation:
            self._forget_topics()
        sends = read_quick_sends(frames)
        if sends and count_sends is not None:
            sends = sends[: count_sends(connection, frames, sends)]
        if not sends:
            return 0
        return self._proposals.add_quick(
            sends,
            self._quick_topics,
            connection,
            self._store_host,
            self._last_property,
            self._record_bytes_max,
        )

    def _take_counts(self) -> Iterable[tuple[str, int, int]]:
        """What quick sends have put since this was asked last: topic, messages, bytes."""
        return [topic.take_count() for topic in self._quick_topics.values()]

    def _forget_topics(self) -> None:
        self._statistics.catch_up()
        self._open_topics = {}
        self._quick_topics = {}
        self._generation = self._topics.generation

    def send(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """Takes one message or one batch; the answer comes when it is committed.

        Raises:
            BrokerError: the message is refused; nothing was stored.
            RemoteProtocolError: the header or the batch cannot be read.
        """
        header = decode_send_header(command)
        leadership = self._leadership
        if not leadership.is_serving or leadership.closed_because is not None:
            raise leadership.refusal()
        if self._topics.generation != self._generation:
            self._forget_topics()
        text = header.properties or ""
        if len(text) > PROPERTIES_BYTES_MAX:
            check_properties(text)
        topic = self._open_topics.get(header.topic)
        if topic is None:
            topic = self._admit(connection, command, header)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._any_queue(topic)
        elif queue_id >= topic.queue_count:
            queue_id = self._known_queue(topic, header)
        if command.code == _BATCH_CODE or header.batch:
            return self._send_batch(connection, command, header, topic, queue_id)
        sys_flag = header.sys_flag
        if text.count(KEY_SEPARATOR) >= KEYS_COUNT_MAX:
            _check_keys(parse_properties(text).get(KEYS, ""))
        if (
            _DELAY_MARK in text
            or _TRANSACTION_MARK in text
            or _CLUSTER_MARK in text
            or _LIGHT_MARK in text
            or _TIMER_MARK in text
            or (self._waits_for_slaves and _WAIT_MARK in text and _WAITS not in text)
            or sys_flag & _MARKED
        ):
            return self._send_marked(connection, command, header, topic, queue_id)
        if _WAIT_MARK in text:
            text = without_wait(text)
        if text and text[-1] != _SEPARATOR:
            text += _SEPARATOR
        body, properties = command.body, (text + self._cluster_property).encode()
        size = RECORD_FIXED_BYTES + len(body) + len(topic.name) + len(properties)
        if size > self._record_bytes_max or len(properties) > PROPERTIES_BYTES_MAX:
            self._check_size(size, len(body), len(properties))
        if topic.filter_type == "MULTI_TAG":
            sys_flag |= MULTI_TAGS
        message = AppendMessage(
            topic.name, queue_id, header.flag, sys_flag, header.born_timestamp,
            connection.context, self._store_host, header.reconsume_times or 0, 0, body, properties,
        )  # fmt: skip
        self._proposals.add(
            message,
            size,
            None if command.flag & ONE_WAY_FLAG else connection,
            command.opaque,
            command.serialize_type,
            queue_id,
        )
        counter = self._puts.get(topic.name) or self._statistics.put_counter(topic.name)
        counter[0] += 1
        counter[1] += size
        return None

    def _send_batch(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        topic: TopicConfig,
        queue_id: int,
    ) -> Answer:
        """Takes a batch: one record for each message, one answer for all."""
        _refuse_inner_batch(header.sys_flag)
        if header.sys_flag & TRANSACTION_MASK or topic.name.startswith(names.RETRY_PREFIX):
            raise IllegalMessageError(
                "the batch is illegal: it is part of a transaction or goes to a retry topic"
            )
        times = header.reconsume_times or 0
        gathered = None
        if COMPILED and len(command.body) <= self._config.message_bytes_max:
            gathered = gather_batch(
                command.body,
                topic.name,
                queue_id,
                header.sys_flag,
                header.born_timestamp,
                connection.context,
                self._store_host,
                times,
                self._record_bytes_max,
            )
        messages, total = gathered or self._looked_at(connection, command, header, topic, queue_id)
        self._proposals.add_batch(
            messages,
            total,
            None if command.flag & ONE_WAY_FLAG else connection,
            command.opaque,
            command.serialize_type,
            queue_id,
            self._done_of(parse_properties(header.properties or "").get(WAIT_STORE_MSG_OK)),
        )
        counter = self._statistics.put_counter(topic.name)
        counter[0] += len(messages)
        counter[1] += total
        counter[2] += len(messages) - 1
        return None

    def _looked_at(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        topic: TopicConfig,
        queue_id: int,
    ) -> tuple[list[AppendMessage], int]:
        """Returns the messages of a batch, each looked at by itself, and their bytes."""
        elements = self._batch_elements(command.body)
        messages: list[AppendMessage] = []
        total = 0
        reconsume_times = header.reconsume_times or 0
        for flag, inner, properties in elements:
            size = RECORD_FIXED_BYTES + len(inner) + len(topic.name) + len(properties)
            spare = 0
            if properties.count(b" ") >= KEYS_COUNT_MAX:
                _check_keys(find_property(properties, b"KEYS").decode("utf-8", "replace"))
            if (
                b"DELAY\x01" in properties
                or b"TRAN_MSG\x01" in properties
                or b"INNER_MULTI_" in properties
                or b"TIMER_DEL" in properties
            ):
                properties = without_offsets(properties)
                spare = self._check_element(properties)
            if size + spare > self._record_bytes_max or spare:
                self._check_size(size + spare, len(inner), len(properties) + spare)
            total += size
            messages.append(
                AppendMessage(
                    topic.name,
                    queue_id,
                    flag,
                    header.sys_flag,
                    header.born_timestamp,
                    connection.context,
                    self._store_host,
                    reconsume_times,
                    0,
                    inner,
                    properties,
                )
            )
        return messages, total

    def _done_of(self, wait: str | None) -> Done | None:
        """What becomes of a send by its property WAIT: only "true", or none, waits for slaves."""
        if not self._waits_for_slaves or wait is None or wait.lower() == "true":
            return None
        return without_slaves

    def _batch_elements(self, body: bytes) -> list[BatchMessage]:
        try:
            elements = decode_batch(body)
        except RemoteProtocolError as error:
            raise IllegalMessageError(f"the batch is illegal: {error}") from error
        if not 0 < len(elements) <= BATCH_COUNT_MAX:
            raise IllegalMessageError(
                f"the batch is illegal: it has {len(elements)} messages,"
                f" allowed are 1 to {BATCH_COUNT_MAX}"
            )
        return elements

    # Off the hot path.

    def _check_element(self, encoded: bytes) -> int:
        """Messages of a batch go to their queue at once; returns the bytes of their offsets."""
        properties = {
            name: value.decode("utf-8", "replace")
            for name, mark in _LOOKED_AT
            if (value := find_property(encoded, mark))
        }
        is_delayed = self._config.delay_levels.level_of(properties.get(DELAY_TIME_LEVEL)) > 0
        if is_delayed or properties.get(TRANSACTION_PREPARED, "").lower() == "true":
            raise IllegalMessageError(
                "the batch is illegal: one of its messages is delayed or part of a transaction"
            )
        refuse_timers(properties, 0)
        return self._light.check(properties.get(INNER_MULTI_DISPATCH))

    def _admit(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
    ) -> TopicConfig:
        """Has a topic checked that is not remembered; remembers it when no send may change it."""
        topic = self._admission.admit(connection, command, header)
        self._light.check_topic(topic.name)
        if topic.message_type in CHECKED_TYPES and self._config.checks_message_types:
            # Not remembered: each of its messages is looked at.
            self._check_types(command, header, topic)
            return topic
        if not header.topic.startswith((names.RETRY_PREFIX, names.LIGHT_QUEUE_PREFIX)):
            self._open_topics[topic.name] = topic
            if topic.name.startswith(names.DEAD_LETTER_PREFIX):
                # Each may name the topic that it came from, which the guard asks about.
                return topic
            flag = MULTI_TAGS if topic.filter_type == "MULTI_TAG" else 0
            self._quick_topics[topic.name.encode()] = OpenTopic(topic.name, topic.queue_count, flag)
        return topic

    def _check_types(
        self, command: RemotingCommand, header: SendMessageRequestHeader, topic: TopicConfig
    ) -> None:
        """Refuses what has another type than those of a topic with a type; all of a batch."""
        if topic.name.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)):
            return
        texts = [header.properties or ""]
        if command.code == _BATCH_CODE or header.batch:
            elements = self._batch_elements(command.body)
            texts = [one.properties.decode("utf-8", "replace") for one in elements]
        for text in texts:
            check_type(topic.name, topic.message_type, parse_properties(text))

    def _any_queue(self, topic: TopicConfig) -> int:
        if topic.write_queue_count <= 0:
            raise InvalidRequestError(f"topic[{topic.name}] has no write queue")
        return self._rng.randrange(topic.write_queue_count)

    def _known_queue(self, topic: TopicConfig, header: SendMessageRequestHeader) -> int:
        """A message that became a dead letter takes queue 0; any other queue id must exist."""
        if topic.name != header.topic:
            return 0
        raise InvalidRequestError(
            f"request queueId[{header.queue_id}] is illegal, topic[{topic.name}] has"
            f" {topic.queue_count} queues. Producer: {header.producer_group}"
        )

    def _send_marked(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        topic: TopicConfig,
        queue_id: int,
    ) -> Answer:
        """Takes a message whose properties or flags mean something to the broker: it may wait for
        its time or for the end of its transaction.
        """
        _refuse_inner_batch(header.sys_flag)
        properties = parse_properties(header.properties or "")
        wait = properties.pop(WAIT_STORE_MSG_OK, None)
        properties.pop(INNER_MULTI_QUEUE_OFFSET, None)
        properties[CLUSTER] = self._config.cluster_name
        sys_flag = header.sys_flag | (MULTI_TAGS if topic.filter_type == "MULTI_TAG" else 0)
        is_retry = topic.name != header.topic or topic.name.startswith(names.RETRY_PREFIX)
        level, is_half = 0, False
        if is_retry:
            # A copy of a message that was delivered: no transaction any more.
            sys_flag &= ~TRANSACTION_MASK
        elif properties.get(TRANSACTION_PREPARED, "").lower() == "true":
            is_half = True
        elif sys_flag & TRANSACTION_MASK:
            raise InvalidRequestError(
                f"sysFlag {sys_flag} says that the message is part of a transaction, but its"
                f" property {TRANSACTION_PREPARED} does not"
            )
        if is_half or topic.name != header.topic:
            # Dead letters do not wait, and a transaction has an end instead of a time.
            properties.pop(DELAY_TIME_LEVEL, None)
        else:
            level = self._config.delay_levels.level_of(properties.get(DELAY_TIME_LEVEL))
        if not is_retry:
            refuse_timers(properties, level)
        if wait is not None and (is_half or level):
            properties[WAIT_STORE_MSG_OK] = wait
        text = format_properties(properties).encode()
        message = AppendMessage(
            topic.name, queue_id, header.flag, sys_flag, header.born_timestamp,
            connection.context, self._store_host, header.reconsume_times or 0, 0,
            command.body, text,
        )  # fmt: skip
        if is_half:
            message = self._half(message, connection.account)
        elif level:
            message = waiting_message(message, level)
        topic_bytes = max(len(topic.name), len(message.topic))
        size = RECORD_FIXED_BYTES + len(message.body) + topic_bytes + len(message.properties)
        spare = _HALF_BYTES_SPARE if is_half else 0
        spare += 0 if is_retry else self._light.check(properties.get(INNER_MULTI_DISPATCH))
        self._check_size(size + spare, len(message.body), len(message.properties) + spare)
        self._proposals.add(
            message,
            size,
            None if command.flag & ONE_WAY_FLAG else connection,
            command.opaque,
            command.serialize_type,
            queue_id,
            self._done_of(wait),
        )
        counter = self._statistics.put_counter(topic.name)
        counter[0] += 1
        counter[1] += size
        return None

    def _half(self, message: AppendMessage, account: str | None) -> AppendMessage:
        """The half message of a transaction; its topic is made with the first one."""
        if self._config.refuses_transactions:
            raise NoPermissionError(
                f"the broker[{self._config.address_host}] sending transaction message is"
                " forbidden (key rejectTransactionMessage)"
            )
        self._state.topic_for_group(names.HALF_TOPIC, 1, 0)
        return half_message(message, account)

    def _check_size(self, record_bytes: int, body_bytes: int, properties_bytes: int) -> None:
        if properties_bytes > PROPERTIES_BYTES_MAX:
            raise IllegalMessageError(
                f"the message is illegal: its properties have {properties_bytes} bytes with those"
                f" that the broker adds, allowed are {PROPERTIES_BYTES_MAX}"
            )
        limit = self._record_bytes_max
        if record_bytes > limit:
            raise IllegalMessageError(
                f"the message is illegal: its record takes {record_bytes} bytes (body {body_bytes},"
                f" properties {properties_bytes}), allowed are {limit} (key maxMessageSize)"
            )


def _check_keys(keys: str) -> None:
    count = count_keys(keys)
    if count > KEYS_COUNT_MAX:
        raise IllegalMessageError(
            f"the message is illegal: its property {KEYS} names {count} different keys, allowed are"
            f" {KEYS_COUNT_MAX}"
        )


def _refuse_inner_batch(sys_flag: int) -> None:
    """Refuses a message that says that it holds several: who consumes it would take its body apart.

    Source: HookUtils.checkInnerBatch of 5.x, which lets brokers write such records into batch
    queues alone.
    """
    if sys_flag & INNER_BATCH_MASK:
        raise IllegalMessageError(
            f"the message is illegal: its sysFlag {sys_flag} has bits of {INNER_BATCH_MASK}, which"
            " say that it holds several messages of a batch queue; there are no batch queues here"
        )


def without_wait(text: str) -> str:
    """Returns the properties without the element WAIT; names that only end so are left alone."""
    # What a Java client writes, in one step.
    rest = text.replace(_WAIT_TRUE, _SEPARATOR, 1)
    if _WAIT_MARK not in rest:
        return rest
    elements = text.split(_SEPARATOR)
    return _SEPARATOR.join([one for one in elements if not one.startswith(_WAIT_MARK)])
