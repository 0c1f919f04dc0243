"""Admin commands about single messages: find, print, send, and have one consumed now."""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ledgermq.cli.moments import local_time, moment_ms
from ledgermq.cli.remote import AdminError, RefusedError, Remote
from ledgermq.cli.security import read_security
from ledgermq.cli.subcommand import Flag, Row, Subcommand, brokers_by_name, flag_adder
from ledgermq.cli.table import print_table
from ledgermq.client import ClientError, Message, ProducerConfig, ReceivedMessage, SendResult
from ledgermq.client.blocking import Producer
from ledgermq.client.queue_requests import PullStatus, decode_messages, tags_of
from ledgermq.protocol import sysflag
from ledgermq.protocol.bodies import ConsumeMessageDirectlyResult, MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    ViewMessageRequestHeader,
)
from ledgermq.protocol.message_id import created_ms, decode_offset_id

# The group under which brokers let tools read.
_TOOLS_GROUP: Final = "TOOLS_CONSUMER"
_BODY_BYTES_MAX: Final = 64 * 1024 * 1024
_FOUND_MAX: Final = 64
_TIME_MAX: Final = 2**63 - 1
_TOPIC: Final = Flag("-t", "topic", "the topic")
_BROKER: Final = Flag("-b", "brokerName", "name of the broker group")
_QUEUE: Final = Flag("-i", "queueId", "number of the queue", kind=int)
_COLUMNS: Final = ("topic", "broker", "queue", "offset", "stored", "id", "keys", "tags", "body")
_BODY_CHARS_MAX: Final = 60


def _print_messages(messages: Iterable[ReceivedMessage], as_json: bool) -> None:
    """Prints a row for each message; as JSON with all of the body and the properties."""
    found = list(messages)
    if as_json:
        print(json.dumps([_document(message) for message in found], indent=1))
        return
    print_table(_COLUMNS, [_row(message) for message in found], False)


def _row(message: ReceivedMessage) -> Row:
    text = message.body.decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else "." for char in text[:_BODY_CHARS_MAX])
    return (
        message.record.topic,
        message.queue.broker_name,
        message.queue.queue_id,
        message.queue_offset,
        local_time(message.store_timestamp_ms),
        message.message_id,
        message.keys,
        message.tags,
        shown if len(text) <= _BODY_CHARS_MAX else f"{shown}...",
    )


def _document(message: ReceivedMessage) -> dict[str, object]:
    return {
        **dict(zip(_COLUMNS, _row(message), strict=True)),
        "offset_id": message.offset_message_id,
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
        "body": message.body.decode("utf-8", "backslashreplace"),
    }


# By id and key.


def _query_id(remote: Remote, options: argparse.Namespace) -> None:
    place = decode_offset_id(options.msgId)
    family = socket.AF_INET if len(place.address) == 4 else socket.AF_INET6
    address = f"{socket.inet_ntop(family, place.address)}:{place.port}"
    header = ViewMessageRequestHeader(offset=place.physical_offset)
    answer = remote.call(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
    _tell_or_try(remote, options, address, _decoded(answer.body, ""))


def _query_unique_key(remote: Remote, options: argparse.Namespace) -> None:
    now_ms = time.time_ns() // 1_000_000
    begin_ms = created_ms(options.msgId, now_ms)
    found = _by_key(remote, options.topic, options.msgId, True, (begin_ms or 1000) - 1000)
    if not found:
        raise AdminError(f"no message of topic {options.topic!r} has the id {options.msgId}")
    _tell_or_try(remote, options, found[0][0], [message for _, message in found])


def _query_key(remote: Remote, options: argparse.Namespace) -> None:
    found = _by_key(remote, options.topic, options.msgKey, False, 0)
    _print_messages([message for _, message in found], options.json)


def _by_key(
    remote: Remote, topic: str, key: str, is_unique: bool, begin_ms: int
) -> list[tuple[str, ReceivedMessage]]:
    """Returns the messages of a key, each with the address of its broker."""
    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=_FOUND_MAX,
        begin_timestamp=begin_ms,
        end_timestamp=_TIME_MAX,
        unique_key_query=is_unique,
    )
    found: list[tuple[str, ReceivedMessage]] = []
    for name, address in brokers_by_name(remote, topic).items():
        try:
            answer = remote.call(address, RequestCode.QUERY_MESSAGE, header)
        except RefusedError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            continue
        # The index goes by hashes: what has another key slipped through.
        found += [
            (address, message)
            for message in _decoded(answer.body, name)
            if key in (message.message_id if is_unique else message.keys.split())
        ]
    return found


