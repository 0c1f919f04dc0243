"""Admin commands about topics: topicList, topicRoute, topicStatus, updateTopic, deleteTopic."""

from __future__ import annotations

import argparse
import datetime
import json
from typing import Final

from ledgermq.cli.remote import Remote
from ledgermq.cli.subcommand import Subcommand, add_broker_or_cluster, chosen_brokers
from ledgermq.cli.table import print_table
from ledgermq.protocol.bodies import TopicStatsTable
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from ledgermq.protocol.route import MASTER_ID, TopicList


def _add_topic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True)


def _add_update_topic(parser: argparse.ArgumentParser) -> None:
    _add_topic(parser)
    add_broker_or_cluster(parser)
    parser.add_argument("-r", "--readQueueNums", type=int, default=8)
    parser.add_argument("-w", "--writeQueueNums", type=int, default=8)
    parser.add_argument("-p", "--perm", type=int, default=6, help="2 write, 4 read, 6 both")
    parser.add_argument("-o", "--order", type=_flag, default=False, help="true or false")


def _add_delete_topic(parser: argparse.ArgumentParser) -> None:
    _add_topic(parser)
    parser.add_argument("-c", "--clusterName", required=True)


def _add_topic_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--clusterModel", action="store_true", help="with the clusters")


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is not true or false")
    return text.lower() == "true"


def _list_topics(remote: Remote, options: argparse.Namespace) -> None:
    answer = remote.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    topics = sorted(TopicList.decode(answer.body).topic_list)
    if not options.clusterModel:
        print_table(("topic",), [(topic,) for topic in topics], options.json)
        return
    rows = [
        (broker.cluster, topic) for topic in topics for broker in remote.route(topic).broker_datas
    ]
    print_table(("cluster", "topic"), sorted(set(rows)), options.json)


def _print_route(remote: Remote, options: argparse.Namespace) -> None:
    route = remote.route(options.topic)
    if options.json:
        print(json.dumps(json.loads(route.encode(standard=True)), indent=1))
        return
    addresses = {data.broker_name: data.broker_addrs for data in route.broker_datas}
    rows = [
        (
            queue.broker_name,
            queue.read_queue_nums,
            queue.write_queue_nums,
            queue.perm,
            " ".join(f"{i}={a}" for i, a in sorted(addresses.get(queue.broker_name, {}).items())),
        )
        for queue in route.queue_datas
    ]
    print_table(("broker", "read", "write", "perm", "addresses"), rows, False)


def _print_status(remote: Remote, options: argparse.Namespace) -> None:
    rows: list[tuple[object, ...]] = []
    for broker in remote.route(options.topic).broker_datas:
        address = broker.broker_addrs.get(MASTER_ID) or min(broker.broker_addrs.values())
        answer = remote.call(
            address,
            RequestCode.GET_TOPIC_STATS_INFO,
            GetTopicStatsInfoRequestHeader(topic=options.topic),
        )
        for queue, offsets in TopicStatsTable.decode(answer.body).offset_table.items():
            updated = _local_time(offsets.last_update_timestamp)
            rows.append(
                (queue.broker_name, queue.queue_id, offsets.min_offset, offsets.max_offset, updated)
            )
    rows.sort(key=lambda row: (str(row[0]), int(str(row[1]))))
    print_table(("broker", "queue", "min_offset", "max_offset", "last_update"), rows, options.json)


def _local_time(timestamp_ms: int) -> str:
    if timestamp_ms <= 0:
        return ""
    moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")


def _update_topic(remote: Remote, options: argparse.Namespace) -> None:
    header = CreateTopicRequestHeader(
        topic=options.topic,
        default_topic="TBW102",
        read_queue_nums=options.readQueueNums,
        write_queue_nums=options.writeQueueNums,
        perm=options.perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=options.order,
    )
    brokers = chosen_brokers(remote, options)
    for address in brokers:
        remote.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    rows = [(address, options.topic, options.readQueueNums) for address in brokers]
    print_table(("broker", "topic", "queues"), rows, options.json)


def _delete_topic(remote: Remote, options: argparse.Namespace) -> None:
    for address in remote.masters(options.clusterName):
        header = DeleteTopicRequestHeader(topic=options.topic)
        remote.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
    for address in remote.name_servers:
        remote.call(
            address,
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            DeleteTopicFromNamesrvRequestHeader(topic=options.topic),
        )
    print_table(("deleted",), [(options.topic,)], options.json)


SUBCOMMANDS: Final = {
    "topicList": Subcommand("all topics", _add_topic_list, _list_topics),
    "topicRoute": Subcommand("brokers and queues of a topic", _add_topic, _print_route),
    "topicStatus": Subcommand("offsets of the queues of a topic", _add_topic, _print_status),
    "updateTopic": Subcommand("create or change a topic", _add_update_topic, _update_topic),
    "deleteTopic": Subcommand("delete a topic", _add_delete_topic, _delete_topic),
}
