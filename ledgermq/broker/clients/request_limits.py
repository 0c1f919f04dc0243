"""What a request of a client may have: bytes before it is read, and of what it says about itself
entries after.

The bytes are looked at before anybody reads the body, access control included: a body of 16 MiB
takes seconds to read, and a twentieth of one to check its signature. The entries are looked at
before anything is changed. Pure.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.dispatch import SEND_CODES, Answer, Processor
from ledgermq.broker.selectors.filters import EXPRESSION_CHARS_MAX, TAGS_MAX
from ledgermq.protocol.bodies import LockBatchRequestBody
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.group_settings import SETTINGS_BYTES_MAX
from ledgermq.protocol.heartbeat import HeartbeatData, SubscriptionData
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state import names
from ledgermq.state.errors import BrokerError, IllegalMessageError, InvalidRequestError
from ledgermq.state.topics import QUEUES_MAX

CLIENT_ID_CHARS_MAX: Final = 255
# Of a heart beat, and of one group in it: what a group wants is compared at once.
SUBSCRIPTIONS_MAX: Final = 5000
GROUP_SUBSCRIPTIONS_MAX: Final = 1000
_BROKER_NAME_BYTES_MAX: Final = 255
# Of the body of a request for locks, for each queue.
_QUEUE_BYTES: Final = 1024
# Of requests that have none, which are all but those that are named below: many wait for somebody
# else, a member, a new message, their part of a turn, and are kept until then.
_NO_BODY_BYTES_MAX: Final = 4096
# Of the settings of a broker.
_SETTINGS_BYTES_MAX: Final = 65_536
# Of a group: its settings may be written longer than they are kept, without defaults and nulls.
_GROUP_BYTES_MAX: Final = 4 * SETTINGS_BYTES_MAX


class _Limit(NamedTuple):
    """Of the bytes of a body."""

    bytes_max: int
    # Of the configuration; empty: it cannot be changed.
    key: str
    error: type[BrokerError]


def with_limits(processors: Mapping[int, Processor], config: BrokerConfig) -> dict[int, Processor]:
    """Returns the table of processors, each behind a limit of the bytes of a body."""
    beat = _Limit(config.heart_beat_bytes_max, "maxHeartbeatBytes", InvalidRequestError)
    locks = _Limit(config.lock_queues_max * _QUEUE_BYTES, "maxLockQueues", InvalidRequestError)
    message = _Limit(config.message_bytes_max, "maxMessageSize", IllegalMessageError)
    nothing = _Limit(_NO_BODY_BYTES_MAX, "", InvalidRequestError)
    settings = _Limit(_SETTINGS_BYTES_MAX, "", InvalidRequestError)
    group = _Limit(_GROUP_BYTES_MAX, "", InvalidRequestError)
    limits = {
        **dict.fromkeys(SEND_CODES, message),
        int(RequestCode.HEART_BEAT): beat,
        int(RequestCode.CHECK_CLIENT_CONFIG): beat,
        int(RequestCode.LOCK_BATCH_MQ): locks,
        int(RequestCode.UNLOCK_BATCH_MQ): locks,
        int(RequestCode.UPDATE_BROKER_CONFIG): settings,
        int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP): group,
    }
    return {
        code: _limited(processor, limits.get(code, nothing))
        for code, processor in processors.items()
    }


def _limited(processor: Processor, limit: _Limit) -> Processor:
    bytes_max = limit.bytes_max

    def checked(connection: CommandProtocol, command: RemotingCommand) -> Answer:
        if len(command.body) > bytes_max:
            key = f" (key {limit.key})" if limit.key else ""
            raise limit.error(
                f"the body of a request {command.code} has {len(command.body)} bytes,"
                f" allowed are {bytes_max}{key}"
            )
        return processor(connection, command)

    return checked


def check_heart_beat(data: HeartbeatData, groups_max: int) -> None:
    """Checks a heart beat before any of it counts.

    Raises:
        InvalidRequestError: there are too many groups, subscriptions or tags, a name cannot be that
            of a group, or the client id or an expression is too long.
    """
    check_client_id(data.client_id)
    count = len(data.consumer_data_set) + len(data.producer_data_set)
    if count > groups_max:
        raise InvalidRequestError(
            f"the heart beat of {data.client_id} names {count} groups, allowed are {groups_max}"
            " (key maxHeartbeatGroups)"
        )
    for producer in data.producer_data_set:
        names.check_group_name(producer.group_name)
    subscription_count = 0
    for consumer in data.consumer_data_set:
        names.check_group_name(consumer.group_name)
        count = len(consumer.subscription_data_set)
        subscription_count += count
        if count > GROUP_SUBSCRIPTIONS_MAX:
            raise InvalidRequestError(
                f"the group {consumer.group_name} subscribes to {count} topics,"
                f" allowed are {GROUP_SUBSCRIPTIONS_MAX}"
            )
        for subscription in consumer.subscription_data_set:
            _check_subscription(consumer.group_name, subscription)
    if subscription_count > SUBSCRIPTIONS_MAX:
        raise InvalidRequestError(
            f"the heart beat of {data.client_id} has {subscription_count} subscriptions,"
            f" allowed are {SUBSCRIPTIONS_MAX}"
        )


def _check_subscription(group: str, subscription: SubscriptionData) -> None:
    text = subscription.sub_string or ""
    if max(len(text), len(subscription.tags_set), len(subscription.code_set)) <= TAGS_MAX:
        # As nearly all: a heart beat may have thousands.
        return
    counts = (
        ("characters", len(text), EXPRESSION_CHARS_MAX),
        ("tags", 1 + text.count("||"), TAGS_MAX),
        ("entries in tagsSet", len(subscription.tags_set), TAGS_MAX),
        ("entries in codeSet", len(subscription.code_set), TAGS_MAX),
    )
    for what, count, limit in counts:
        if count > limit:
            raise InvalidRequestError(
                f"the subscription of group {group} to topic {subscription.topic[:255]} has"
                f" {count} {what}, allowed are {limit}"
            )


def check_client_id(client_id: str) -> None:
    """Raises InvalidRequestError when the text may not be the id of a client."""
    if not 0 < len(client_id) <= CLIENT_ID_CHARS_MAX:
        raise InvalidRequestError(
            f"the client id has {len(client_id)} characters, allowed are 1 to {CLIENT_ID_CHARS_MAX}"
        )


def check_locks(request: LockBatchRequestBody, queues_max: int) -> None:
    """Checks a request for locks, or to give them back.

    Raises:
        InvalidRequestError: there are too many queues, or a field is too long or too great.
    """
    check_client_id(request.client_id)
    count = len(request.mq_set)
    if count > queues_max:
        raise InvalidRequestError(
            f"mqSet has {count} queues, allowed are {queues_max} (key maxLockQueues)"
        )
    for queue in request.mq_set:
        if not 0 <= queue.queue_id < QUEUES_MAX:
            raise InvalidRequestError(
                f"queueId is {queue.queue_id}, allowed are 0 to {QUEUES_MAX - 1}"
            )
        size = len(queue.broker_name.encode("utf-8", "surrogatepass"))
        if size > _BROKER_NAME_BYTES_MAX:
            raise InvalidRequestError(
                f"brokerName has {size} bytes, allowed are {_BROKER_NAME_BYTES_MAX}"
            )
