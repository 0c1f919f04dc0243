"""Admin commands about the messages of a queue: one by its offset, or those between two moments."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import Final

from ledgermq.cli.message_table import print_messages
from ledgermq.cli.moments import FORMS, moment_ms
from ledgermq.cli.remote import AdminError, RefusedError, Remote
from ledgermq.cli.subcommand import Flag, Subcommand, brokers_by_name, flag_adder
from ledgermq.client import MessageQueue, PullStatus, ReceivedMessage
from ledgermq.client.queue_requests import decode_messages
from ledgermq.client.routes import queues_of
from ledgermq.client.subscription import tags_of
from ledgermq.protocol import sysflag
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)

# The group under which brokers let tools read.
_TOOLS_GROUP: Final = "TOOLS_CONSUMER"
_BODY_BYTES_MAX: Final = 64 * 1024 * 1024
_TOPIC: Final = Flag("-t", "topic", "the topic")
_BROKER: Final = Flag("-b", "brokerName", "name of the broker group")
_QUEUE: Final = Flag("-i", "queueId", "number of the queue", kind=int)
_MOMENT: Final = FORMS
_SPAN: Final = (
    Flag("-b", "beginTimestamp", _MOMENT, None),
    Flag("-e", "endTimestamp", _MOMENT, None),
    Flag("-s", "subExpression", "tags joined by ||", "*"),
    Flag("-m", "messageNumber", "print so many", 1000, int),
)


def _query_offset(remote: Remote, options: argparse.Namespace) -> None:
    queue = MessageQueue(options.topic, options.brokerName, options.queueId)
    address = _address_of(remote, queue)
    messages = _pull(remote, address, queue, options.offset, "*")[0]
    at_offset = [message for message in messages if message.queue_offset == options.offset]
    if not at_offset:
        raise AdminError(f"no message at offset {options.offset} of {queue}")
    print_messages(at_offset, options.json)


def _print_topic(remote: Remote, options: argparse.Namespace) -> None:
    route = remote.route(options.topic)
    counts = [(one.broker_name, one.read_queue_nums) for one in route.queue_datas]
    queues = queues_of(options.topic, counts)
    _print_queues(remote, options, queues)


def _print_queue(remote: Remote, options: argparse.Namespace) -> None:
    queue = MessageQueue(options.topic, options.brokerName, options.queueId)
    _print_queues(remote, options, [queue])


def _print_some(remote: Remote, options: argparse.Namespace) -> None:
    if (options.brokerName is None) != (options.queueId is None):
        raise AdminError("-b and -i go together: which queue of which broker")
    if options.brokerName is None:
        _print_topic(remote, options)
    else:
        _print_queue(remote, options)


def _print_queues(remote: Remote, options: argparse.Namespace, queues: list[MessageQueue]) -> None:
    messages = itertools.chain.from_iterable(_read(remote, options, queue) for queue in queues)
    print_messages(itertools.islice(messages, options.messageNumber), options.json)


def _read(
    remote: Remote, options: argparse.Namespace, queue: MessageQueue
) -> Iterator[ReceivedMessage]:
    """Reads a queue between two moments."""
    address = _address_of(remote, queue)
    offset, end = _bounds(remote, address, queue, options)
    while offset < end:
        messages, offset = _pull(remote, address, queue, offset, options.subExpression)
        yield from (message for message in messages if message.queue_offset < end)


def _bounds(
    remote: Remote, address: str, queue: MessageQueue, options: argparse.Namespace
) -> tuple[int, int]:
    """The first offset to read, and the one behind the last."""
    topic, queue_id = queue.topic, queue.queue_id

    def at(moment: str) -> int:
        header = SearchOffsetRequestHeader(
            topic=topic, queue_id=queue_id, timestamp=moment_ms(moment)
        )
        answer = remote.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return answer.header(SearchOffsetResponseHeader).offset

    if options.beginTimestamp is not None:
        begin = at(options.beginTimestamp)
    else:
        low = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
        answer = remote.call(address, RequestCode.GET_MIN_OFFSET, low)
        begin = answer.header(GetMinOffsetResponseHeader).offset
    if options.endTimestamp is not None:
        return begin, at(options.endTimestamp)
    high = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
    answer = remote.call(address, RequestCode.GET_MAX_OFFSET, high)
    return begin, answer.header(GetMaxOffsetResponseHeader).offset


def _pull(
    remote: Remote, address: str, queue: MessageQueue, offset: int, tags: str
) -> tuple[list[ReceivedMessage], int]:
    """Reads some messages from an offset on; returns them and where to go on."""
    header = PullMessageRequestHeader(
        consumer_group=_TOOLS_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=sysflag.PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=tags,
        sub_version=0,
    )
    answer = remote.ask(address, RequestCode.PULL_MESSAGE, header)
    found = [status.value for status in PullStatus]
    if answer.code not in found:
        raise RefusedError(address, answer.code, answer.remark)
    messages: list[ReceivedMessage] = []
    if answer.code == PullStatus.FOUND.value:
        messages = decode_messages(answer.body, queue, _BODY_BYTES_MAX, tags_of(tags))
    next_offset = answer.header(PullMessageResponseHeader).next_begin_offset
    # Whatever the broker says, a loop over offsets gets on.
    return messages, max(next_offset, offset + 1)


def _address_of(remote: Remote, queue: MessageQueue) -> str:
    address = brokers_by_name(remote, queue.topic).get(queue.broker_name)
    if address is None:
        raise AdminError(f"topic {queue.topic!r} has no broker {queue.broker_name!r}")
    return address


SUBCOMMANDS: Final = {
    "queryMsgByOffset": Subcommand(
        "a message by queue and offset",
        flag_adder(_TOPIC, _BROKER, _QUEUE, Flag("-o", "offset", "its offset", kind=int)),
        _query_offset,
    ),
    "printMsg": Subcommand(
        "messages of a topic, between two moments", flag_adder(_TOPIC, *_SPAN), _print_topic
    ),
    "printMsgByQueue": Subcommand(
        "messages of a queue, between two moments",
        flag_adder(_TOPIC, Flag("-a", "brokerName", "name of the broker group"), _QUEUE, *_SPAN),
        _print_queue,
    ),
    "consumeMessage": Subcommand(
        "messages of a topic or a queue, between two moments; nothing is committed",
        flag_adder(
            _TOPIC,
            Flag("-b", "brokerName", "with -i: of one queue only", None),
            Flag("-i", "queueId", "with -b: of one queue only", None, int),
            Flag("-s", "beginTimestamp", _MOMENT, None),
            Flag("-e", "endTimestamp", _MOMENT, None),
            Flag("-c", "messageNumber", "print so many", 128, int),
            Flag("-x", "subExpression", "tags joined by ||", "*"),
        ),
        _print_some,
    ),
}
