"""What a request touches, and what an account must be allowed for it.

Upstream checks a handful of codes and lets every account do all others, among them changing the
rules and reading any message by its place. Here every code that is not in one of these tables needs
an admin:

    _TOUCHES   topics and groups named by the request, each with the permission it takes; the rows
               that upstream has mean the same here
    _OPEN      what any account may ask: shapes and figures, no messages, no change

Source: `PlainAccessValidator.java`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from ledgermq.broker.access.rules import Permission
from ledgermq.broker.errors import AccessDeniedError
from ledgermq.broker.visible_records import VisibleRecord, VisibleRecords
from ledgermq.protocol.bodies import CheckClientRequestBody, LockBatchRequestBody
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    ViewMessageRequestHeader,
)
from ledgermq.protocol.heartbeat import HeartbeatData
from ledgermq.protocol.names import RETRY_PREFIX

# Of the topic of replies, behind the name of the cluster.
_REPLY_SUFFIX: Final = "_REPLY_TOPIC"


class Need(NamedTuple):
    """One thing that a request touches."""

    is_group: bool
    name: str
    permission: Permission


_Fields = Mapping[str, str]
_Touches = Callable[[_Fields, bytes, VisibleRecords], Iterator[Need]]


def needs_of(command: RemotingCommand, records: VisibleRecords) -> list[Need] | None:
    """Returns what a request touches; None when it takes an admin.

    Raises:
        AccessDeniedError: it names a place in the log where nothing is that can be judged.
        RemoteProtocolError: the request does not say what is touched.
    """
    touches = _TOUCHES.get(command.code)
    if touches is not None:
        return list(touches(command.ext_fields or {}, command.body, records))
    return [] if command.code in _OPEN else None


def _topic(name: str | None, permission: Permission) -> Iterator[Need]:
    """A topic; the retry topic of a group is that group, whoever writes or reads it."""
    if not name:
        return
    if name.startswith(RETRY_PREFIX):
        yield Need(True, name[len(RETRY_PREFIX) :], Permission.SUB)
    else:
        yield Need(False, name, permission)


def _group(name: str | None) -> Iterator[Need]:
    if name:
        yield Need(True, name.removeprefix(RETRY_PREFIX), Permission.SUB)


def _found(found: VisibleRecord | None, place: int | str) -> Iterator[Need]:
    """The topics of a message that the request names by its place; without one it is refused."""
    if found is None:
        raise AccessDeniedError(f"no message that a client may read is at {place}")
    for topic in found.topics:
        yield from _topic(topic, Permission.SUB)


def _send(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    yield from _topic(fields.get("topic"), Permission.PUB)


def _send_short(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    yield from _topic(fields.get("b"), Permission.PUB)


def _reply(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    """A reply goes to the one client that its message names; any other topic is a send."""
    if not fields.get("topic", "").endswith(_REPLY_SUFFIX):
        yield from _send(fields, body, records)


def _reply_short(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    if not fields.get("b", "").endswith(_REPLY_SUFFIX):
        yield from _send_short(fields, body, records)


def _send_back(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    """Upstream believes the named topic; the message at the place is what the group gets."""
    header = ConsumerSendMsgBackRequestHeader.from_ext_fields(fields)
    yield from _found(records.find(header.offset), header.offset)
    yield from _topic(header.origin_topic, Permission.PUB)
    yield from _group(header.group)


def _consume(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    yield from _topic(fields.get("topic"), Permission.SUB)
    # Codes differ in the name of the field; a request that has both touches both.
    yield from _group(fields.get("consumerGroup"))
    yield from _group(fields.get("group"))


def _read_topic(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    yield from _topic(fields.get("topic"), Permission.SUB)


def _look_at_topic(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    yield from _topic(fields.get("topic"), Permission.ANY)


def _member(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    yield from _group(fields.get("consumerGroup"))


def _view(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    place = ViewMessageRequestHeader.from_ext_fields(fields).offset
    yield from _found(records.find(place), place)


def _consume_directly(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    header = ConsumeMessageDirectlyResultRequestHeader.from_ext_fields(fields)
    message_id = header.msg_id or ""
    yield from _found(records.find_by_id(message_id), message_id)
    yield from _group(header.consumer_group)


def _end_transaction(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    """Its end is what sends a half message to its topic, or takes it away from there."""
    place = EndTransactionRequestHeader.from_ext_fields(fields).commit_log_offset
    half = records.find_half(place)
    if half is None:
        raise AccessDeniedError(f"no half message is at {place}")
    yield from _topic(half.target.topic, Permission.PUB)


def _clone(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    yield from _group(fields.get("srcGroup"))
    yield from _group(fields.get("destGroup"))


def _lock(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    yield from _group(LockBatchRequestBody.decode(body).consumer_group)


def _check_client(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    request = CheckClientRequestBody.decode(body)
    yield from _group(request.group)
    yield from _topic(request.subscription_data.topic, Permission.SUB)


def _heart_beat(fields: _Fields, body: bytes, records: VisibleRecords) -> Iterator[Need]:
    for consumer in HeartbeatData.decode(body).consumer_data_set:
        yield from _group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield from _topic(subscription.topic, Permission.SUB)


_CODE = RequestCode
_TOUCHES: Final[dict[int, _Touches]] = {
    _CODE.SEND_MESSAGE: _send,
    _CODE.SEND_MESSAGE_V2: _send_short,
    _CODE.SEND_BATCH_MESSAGE: _send_short,
    _CODE.SEND_REPLY_MESSAGE: _reply,
    _CODE.SEND_REPLY_MESSAGE_V2: _reply_short,
    _CODE.CONSUMER_SEND_MSG_BACK: _send_back,
    _CODE.END_TRANSACTION: _end_transaction,
    _CODE.PULL_MESSAGE: _consume,
    _CODE.LITE_PULL_MESSAGE: _consume,
    _CODE.QUERY_CONSUMER_OFFSET: _consume,
    _CODE.UPDATE_CONSUMER_OFFSET: _consume,
    _CODE.INVOKE_BROKER_TO_RESET_OFFSET: _consume,
    _CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _consume,
    _CODE.QUERY_MESSAGE: _read_topic,
    _CODE.VIEW_MESSAGE_BY_ID: _view,
    _CODE.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    _CODE.CLONE_GROUP_OFFSET: _clone,
    _CODE.SEARCH_OFFSET_BY_TIMESTAMP: _look_at_topic,
    _CODE.GET_MAX_OFFSET: _look_at_topic,
    _CODE.GET_MIN_OFFSET: _look_at_topic,
    _CODE.GET_EARLIEST_MSG_STORETIME: _look_at_topic,
    _CODE.HEART_BEAT: _heart_beat,
    _CODE.UNREGISTER_CLIENT: _member,
    _CODE.GET_CONSUMER_LIST_BY_GROUP: _member,
    _CODE.CHECK_CLIENT_CONFIG: _check_client,
    _CODE.LOCK_BATCH_MQ: _lock,
    _CODE.UNLOCK_BATCH_MQ: _lock,
}
_OPEN: Final = frozenset(
    (
        _CODE.GET_ALL_TOPIC_CONFIG,
        _CODE.GET_TOPIC_CONFIG,
        _CODE.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        _CODE.GET_TOPIC_STATS_INFO,
        _CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        _CODE.GET_SUBSCRIPTIONGROUP_CONFIG,
        _CODE.GET_CONSUMER_CONNECTION_LIST,
        _CODE.GET_PRODUCER_CONNECTION_LIST,
        _CODE.GET_ALL_PRODUCER_INFO,
        _CODE.GET_CONSUMER_RUNNING_INFO,
        _CODE.GET_CONSUME_STATS,
        _CODE.GET_BROKER_CONSUME_STATS,
        _CODE.QUERY_TOPIC_CONSUME_BY_WHO,
        _CODE.QUERY_CONSUME_TIME_SPAN,
        _CODE.QUERY_CONSUME_QUEUE,
        _CODE.GET_ALL_CONSUMER_OFFSET,
        _CODE.GET_ALL_DELAY_OFFSET,
        _CODE.GET_BROKER_CONFIG,
        _CODE.GET_BROKER_RUNTIME_INFO,
        _CODE.VIEW_BROKER_STATS_DATA,
        _CODE.GET_BROKER_CLUSTER_ACL_INFO,
    )
)
