"""CONSUMER_SEND_MSG_BACK (36): a message that its consumer could not handle, for a later try.

The message is stored again for the retry topic of the group, with its count of tries raised and a
delay that grows with it; after the last try it goes to the dead letters at once. Source:
`AbstractSendMessageProcessor.consumerSendMsgBack`.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from ledgermq.broker.committed_answers import answer_when_committed
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.records.delayed_messages import waiting_message
from ledgermq.broker.records.record_copies import copy_of
from ledgermq.broker.records.visible_records import VisibleRecords
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.codes import VERSION_3_4_9, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import ConsumerSendMsgBackRequestHeader
from ledgermq.protocol.message_id import encode_offset_id
from ledgermq.protocol.properties import (
    DELAY_TIME_LEVEL,
    ORIGIN_MESSAGE_ID,
    PROPERTIES_BYTES_MAX,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    WAIT_STORE_MSG_OK,
    decode_any_properties,
    encode_any_properties,
)
from ledgermq.protocol.record import Record
from ledgermq.protocol.sysflag import TRANSACTION_MASK
from ledgermq.protocol.transport import CommandProtocol, payer_of
from ledgermq.state import names
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import (
    BrokerError,
    InvalidRequestError,
    NoPermissionError,
    SystemBusyError,
)
from ledgermq.state.topics import PERM_WRITE, TOPIC_UNIT_SUBSCRIPTION, TopicConfig
from ledgermq.state.under_way import OnCommitted

_DEAD_LETTER_QUEUES: Final = 1
# Of a message that failed once.
_FIRST_RETRY_LEVEL: Final = 3
# What a broker adds; without it no later try comes.
_OF_BROKER: Final = frozenset(
    (
        DELAY_TIME_LEVEL,
        ORIGIN_MESSAGE_ID,
        REAL_QUEUE_ID,
        REAL_TOPIC,
        RETRY_TOPIC,
        WAIT_STORE_MSG_OK,
    )
)
# Of what a message that waits has besides the name of its topic, and some more.
_WAITING_BYTES: Final = 64
# Of what may wait for a commit, the part that messages sent back of one account, or address, may
# take: a request of two hundred bytes has four megabytes stored.
_PAYER_PART: Final = 4
# One more has room in a record.
_RECONSUME_TIMES_MAX: Final = 2**31 - 2


class SendBackProcessor:
    """Stores messages again that came back."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        state: BrokerState,
        proposals: Proposals,
        records: VisibleRecords,
        *,
        statistics: Statistics,
        rng: Random,
        use_bytes: Callable[[CommandProtocol, int], None],
    ) -> None:
        """Binds the parts; `rng` chooses queues, `statistics` is told what came back, `use_bytes`
        counts for who asks what is stored, of which the request has next to nothing.
        """
        self._use_bytes = use_bytes
        self._statistics = statistics
        self._config = config
        self._leadership = leadership
        self._state = state
        self._proposals = proposals
        self._records = records
        self._rng = rng
        # Bytes that wait for their commit, by account or address.
        self._waiting: Counter[str] = Counter()

    def send_back(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """Stores a message as a retry or a dead letter; answered when it is committed."""
        if not self._leadership.takes_messages:
            raise self._leadership.refusal()
        self._proposals.check_room()
        header = command.header(ConsumerSendMsgBackRequestHeader)
        group = self._state.group_for_use(header.group, connection)
        if not self._config.broker_permission & PERM_WRITE:
            raise NoPermissionError(
                f"the broker[{self._config.address_host}] sending message is forbidden:"
                f" brokerPermission is {self._config.broker_permission}"
            )
        if group.retry_queue_count <= 0:
            return command.response(ResponseCode.SUCCESS)
        found = self._records.find(header.offset)
        if found is None:
            raise InvalidRequestError(f"look message by offset failed, {header.offset}")
        record = found.record
        retries_max = group.retries_max
        if command.version >= VERSION_3_4_9 and header.max_reconsume_times is not None:
            retries_max = header.max_reconsume_times
        is_dead = header.delay_level < 0 or record.reconsume_times >= retries_max
        if is_dead:
            topic = self._state.topic_for_group(
                names.DEAD_LETTER_PREFIX + group.name, _DEAD_LETTER_QUEUES, 0, connection
            )
        else:
            topic = self._state.topic_for_group(
                names.RETRY_PREFIX + group.name,
                group.retry_queue_count,
                TOPIC_UNIT_SUBSCRIPTION if header.unit_mode else 0,
                connection,
            )
        message = self._message(record, topic)
        # Once now, and once more when its time has come.
        size = len(message.body) + len(message.properties)
        payer = payer_of(connection)
        self._check_room(payer, size)
        self._use_bytes(connection, size if is_dead else 2 * size)
        if not is_dead:
            message = waiting_message(message, self._level(header.delay_level, record))

        def store(done: OnCommitted) -> None:
            self._waiting[payer] += size

            def stored(error: BrokerError | None) -> None:
                self._waiting[payer] -= size
                if not self._waiting[payer]:
                    del self._waiting[payer]
                if error is None:
                    self._statistics.sent_back(record.topic, group.name)
                done(error)

            self._proposals.add_own([message], lambda _, error: stored(error))

        return answer_when_committed(command, store)

    def _check_room(self, payer: str, size: int) -> None:
        """
        Raises:
            SystemBusyError: too much that came back from one account, or address, waits already.
        """
        waiting, size_max = self._waiting.get(payer, 0), self._config.waiting_bytes_max
        if waiting and waiting + size > size_max // _PAYER_PART:
            raise SystemBusyError(
                f"system busy: {waiting} bytes of messages that {payer} sent back wait for their"
                f" commit and {size} more came; allowed are {size_max // _PAYER_PART} (a quarter of"
                " key maxSendBytesInFlight)"
            )

    def _level(self, asked: int, record: Record) -> int:
        """The delay level: as the consumer wants it, else growing with the tries."""
        level = asked or _FIRST_RETRY_LEVEL + record.reconsume_times
        # A sender may say that its message was delivered less often than never.
        return min(max(level, 1), self._config.delay_levels.level_max)

    def _message(self, record: Record, topic: TopicConfig) -> AppendMessage:
        properties = decode_any_properties(record.properties)
        if RETRY_TOPIC not in properties or not record.topic.startswith(names.RETRY_PREFIX):
            # Consumers, and who sends dead letters anew, go by it: its sender has no say in it.
            properties[RETRY_TOPIC] = record.topic
        address, port = record.store_host
        properties.setdefault(
            ORIGIN_MESSAGE_ID, encode_offset_id(address, port, record.physical_offset)
        )
        properties[WAIT_STORE_MSG_OK] = "false"
        properties[DELAY_TIME_LEVEL] = "0"
        message = copy_of(record)
        properties_max = PROPERTIES_BYTES_MAX - len(topic.name) - _WAITING_BYTES
        return message._replace(
            topic=topic.name,
            queue_id=self._rng.randrange(max(topic.write_queue_count, 1)),
            sys_flag=message.sys_flag & ~TRANSACTION_MASK,
            reconsume_times=min(max(record.reconsume_times, 0), _RECONSUME_TIMES_MAX) + 1,
            properties=_fitting(properties, properties_max),
        )


def _fitting(properties: dict[str, str], bytes_max: int) -> bytes:
    """Returns properties for a record. Where there is no room for those of the broker, the longest
    of its sender's are left out: a message that nobody takes back would come for ever.
    """
    excess = len(encode_any_properties(properties)) - bytes_max
    if excess > 0:
        own = properties.keys() - _OF_BROKER
        for name in sorted(own, key=lambda name: (len(properties[name]), name), reverse=True):
            # With its separators.
            excess -= 1 + len(encode_any_properties({name: properties.pop(name)}))
            if excess <= 0:
                break
    return encode_any_properties(properties)
