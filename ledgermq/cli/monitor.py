"""Admin command that watches the consumers of a cluster: startMonitoring.

Each round tells, for each group that is online and each of its topics, how many messages it has not
consumed, in all and in the queue that is furthest behind, and how long ago the newest consumed
message was stored. It goes on until it is stopped, or for some rounds.

Source: `MonitorService.java`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Final

from ledgermq.cli.failure import fail
from ledgermq.cli.moments import local_time
from ledgermq.cli.remote import RefusedError, Remote, UnreachableError
from ledgermq.cli.subcommand import Flag, Row, Subcommand, brokers_of, flag_adder
from ledgermq.cli.table import print_table
from ledgermq.client import ClientError, NotFoundError
from ledgermq.client.admin import QueueLag
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import GetConsumerConnectionListRequestHeader
from ledgermq.protocol.names import RETRY_PREFIX
from ledgermq.protocol.route import TopicList

_COLUMNS: Final = ("time", "group", "topic", "behind", "worst_queue", "behind_ms")


def _monitor(remote: Remote, options: argparse.Namespace) -> None:
    number = 0
    while True:
        number += 1
        try:
            rows = list(_round(remote))
        except (UnreachableError, ClientError) as error:
            # It may be back in the next round.
            rows = []
            fail(str(error))
        if options.json:
            for row in rows:
                print(json.dumps(dict(zip(_COLUMNS, row, strict=True))), flush=True)
        else:
            print_table(_COLUMNS, rows, False)
            print(flush=True)
        if number == options.rounds:
            return
        time.sleep(options.interval)


def _round(remote: Remote) -> Iterator[Row]:
    """A row for each topic of each group that is online; one that is gone has none."""
    now_ms = time.time_ns() // 1_000_000
    answer = remote.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    for topic in sorted(TopicList.decode(answer.body).topic_list):
        if topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            try:
                yield from _group_rows(remote, group, now_ms)
            except (RefusedError, NotFoundError):
                continue


def _group_rows(remote: Remote, group: str, now_ms: int) -> list[Row]:
    header = GetConsumerConnectionListRequestHeader(consumer_group=group)
    for address in brokers_of(remote, RETRY_PREFIX + group):
        remote.call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    found: dict[str, list[QueueLag]] = {}
    for one in remote.admin.lag(group).queues:
        found.setdefault(one.queue.topic, []).append(one)
    return [_row(group, topic, offsets, now_ms) for topic, offsets in sorted(found.items())]


def _row(group: str, topic: str, queues: list[QueueLag], now_ms: int) -> Row:
    behind = [one.behind for one in queues]
    times = [one.consumed_ms for one in queues if one.behind and one.consumed_ms is not None]
    late_ms = max(now_ms - min(times), 0) if times else 0
    return (local_time(now_ms), group, topic, sum(behind), max(behind, default=0), late_ms)


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


SUBCOMMANDS: Final = {
    "startMonitoring": Subcommand(
        "how far consumers are behind, again and again",
        flag_adder(
            Flag("-i", "interval", "seconds between two rounds", 60, _at_least_one),
            Flag("-r", "rounds", "end after so many; default: go on", None, _at_least_one),
        ),
        _monitor,
    ),
}