def _tell_or_try(
    remote: Remote, options: argparse.Namespace, address: str, messages: list[ReceivedMessage]
) -> None:
    """Prints messages, or with -g and -d has a consumer consume the first of them now."""
    if options.consumerGroup is None and options.clientId is None:
        _print_messages(messages, options.json)
        return
    if options.consumerGroup is None or options.clientId is None:
        raise AdminError("-g and -d go together: whom of which group to give the message")
    header = ConsumeMessageDirectlyResultRequestHeader(
        consumer_group=options.consumerGroup,
        client_id=options.clientId,
        msg_id=messages[0].offset_message_id,
    )
    answer = remote.call(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    told = ConsumeMessageDirectlyResult.decode(answer.body)
    row = (options.clientId, told.consume_result, told.spent_time_mills, told.remark or "")
    print_table(("client", "result", "ms", "remark"), [row], options.json)


def _decoded(body: bytes, broker_name: str) -> list[ReceivedMessage]:
    messages = decode_messages(body, MessageQueue("", broker_name, 0), _BODY_BYTES_MAX, frozenset())
    for message in messages:
        record = message.record
        message.queue = MessageQueue(record.topic, broker_name, record.queue_id)
    return messages


# By place.


def _query_offset(remote: Remote, options: argparse.Namespace) -> None:
    queue = MessageQueue(options.topic, options.brokerName, options.queueId)
    address = _address_of(remote, queue)
    messages = _pull(remote, address, queue, options.offset, "*")[0]
    at_offset = [message for message in messages if message.queue_offset == options.offset]
    if not at_offset:
        raise AdminError(f"no message at offset {options.offset} of {queue}")
    _print_messages(at_offset, options.json)


def _print_topic(remote: Remote, options: argparse.Namespace) -> None:
    route = remote.route(options.topic)
    queues = [
        MessageQueue(options.topic, data.broker_name, queue_id)
        for data in route.queue_datas
        for queue_id in range(data.read_queue_nums)
    ]
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
    _print_messages(itertools.islice(messages, options.messageNumber), options.json)


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


# To send.


def _send(remote: Remote, options: argparse.Namespace) -> None:
    message = Message(options.topic, options.body.encode(), keys=options.keys, tags=options.tags)
    (sent,) = _sent(remote, options, [message])
    row = (sent.result.broker_name, sent.result.queue_id, sent.result.queue_offset)
    print_table(("broker", "queue", "offset", "id"), [(*row, sent.result.message_id)], options.json)


def _time_sends(remote: Remote, options: argparse.Namespace) -> None:
    message = Message(options.topic, b"x" * options.size)
    rows = [
        (sent.result.broker_name, sent.result.queue_id, round(sent.ms, 2))
        for sent in _sent(remote, options, [message] * options.amount)
    ]
    print_table(("broker", "queue", "ms"), rows, options.json)


class _Sent(NamedTuple):
    """A message that was acknowledged, and how long that took."""

    result: SendResult
    ms: float


def _sent(remote: Remote, options: argparse.Namespace, messages: list[Message]) -> list[_Sent]:
    """Sends messages one after the other."""
    config = ProducerConfig(client=read_security(options).client_config())
    outcomes: list[_Sent] = []
    try:
        with Producer(";".join(remote.name_servers), config=config) as producer:
            for message in messages:
                begun_s = time.perf_counter()
                result = producer.send(message)
                outcomes.append(_Sent(result, (time.perf_counter() - begun_s) * 1000))
    except ClientError as error:
        raise AdminError(str(error)) from error
    return outcomes


_TRIAL: Final = (
    Flag("-g", "consumerGroup", "with -d: have it consumed now", None),
    Flag("-d", "clientId", "with -g: by this member", None),
)
_MOMENT: Final = "ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS"
_SPAN: Final = (
    Flag("-b", "beginTimestamp", _MOMENT, None),
    Flag("-e", "endTimestamp", _MOMENT, None),
    Flag("-s", "subExpression", "tags joined by ||", "*"),
    Flag("-m", "messageNumber", "print so many", 1000, int),
)
SUBCOMMANDS: Final = {
    "queryMsgById": Subcommand(
        "a message by the id that tells its place",
        flag_adder(Flag("-i", "msgId", "32 or 56 hexadecimal digits"), *_TRIAL),
        _query_id,
    ),
    "queryMsgByUniqueKey": Subcommand(
        "messages by the id that their producer gave them",
        flag_adder(_TOPIC, Flag("-i", "msgId", "the id"), *_TRIAL),
        _query_unique_key,
    ),
    "queryMsgByKey": Subcommand(
        "messages by a word of their keys",
        flag_adder(_TOPIC, Flag("-k", "msgKey", "the word")),
        _query_key,
    ),
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
    "checkMsgSendRT": Subcommand(
        "send messages one by one and tell how long each took",
        flag_adder(
            _TOPIC,
            Flag("-a", "amount", "how many", 100, int),
            Flag("-s", "size", "bytes of a body", 128, int),
        ),
        _time_sends,
    ),
    "sendMessage": Subcommand(
        "send a message",
        flag_adder(
            _TOPIC,
            Flag("-p", "body", "its text"),
            Flag("-k", "keys", "words to find it by", ""),
            Flag("-c", "tags", "its tag", ""),
        ),
        _send,
    ),
}
