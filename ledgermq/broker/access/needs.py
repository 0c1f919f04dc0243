"""What a request touches, and what an account must be allowed for it.

Upstream checks a handful of codes and lets every account do all others, among them changing the
rules and reading any message by its place. Here every code that is not in one of these tables needs
an admin:

    _TOUCHES   topics and groups named by the request, each with the permission it takes; the rows
               that upstream has mean the same here
    _OPEN      what any account may ask that has a right to something: shapes and figures, no
               messages, no change

What is judged is the header that the processor of the code decodes, by the same decoder, never the
text of a field: of two ways to read a field an attacker picks the one that suits.

Source: `PlainAccessValidator.java`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from ledgermq.broker.access.rules import Permission
from ledgermq.broker.records.visible_records import VisibleRecord, VisibleRecords
from ledgermq.protocol.bodies import CheckClientRequestBody, LockBatchRequestBody
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumerStatusRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    Header,
    PullMessageRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryMessageRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
    decode_send_header,
)
from ledgermq.protocol.heartbeat import HeartbeatData
from ledgermq.protocol.names import RETRY_PREFIX
from ledgermq.state.errors import AccessDeniedError


class Need(NamedTuple):
    """One thing that a request touches."""

    is_group: bool
    name: str
    permission: Permission


class Surroundings(NamedTuple):
    """What this broker knows of things that a request only names."""

    # Finds the message of a request that names a place in the log, as its processor does.
    records: VisibleRecords
    # Where replies of this cluster are kept.
    reply_topic: str


_Touches = Callable[[RemotingCommand, Surroundings], Iterable[Need]]
_H = TypeVar("_H", bound=Header)


def needs_of(command: RemotingCommand, around: Surroundings) -> list[Need] | None:
    """Returns what a request touches; None when it takes an admin.

    Raises:
        AccessDeniedError: it names a place in the log where nothing is that can be judged.
        RemoteProtocolError: the request does not say what is touched.
    """
    touches = _TOUCHES.get(command.code)
    if touches is not None:
        return list(touches(command, around))
    return [] if command.code in _OPEN else None


def _topic(name: str | None, permission: Permission) -> Iterator[Need]:
    """A topic; the retry topic of a group is that group, whoever writes or reads it.

    An empty name is one that nobody has a right to; None touches nothing.
    """
    if name is None:
        return
    if name.startswith(RETRY_PREFIX):
        yield Need(True, name[len(RETRY_PREFIX) :], Permission.SUB)
    else:
        yield Need(False, name, permission)


def _group(name: str | None) -> Iterator[Need]:
    if name is not None:
        yield Need(True, name, Permission.SUB)


def _found(found: VisibleRecord | None, place: int | str) -> Iterator[Need]:
    """The topics of a message that the request names by its place; without one it is refused."""
    if found is None:
        raise AccessDeniedError(f"no message that a client may read is at {place}")
    for topic in found.topics:
        yield from _topic(topic, Permission.SUB)


def _send(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    yield from _topic(decode_send_header(command).topic, Permission.PUB)


def _reply(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """A reply goes to the one client that its message names; any other topic is a send."""
    topic = decode_send_header(command).topic
    if topic != around.reply_topic:
        yield from _topic(topic, Permission.PUB)


def _send_back(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """Upstream believes the named topic; the message at the place is what the group gets."""
    header = command.header(ConsumerSendMsgBackRequestHeader)
    yield from _found(around.records.find(header.offset), header.offset)
    yield from _topic(header.origin_topic or None, Permission.PUB)
    yield from _group(header.group)


def _end_transaction(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """Its end is what sends a half message to its topic, or takes it away from there."""
    place = command.header(EndTransactionRequestHeader).commit_log_offset
    half = around.records.find_half(place)
    if half is None:
        raise AccessDeniedError(f"no half message is at {place}")
    yield from _topic(half.target.topic, Permission.PUB)


def _view(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    place = command.header(ViewMessageRequestHeader).offset
    yield from _found(around.records.find(place), place)


def _consume_directly(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    header = command.header(ConsumeMessageDirectlyResultRequestHeader)
    message_id = header.msg_id or ""
    yield from _found(around.records.find_by_id(message_id), message_id)
    yield from _group(header.consumer_group)


def _of(header_class: type[_H], needs: Callable[[_H], Iterable[Need]]) -> _Touches:
    """A row whose needs stand in the header."""
    return lambda command, around: needs(command.header(header_class))


def _consume(topic: str | None, group: str | None) -> Iterator[Need]:
    yield from _topic(topic, Permission.SUB)
    yield from _group(group)


def _lock(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    yield from _group(LockBatchRequestBody.decode(command.body).consumer_group)


def _check_client(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    request = CheckClientRequestBody.decode(command.body)
    yield from _group(request.group)
    yield from _topic(request.subscription_data.topic, Permission.SUB)


def _heart_beat(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    for consumer in HeartbeatData.decode(command.body).consumer_data_set:
        yield from _group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield from _topic(subscription.topic, Permission.SUB)


_CODE = RequestCode
_PULL: Final = _of(
    PullMessageRequestHeader, lambda header: _consume(header.topic, header.consumer_group)
)
_TOUCHES: Final[dict[int, _Touches]] = {
    _CODE.SEND_MESSAGE: _send,
    _CODE.SEND_MESSAGE_V2: _send,
    _CODE.SEND_BATCH_MESSAGE: _send,
    _CODE.SEND_REPLY_MESSAGE: _reply,
    _CODE.SEND_REPLY_MESSAGE_V2: _reply,
    _CODE.CONSUMER_SEND_MSG_BACK: _send_back,
    _CODE.END_TRANSACTION: _end_transaction,
    _CODE.PULL_MESSAGE: _PULL,
    _CODE.LITE_PULL_MESSAGE: _PULL,
    _CODE.QUERY_CONSUMER_OFFSET: _of(
        QueryConsumerOffsetRequestHeader,
        lambda header: _consume(header.topic, header.consumer_group),
    ),
    _CODE.UPDATE_CONSUMER_OFFSET: _of(
        UpdateConsumerOffsetRequestHeader,
        lambda header: _consume(header.topic, header.consumer_group),
    ),
    _CODE.INVOKE_BROKER_TO_RESET_OFFSET: _of(
        ResetOffsetRequestHeader, lambda header: _consume(header.topic, header.group)
    ),
    _CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _of(
        GetConsumerStatusRequestHeader, lambda header: _consume(header.topic, header.group)
    ),
    _CODE.QUERY_MESSAGE: _of(
        QueryMessageRequestHeader, lambda header: _topic(header.topic, Permission.SUB)
    ),
    _CODE.QUERY_CONSUME_QUEUE: _of(
        QueryConsumeQueueRequestHeader,
        lambda header: _consume(header.topic or "", header.consumer_group or None),
    ),
    _CODE.VIEW_MESSAGE_BY_ID: _view,
    _CODE.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    _CODE.CLONE_GROUP_OFFSET: _of(
        CloneGroupOffsetRequestHeader,
        lambda header: [*_group(header.src_group), *_group(header.dest_group)],
    ),
    _CODE.SEARCH_OFFSET_BY_TIMESTAMP: _of(
        SearchOffsetRequestHeader, lambda header: _topic(header.topic, Permission.ANY)
    ),
    _CODE.GET_MAX_OFFSET: _of(
        GetMaxOffsetRequestHeader, lambda header: _topic(header.topic, Permission.ANY)
    ),
    _CODE.GET_MIN_OFFSET: _of(
        GetMinOffsetRequestHeader, lambda header: _topic(header.topic, Permission.ANY)
    ),
    _CODE.GET_EARLIEST_MSG_STORETIME: _of(
        GetEarliestMsgStoretimeRequestHeader, lambda header: _topic(header.topic, Permission.ANY)
    ),
    _CODE.HEART_BEAT: _heart_beat,
    _CODE.UNREGISTER_CLIENT: _of(
        UnregisterClientRequestHeader, lambda header: _group(header.consumer_group or None)
    ),
    _CODE.GET_CONSUMER_LIST_BY_GROUP: _of(
        GetConsumerListByGroupRequestHeader, lambda header: _group(header.consumer_group)
    ),
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
        _CODE.GET_ALL_CONSUMER_OFFSET,
        _CODE.GET_ALL_DELAY_OFFSET,
        _CODE.GET_BROKER_CONFIG,
        _CODE.GET_BROKER_RUNTIME_INFO,
        _CODE.VIEW_BROKER_STATS_DATA,
        _CODE.GET_BROKER_CLUSTER_ACL_INFO,
    )
)
