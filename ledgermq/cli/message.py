"""Admin commands about single messages: find by id or key, have one consumed now, send."""

from __future__ import annotations

import argparse
import socket
import time
from statistics import mean
from typing import Final, NamedTuple

from ledgermq.cli.message_table import print_messages
from ledgermq.cli.remote import AdminError, RefusedError, Remote
from ledgermq.cli.security import read_security
from ledgermq.cli.subcommand import Flag, Subcommand, brokers_by_name, flag_adder
from ledgermq.cli.table import print_table
from ledgermq.client import ClientError, Message, ProducerConfig, ReceivedMessage, SendResult
from ledgermq.client.blocking import Producer
from ledgermq.client.queue_requests import decode_messages
from ledgermq.protocol.bodies import ConsumeMessageDirectlyResult, MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from ledgermq.protocol.message_id import created_ms, decode_offset_id
from ledgermq.protocol.properties import KEYS, UNIQUE_KEY

_BODY_BYTES_MAX: Final = 64 * 1024 * 1024
_FOUND_MAX: Final = 64
_TIME_MAX: Final = 2**63 - 1
_TOPIC: Final = Flag("-t", "topic", "the topic")


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
    found = messages_of_key(remote, options.topic, options.msgId, True, (begin_ms or 1000) - 1000)
    if not found:
        raise AdminError(f"no message of topic {options.topic!r} has the id {options.msgId}")
    _tell_or_try(remote, options, found[0][0], [message for _, message in found])


def _query_key(remote: Remote, options: argparse.Namespace) -> None:
    found = messages_of_key(remote, options.topic, options.msgKey, False, 0)
    print_messages([message for _, message in found], options.json)


def messages_of_key(
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
            if _has_key(message, key, is_unique)
        ]
    return found


def _has_key(message: ReceivedMessage, key: str, is_unique: bool) -> bool:
    own = message.readable_properties
    if is_unique:
        return key in (own.get(UNIQUE_KEY) or message.offset_message_id)
    return key in own.get(KEYS, "").split()


def _tell_or_try(
    remote: Remote, options: argparse.Namespace, address: str, messages: list[ReceivedMessage]
) -> None:
    """Prints messages, or with -g and -d has a consumer consume the first of them now."""
    if options.consumerGroup is None and options.clientId is None:
        print_messages(messages, options.json)
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


# To send.


def _send(remote: Remote, options: argparse.Namespace) -> None:
    message = Message(options.topic, options.body.encode(), keys=options.keys, tags=options.tags)
    (sent,) = _sent(remote, options, [message])
    row = (sent.result.broker_name, sent.result.queue_id, sent.result.queue_offset)
    print_table(("broker", "queue", "offset", "id"), [(*row, sent.result.message_id)], options.json)


def _time_sends(remote: Remote, options: argparse.Namespace) -> None:
    message = Message(options.topic, b"x" * options.size)
    _print_times(options, _sent(remote, options, [message] * options.amount))


def _time_broker(remote: Remote, options: argparse.Namespace) -> None:
    """Each broker group has a topic of its own name."""
    message = Message(options.brokerName, b"x" * options.messageSize)
    _print_times(options, _sent(remote, options, [message] * options.count))


def _print_times(options: argparse.Namespace, outcomes: list[_Sent]) -> None:
    rows = [(sent.result.broker_name, sent.result.queue_id, round(sent.ms, 2)) for sent in outcomes]
    print_table(("broker", "queue", "ms"), rows, options.json)


def _time_clusters(remote: Remote, options: argparse.Namespace) -> None:
    """Each cluster has a topic of its own name."""
    known = sorted(remote.clusters().cluster_addr_table)
    rows = []
    for name in known if options.cluster is None else [options.cluster]:
        if name not in known:
            raise AdminError(f"no cluster {name!r}; known: {', '.join(known) or 'none'}")
        message = Message(name, b"x" * options.size)
        took_ms = [sent.ms for sent in _sent(remote, options, [message] * options.amount)]
        rows.append((name, len(took_ms), round(mean(took_ms), 2), round(max(took_ms), 2)))
    print_table(("cluster", "messages", "mean_ms", "longest_ms"), rows, options.json)


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


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


_TRIAL: Final = (
    Flag("-g", "consumerGroup", "with -d: have it consumed now", None),
    Flag("-d", "clientId", "with -g: by this member", None),
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
    "checkMsgSendRT": Subcommand(
        "send messages one by one and tell how long each took",
        flag_adder(
            _TOPIC,
            Flag("-a", "amount", "how many", 100, _positive),
            Flag("-s", "size", "bytes of a body", 128, int),
        ),
        _time_sends,
    ),
    "sendMsgStatus": Subcommand(
        "send messages to the topic of a broker's name and tell how long each took",
        flag_adder(
            Flag("-b", "brokerName", "name of the broker group"),
            Flag("-s", "messageSize", "bytes of a body", 128, int),
            Flag("-c", "count", "how many", 50, _positive),
        ),
        _time_broker,
    ),
    "clusterRT": Subcommand(
        "send messages to each cluster and tell how long they took; once, not for ever",
        flag_adder(
            Flag("-a", "amount", "how many", 100, _positive),
            Flag("-s", "size", "bytes of a body", 128, int),
            Flag("-c", "cluster", "this one only", None),
        ),
        _time_clusters,
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
