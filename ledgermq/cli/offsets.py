"""Admin commands that change where a group goes on: resetOffsetByTime, skipAccumulatedMessage,
cloneGroupOffset.

Members that are online are told by their broker and commit what they were told; when nobody is
online, the offsets are written by this command.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

from ledgermq.cli.group import consume_stats
from ledgermq.cli.moments import moment_ms
from ledgermq.cli.remote import AdminError, RefusedError, Remote
from ledgermq.cli.subcommand import Flag, Row, Subcommand, boolean, brokers_of, flag_adder
from ledgermq.cli.table import print_table
from ledgermq.protocol.bodies import MessageQueue, ResetOffsetBody
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

# Stands for the end of each queue.
_END: Final = -1
_COLUMNS: Final = ("topic", "broker", "queue", "offset")
_GROUP: Final = Flag("-g", "group", "the consumer group")
_TOPIC: Final = Flag("-t", "topic", "the topic")
_FORCE: Final = Flag("-f", "force", "also forward: true or false", True, boolean)


def _reset(remote: Remote, options: argparse.Namespace) -> None:
    text = options.timestamp
    timestamp_ms = time.time_ns() // 1_000_000 if text == "now" else moment_ms(text)
    _move(remote, options, timestamp_ms)


def _skip(remote: Remote, options: argparse.Namespace) -> None:
    _move(remote, options, _END)


def _move(remote: Remote, options: argparse.Namespace, timestamp_ms: int) -> None:
    header = ResetOffsetRequestHeader(
        topic=options.topic,
        group=options.group,
        timestamp=timestamp_ms,
        is_force=options.force,
    )
    table: dict[MessageQueue, int] = {}
    for address in brokers_of(remote, options.topic):
        try:
            answer = remote.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            table |= ResetOffsetBody.decode(answer.body).offset_table
        except RefusedError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            table |= _write_offsets(remote, options, timestamp_ms)
            break
    _print_offsets(table, options.json)


def _write_offsets(
    remote: Remote, options: argparse.Namespace, timestamp_ms: int
) -> dict[MessageQueue, int]:
    """Sets the offsets of a group without members."""
    table: dict[MessageQueue, int] = {}
    for address, stats in consume_stats(remote, options.group):
        for queue, offsets in stats.offset_table.items():
            if queue.topic != options.topic:
                continue
            wanted = _offset_at(remote, address, queue, timestamp_ms)
            if not options.force and wanted > offsets.consumer_offset:
                wanted = offsets.consumer_offset
            _commit(remote, address, options.group, queue, wanted)
            table[queue] = wanted
    if not table:
        raise AdminError(f"group {options.group!r} has no offsets of topic {options.topic!r}")
    return table


def _offset_at(remote: Remote, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
    topic, queue_id = queue.topic, queue.queue_id
    if timestamp_ms == _END:
        end = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        answer = remote.call(address, RequestCode.GET_MAX_OFFSET, end)
        return answer.header(GetMaxOffsetResponseHeader).offset
    moment = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=timestamp_ms)
    answer = remote.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, moment)
    return max(answer.header(SearchOffsetResponseHeader).offset, 0)


def _commit(remote: Remote, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    remote.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


def _clone(remote: Remote, options: argparse.Namespace) -> None:
    table: dict[MessageQueue, int] = {}
    for address, stats in consume_stats(remote, options.srcGroup):
        for queue, offsets in stats.offset_table.items():
            if queue.topic == options.topic:
                _commit(remote, address, options.destGroup, queue, offsets.consumer_offset)
                table[queue] = offsets.consumer_offset
    if not table:
        raise AdminError(f"group {options.srcGroup!r} has no offsets of topic {options.topic!r}")
    _print_offsets(table, options.json)


def _print_offsets(table: dict[MessageQueue, int], as_json: bool) -> None:
    rows: list[Row] = [
        (queue.topic, queue.broker_name, queue.queue_id, offset)
        for queue, offset in sorted(table.items())
    ]
    print_table(_COLUMNS, rows, as_json)


SUBCOMMANDS: Final = {
    "resetOffsetByTime": Subcommand(
        "make a group go on at the messages of a time",
        flag_adder(
            _GROUP,
            _TOPIC,
            Flag("-s", "timestamp", "now, ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS"),
            _FORCE,
        ),
        _reset,
    ),
    "skipAccumulatedMessage": Subcommand(
        "make a group go on at the end of a topic", flag_adder(_GROUP, _TOPIC, _FORCE), _skip
    ),
    "cloneGroupOffset": Subcommand(
        "give a group the offsets of another",
        flag_adder(
            Flag("-s", "srcGroup", "whose offsets"),
            Flag("-d", "destGroup", "who gets them"),
            _TOPIC,
        ),
        _clone,
    ),
}
