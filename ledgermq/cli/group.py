"""Admin commands about consumer groups: consumerProgress."""

from __future__ import annotations

import argparse
from typing import Final

from ledgermq.cli.remote import AdminError, Remote
from ledgermq.cli.subcommand import Subcommand
from ledgermq.cli.table import print_table
from ledgermq.protocol.bodies import ConsumeStats
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import GetConsumeStatsRequestHeader
from ledgermq.protocol.route import MASTER_ID, TopicList

RETRY_PREFIX: Final = "%RETRY%"
_QUEUE_COLUMNS: Final = (
    "topic", "broker", "queue", "broker_offset", "consumer_offset", "behind",
)  # fmt: skip


def _add_progress(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-g", "--groupName", help="one group by queue; default: all groups")


def _print_progress(remote: Remote, options: argparse.Namespace) -> None:
    if options.groupName:
        print_table(_QUEUE_COLUMNS, _queue_rows(remote, options.groupName), options.json)
        return
    answer = remote.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    rows: list[tuple[object, ...]] = []
    for topic in sorted(TopicList.decode(answer.body).topic_list):
        if topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            try:
                behind: object = sum(int(str(row[5])) for row in _queue_rows(remote, group))
            except AdminError as error:
                behind = str(error)
            rows.append((group, behind))
    print_table(("group", "behind"), rows, options.json)


def _queue_rows(remote: Remote, group: str) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for broker in remote.route(RETRY_PREFIX + group).broker_datas:
        address = broker.broker_addrs.get(MASTER_ID) or min(broker.broker_addrs.values())
        answer = remote.call(
            address,
            RequestCode.GET_CONSUME_STATS,
            GetConsumeStatsRequestHeader(consumer_group=group),
        )
        for queue, offsets in ConsumeStats.decode(answer.body).offset_table.items():
            behind = offsets.broker_offset - offsets.consumer_offset
            place = (queue.topic, queue.broker_name, queue.queue_id)
            rows.append((*place, offsets.broker_offset, offsets.consumer_offset, behind))
    return sorted(rows, key=lambda row: (str(row[0]), str(row[1]), int(str(row[2]))))


SUBCOMMANDS: Final = {
    "consumerProgress": Subcommand("how far groups have consumed", _add_progress, _print_progress),
}
