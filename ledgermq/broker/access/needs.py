"""What a request touches: topics and groups, each with the permission that it takes.

What is judged is the header that the processor of the code reads, decoded once for both, never the
text of a field: of two ways to read a field an attacker picks the one that suits. Which of these
functions judges which code stands in `codes.py`.

Source: `PlainAccessValidator.java`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from ledgermq.broker.access.rights import Need, group_needs, topic_needs
from ledgermq.broker.access.rules import Permission
from ledgermq.broker.records.namings import namings_of
from ledgermq.broker.records.visible_records import VisibleRecord, VisibleRecords
from ledgermq.protocol.bodies import (
    CheckClientRequestBody,
    LockBatchRequestBody,
    UnlockBatchRequestBody,
)
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    ViewBrokerStatsDataRequestHeader,
    ViewMessageRequestHeader,
    decode_send_header,
)
from ledgermq.protocol.heartbeat import HeartbeatData
from ledgermq.state.errors import AccessDeniedError

_Name = TypeVar("_Name")


class Surroundings(NamedTuple):
    """What this broker knows of things that a request only names."""

    # Finds the message of a request that names a place in the log, as its processor does.
    records: VisibleRecords
    # Where replies of this cluster are kept.
    reply_topic: str


# What a request touches; None where only an admin may ask.
Touches = Callable[[RemotingCommand, Surroundings], Iterable[Need] | None]
_STATS_OF_TOPICS: Final = frozenset(("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"))
_STATS_OF_GROUPS: Final = frozenset(("GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"))


def _found(found: VisibleRecord | None, place: int | str) -> Iterator[Need]:
    """The topics of a message that the request names by its place; without one it is refused."""
    if found is None:
        raise AccessDeniedError(f"no message that a client may read is at {place}")
    for topic in found.topics:
        yield from topic_needs(topic, Permission.SUB)


def send(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """A send, of one message or a batch, to its topic and to the light queues that it names; a
    retry or a dead letter says which topic it came from.
    """
    yield from topic_needs(decode_send_header(command).topic, Permission.PUB)
    yield from _named_in_messages(command)


def _named_in_messages(command: RemotingCommand) -> Iterator[Need]:
    for naming in _distinct(namings_of(command)):
        permission = Permission.SUB if naming.is_origin else Permission.PUB
        yield from topic_needs(naming.topic, permission)


def _distinct(names: Iterable[_Name]) -> Iterator[_Name]:
    """Yields each once, as soon as it comes."""
    seen: set[_Name] = set()
    for name in names:
        if name not in seen:
            seen.add(name)
            yield name


def reply(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """A reply goes to the one client that its message names; any other topic is a send."""
    topic = decode_send_header(command).topic
    if topic != around.reply_topic:
        yield from send(command, around)
    else:
        yield from _named_in_messages(command)


def send_back(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """Upstream believes the named topic; the message at the place is what the group gets."""
    header = command.header(ConsumerSendMsgBackRequestHeader)
    yield from _found(around.records.find(header.offset), header.offset)
    yield from topic_needs(header.origin_topic or None, Permission.PUB)
    yield from group_needs(header.group)


def end_transaction(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """Its end is what sends a half message to its topic, or takes it away from there."""
    place = command.header(EndTransactionRequestHeader).commit_log_offset
    half = around.records.find_half(place)
    if half is None:
        raise AccessDeniedError(f"no half message is at {place}")
    yield from topic_needs(half.target.topic, Permission.PUB)


def view(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """A message named by its place."""
    place = command.header(ViewMessageRequestHeader).offset
    yield from _found(around.records.find(place), place)


def consume_directly(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """A message named by its id, for one group."""
    header = command.header(ConsumeMessageDirectlyResultRequestHeader)
    message_id = header.msg_id or ""
    yield from _found(around.records.find_by_id(message_id), message_id)
    yield from group_needs(header.consumer_group)


def consume(topic: str | None, group: str | None) -> Iterator[Need]:
    """A topic that is read as a group."""
    yield from topic_needs(topic, Permission.SUB)
    yield from group_needs(group)


def lock(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """Locks of queues, taken or given back."""
    is_lock = command.code == RequestCode.LOCK_BATCH_MQ
    request = command.body_as(LockBatchRequestBody if is_lock else UnlockBatchRequestBody)
    yield from group_needs(request.consumer_group)
    for topic in _distinct(queue.topic for queue in request.mq_set):
        yield from topic_needs(topic, Permission.SUB)


def check_client(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """A subscription that a client wants to have checked."""
    request = command.body_as(CheckClientRequestBody)
    yield from group_needs(request.group)
    yield from topic_needs(request.subscription_data.topic, Permission.SUB)


def heart_beat(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """What a client subscribes to, in all its groups."""
    consumers = command.body_as(HeartbeatData).consumer_data_set
    for group in _distinct(consumer.group_name for consumer in consumers):
        yield from group_needs(group)
    topics = (one.topic for consumer in consumers for one in consumer.subscription_data_set)
    for topic in _distinct(topics):
        yield from topic_needs(topic, Permission.SUB)


def stats(command: RemotingCommand, around: Surroundings) -> Iterable[Need] | None:
    """One counter: of a topic, of "topic@group", or of the whole broker."""
    header = command.header(ViewBrokerStatsDataRequestHeader)
    topic, at, group = header.stats_key.partition("@")
    if header.stats_name in _STATS_OF_TOPICS:
        return topic_needs(header.stats_key, Permission.ANY)
    if header.stats_name in _STATS_OF_GROUPS and at:
        return [*topic_needs(topic, Permission.ANY), *group_needs(group)]
    return None


def of_anybody(command: RemotingCommand, around: Surroundings) -> Iterator[Need]:
    """Nothing by itself: the answer is cut to what the account may be shown."""
    return iter(())
