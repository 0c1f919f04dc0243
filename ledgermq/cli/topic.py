"""Admin commands about topics: lists, routes, offsets, settings, and what is counted about them."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from ledgermq.cli.moments import local_time
from ledgermq.cli.remote import AdminError, RefusedError, Remote
from ledgermq.cli.subcommand import (
    BROKERS,
    Flag,
    Row,
    Subcommand,
    add_broker_or_cluster,
    boolean,
    brokers_of,
    chosen_brokers,
    flag_adder,
)
from ledgermq.cli.table import print_table
from ledgermq.client.admin.topics import topic_settings
from ledgermq.client.allocation import allocate
from ledgermq.client.routes import route_of
from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import BrokerStatsData, GroupList
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.group_keys import group_key
from ledgermq.protocol.headers import (
    CreateTopicRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from ledgermq.protocol.json_body import read_plain

_TOPIC: Final = Flag("-t", "topic", "its name")
_SETTING_COLUMNS: Final = ("broker", "topic", "read", "write", "perm")


def _list_topics(remote: Remote, options: argparse.Namespace) -> None:
    topics = _all_topics(remote)
    if not options.clusterModel:
        print_table(("topic",), [(topic,) for topic in topics], options.json)
        return
    rows = [
        (broker.cluster, topic) for topic in topics for broker in remote.route(topic).broker_datas
    ]
    print_table(("cluster", "topic"), sorted(set(rows)), options.json)


def _all_topics(remote: Remote) -> list[str]:
    return [one.name for one in remote.admin.topics()]


def _print_clusters(remote: Remote, options: argparse.Namespace) -> None:
    clusters = sorted({broker.cluster for broker in remote.route(options.topic).broker_datas})
    print_table(("cluster",), [(cluster,) for cluster in clusters], options.json)


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
    rows: list[Row] = [
        (
            one.queue.broker_name,
            one.queue.queue_id,
            one.min_offset,
            one.max_offset,
            local_time(one.updated_ms),
        )
        for one in remote.admin.describe_topic(options.topic).queues
    ]
    print_table(("broker", "queue", "min_offset", "max_offset", "last_update"), rows, options.json)


def _add_update_topic(parser: argparse.ArgumentParser) -> None:
    add_broker_or_cluster(parser)
    flag_adder(
        _TOPIC,
        Flag("-r", "readQueueNums", "queues that are read", 8, int),
        Flag("-w", "writeQueueNums", "queues that are written", 8, int),
        Flag("-p", "perm", "2 write, 4 read, 6 both", 6, int),
        Flag("-o", "order", "true or false", False, boolean),
        Flag("-a", "attributes", "changes, as +message.type=FIFO,-other.name", ""),
    )(parser)


def _update_topic(remote: Remote, options: argparse.Namespace) -> None:
    header = topic_settings(
        options.topic,
        read_queue_count=options.readQueueNums,
        write_queue_count=options.writeQueueNums,
        permission=options.perm,
        is_ordered=options.order,
        attributes=options.attributes,
    )
    rows: list[Row] = []
    for address in chosen_brokers(remote, options):
        remote.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        rows.append(_settings_row(address, header))
    print_table(_SETTING_COLUMNS, rows, options.json)


def _settings_row(address: str, header: CreateTopicRequestHeader) -> Row:
    queues = (header.read_queue_nums, header.write_queue_nums)
    return (address, header.topic, *queues, header.perm)


def _add_update_perm(parser: argparse.ArgumentParser) -> None:
    add_broker_or_cluster(parser)
    flag_adder(_TOPIC, Flag("-p", "perm", "2 write, 4 read, 6 both", kind=int))(parser)


def _update_perm(remote: Remote, options: argparse.Namespace) -> None:
    """Changes the permission alone: numbers of queues stay as the route tells them."""
    route = remote.route(options.topic)
    chosen = set(BROKERS.addresses(remote, options))
    queues = {data.broker_name: data for data in route.queue_datas}
    rows: list[Row] = []
    for broker in route.broker_datas:
        for address in sorted(chosen.intersection(broker.broker_addrs.values())):
            data = queues[broker.broker_name]
            header = topic_settings(
                options.topic,
                read_queue_count=data.read_queue_nums,
                write_queue_count=data.write_queue_nums,
                permission=options.perm,
                sys_flag=data.topic_sys_flag,
            )
            remote.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            rows.append(_settings_row(address, header))
    if not rows:
        raise AdminError(f"no broker that was chosen has topic {options.topic!r}")
    print_table(_SETTING_COLUMNS, rows, options.json)


def _delete_topic(remote: Remote, options: argparse.Namespace) -> None:
    remote.admin.delete_topic(options.topic, cluster=options.clusterName)
    print_table(("deleted",), [(options.topic,)], options.json)


def _print_statistics(remote: Remote, options: argparse.Namespace) -> None:
    topics = _all_topics(remote) if options.topic is None else [options.topic]
    rows: list[Row] = []
    for topic in topics:
        try:
            rows += _statistics_rows(remote, topic)
        except RefusedError:
            # A name that no broker serves as a topic: of a cluster, or gone meanwhile.
            if options.topic is not None:
                raise
    columns = ("topic", "group", "in_tps", "out_tps", "in_today", "out_today")
    print_table(columns, rows, options.json)


def _statistics_rows(remote: Remote, topic: str) -> list[Row]:
    rows: list[Row] = []
    for address in brokers_of(remote, topic):
        sent = counted(remote, address, "TOPIC_PUT_NUMS", topic)
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        answer = remote.call(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        for group in GroupList.decode(answer.body).group_list or [""]:
            got = counted(remote, address, "GROUP_GET_NUMS", group_key(topic, group))
            rates = (round(sent.stats_minute.tps, 2), round(got.stats_minute.tps, 2))
            rows.append((topic, group, *rates, sent.stats_day.sum, got.stats_day.sum))
    return rows


def counted(remote: Remote, address: str, name: str, key: str) -> BrokerStatsData:
    """A count of a broker; all zero for what it never counted."""
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    try:
        answer = remote.call(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
    except RefusedError:
        return BrokerStatsData()
    return BrokerStatsData.decode(answer.body)


def _print_units(remote: Remote, options: argparse.Namespace) -> None:
    header = QueryConsumeQueueRequestHeader(
        topic=options.topic, queue_id=options.queue, index=options.index, count=options.count
    )
    brokers = [options.broker] if options.broker else brokers_of(remote, options.topic)
    rows: list[Row] = []
    for address in brokers:
        answer = remote.call(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        units = read_plain(lenient_json.read(answer.body), dict[str, Any]).get("queueData") or []
        rows += [
            (address, options.index + i, unit["physicOffset"], unit["physicSize"], unit["tagsCode"])
            for i, unit in enumerate(read_plain(units, list[dict[str, Any]]))
        ]
    print_table(("broker", "offset", "physical_offset", "size", "tags_code"), rows, options.json)


def _print_allocation(remote: Remote, options: argparse.Namespace) -> None:
    queues = route_of(options.topic, remote.route(options.topic)).read_queues
    members = [member.strip() for member in options.ipList.split(",") if member.strip()]
    rows: list[Row] = [
        (member, queue.broker_name, queue.queue_id)
        for member in sorted(members)
        for queue in allocate(queues, members, member)
    ]
    print_table(("member", "broker", "queue"), rows, options.json)


SUBCOMMANDS: Final = {
    "topicList": Subcommand(
        "all topics",
        lambda parser: parser.add_argument(
            "-c", "--clusterModel", action="store_true", help="with the clusters"
        ),
        _list_topics,
    ),
    "topicRoute": Subcommand("brokers and queues of a topic", flag_adder(_TOPIC), _print_route),
    "topicStatus": Subcommand(
        "offsets of the queues of a topic", flag_adder(_TOPIC), _print_status
    ),
    "topicClusterList": Subcommand("clusters of a topic", flag_adder(_TOPIC), _print_clusters),
    "updateTopic": Subcommand("create or change a topic", _add_update_topic, _update_topic),
    "updateTopicPerm": Subcommand(
        "change the permission of a topic", _add_update_perm, _update_perm
    ),
    "deleteTopic": Subcommand(
        "delete a topic",
        flag_adder(_TOPIC, Flag("-c", "clusterName", "where")),
        _delete_topic,
    ),
    "queryCq": Subcommand(
        "units of a consume queue",
        flag_adder(
            _TOPIC,
            Flag("-q", "queue", "number of the queue", kind=int),
            Flag("-i", "index", "offset of the first unit", kind=int),
            Flag("-c", "count", "how many", 10, int),
            Flag("-b", "broker", "host:port; default: the brokers of the topic", None),
        ),
        _print_units,
    ),
    "statsAll": Subcommand(
        "messages sent and consumed by topic and group",
        flag_adder(Flag("-t", "topic", "one topic; default: all", None)),
        _print_statistics,
    ),
    "allocateMQ": Subcommand(
        "how members would share the queues of a topic",
        flag_adder(_TOPIC, Flag("-i", "ipList", "members, joined by commas")),
        _print_allocation,
    ),
}
