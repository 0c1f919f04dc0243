"""Admin commands about consumer groups: their settings, how far they are, their members' state."""

from __future__ import annotations

import argparse
from typing import Final

from ledgermq.cli.remote import AdminError, Remote
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
    order,
)
from ledgermq.cli.table import print_table
from ledgermq.cli.topic import delete_topic
from ledgermq.protocol.bodies import (
    ConsumerConnection,
    ConsumeStats,
    ConsumeStatsList,
    SubscriptionGroupConfig,
    SubscriptionGroupTableBody,
)
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.protocol.route import TopicList
from ledgermq.protocol.running_info import ConsumerRunningInfo

_QUEUE_COLUMNS: Final = (
    "topic", "broker", "queue", "broker_offset", "consumer_offset", "behind",
)  # fmt: skip
_SETTING_COLUMNS: Final = (
    "broker", "group", "enabled", "from_min", "broadcast", "retry_queues", "retries", "notified",
)  # fmt: skip
_STATE_COLUMNS: Final = (
    "client", "topic", "broker", "queue", "next_offset", "cached", "locked",
)  # fmt: skip
_GROUP: Final = Flag("-g", "groupName", "the consumer group")


def consume_stats(remote: Remote, group: str) -> list[tuple[str, ConsumeStats]]:
    """Where a group stands, by broker that was asked."""
    header = GetConsumeStatsRequestHeader(consumer_group=group)
    return [
        (
            address,
            ConsumeStats.decode(remote.call(address, RequestCode.GET_CONSUME_STATS, header).body),
        )
        for address in brokers_of(remote, RETRY_PREFIX + group)
    ]


def _print_progress(remote: Remote, options: argparse.Namespace) -> None:
    if options.groupName:
        print_table(_QUEUE_COLUMNS, _queue_rows(remote, options.groupName), options.json)
        return
    answer = remote.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    rows: list[Row] = []
    for topic in sorted(TopicList.decode(answer.body).topic_list):
        if topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            try:
                behind: object = sum(int(str(row[5])) for row in _queue_rows(remote, group))
            except AdminError as error:
                behind = str(error)
            rows.append((group, behind))
    print_table(("group", "behind"), rows, options.json)


def _queue_rows(remote: Remote, group: str) -> list[Row]:
    rows: list[Row] = []
    for _, stats in consume_stats(remote, group):
        for queue, offsets in sorted(stats.offset_table.items()):
            behind = offsets.broker_offset - offsets.consumer_offset
            place = (queue.topic, queue.broker_name, queue.queue_id)
            rows.append((*place, offsets.broker_offset, offsets.consumer_offset, behind))
    return rows


def _group_settings(options: argparse.Namespace) -> bytes:
    return SubscriptionGroupConfig(
        group_name=options.groupName,
        consume_enable=options.consumeEnable,
        consume_from_min_enable=options.consumeFromMinEnable,
        consume_broadcast_enable=options.consumeBroadcastEnable,
        retry_queue_nums=options.retryQueueNums,
        retry_max_times=options.retryMaxTimes,
        broker_id=options.brokerId,
        which_broker_when_consume_slowly=options.whichBrokerWhenConsumeSlowly,
        notify_consumer_ids_changed_enable=options.notifyConsumerIdsChanged,
    ).encode()


def _add_delete_group(parser: argparse.ArgumentParser) -> None:
    add_broker_or_cluster(parser)
    flag_adder(_GROUP, Flag("-r", "removeOffset", "offsets too: true or false", False, boolean))(
        parser
    )


def _delete_group(remote: Remote, options: argparse.Namespace) -> None:
    group = options.groupName
    header = DeleteSubscriptionGroupRequestHeader(
        group_name=group, remove_offset=options.removeOffset
    )
    brokers = chosen_brokers(remote, options)
    for address in brokers:
        remote.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    if options.clusterName:
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            delete_topic(remote, options.clusterName, prefix + group)
    print_table(("done", "group"), [(address, group) for address in brokers], options.json)


def _print_settings(remote: Remote, options: argparse.Namespace) -> None:
    rows: list[Row] = []
    info = remote.clusters()
    for address in sorted({a for name in info.cluster_addr_table for a in remote.masters(name)}):
        answer = remote.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = SubscriptionGroupTableBody.decode(answer.body).subscription_group_table
        found = table.get(options.groupName)
        if found is not None:
            rows.append(
                (
                    address,
                    found.group_name,
                    found.consume_enable,
                    found.consume_from_min_enable,
                    found.consume_broadcast_enable,
                    found.retry_queue_nums,
                    found.retry_max_times,
                    found.notify_consumer_ids_changed_enable,
                )
            )
    if not rows:
        raise AdminError(f"no broker has a group {options.groupName!r}")
    print_table(_SETTING_COLUMNS, rows, options.json)


def _print_state(remote: Remote, options: argparse.Namespace) -> None:
    group = options.consumerGroup
    listed = GetConsumerConnectionListRequestHeader(consumer_group=group)
    rows: list[Row] = []
    asked: set[str] = set()
    for broker in brokers_of(remote, RETRY_PREFIX + group):
        answer = remote.call(broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, listed)
        for client in ConsumerConnection.decode(answer.body).connection_set:
            if options.clientId not in (None, client.client_id) or client.client_id in asked:
                continue
            # Members are connected to all brokers; each is asked once.
            asked.add(client.client_id)
            header = GetConsumerRunningInfoRequestHeader(
                consumer_group=group, client_id=client.client_id
            )
            told = remote.call(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            rows += _state_rows(client.client_id, ConsumerRunningInfo.decode(told.body))
    if not asked:
        raise AdminError(f"no member {options.clientId!r} in group {group!r}")
    print_table(_STATE_COLUMNS, rows, options.json)


def _state_rows(client_id: str, info: ConsumerRunningInfo) -> list[Row]:
    return [
        (
            client_id,
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            state.commit_offset,
            state.cached_msg_count,
            state.locked,
        )
        for queue, state in sorted(info.mq_table.items())
    ]


SUBCOMMANDS: Final = {
    "consumerProgress": Subcommand(
        "how far groups have consumed",
        flag_adder(Flag("-g", "groupName", "one group by queue; default: all groups", None)),
        _print_progress,
    ),
    "brokerConsumeStats": order(
        "how far all groups of a broker are behind",
        BROKERS,
        RequestCode.GET_BROKER_CONSUME_STATS,
        Flag("-o", "order", "groups of ordered topics only: true or false", False, boolean),
        header=lambda options: GetConsumeStatsInBrokerHeader(is_order=options.order),
        columns=("group", "topic", "broker", "queue", "broker_offset", "consumer_offset", "behind"),
        rows=lambda answer: [
            (
                group,
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                ends.broker_offset,
                ends.consumer_offset,
                ends.broker_offset - ends.consumer_offset,
            )
            for entry in ConsumeStatsList.decode(answer.body).consume_stats_list
            for group, stats in entry.items()
            for one in stats
            for queue, ends in sorted(one.offset_table.items())
        ],
    ),
    "consumerStatus": Subcommand(
        "what the members of a group tell about their queues",
        flag_adder(
            Flag("-g", "consumerGroup", "the consumer group"),
            Flag("-i", "clientId", "one member; default: all", None),
        ),
        _print_state,
    ),
    "getConsumerConfig": Subcommand(
        "settings of a group on all brokers", flag_adder(_GROUP), _print_settings
    ),
    "updateSubGroup": order(
        "create or change a group",
        BROKERS,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        _GROUP,
        Flag("-s", "consumeEnable", "may consume: true or false", True, boolean),
        Flag("-m", "consumeFromMinEnable", "true or false", False, boolean),
        Flag("-d", "consumeBroadcastEnable", "may broadcast: true or false", False, boolean),
        Flag("-q", "retryQueueNums", "queues of its retry topic", 1, int),
        Flag("-r", "retryMaxTimes", "deliveries before the dead letters", 16, int),
        Flag("-i", "brokerId", "whom to read from", 0, int),
        Flag("-w", "whichBrokerWhenConsumeSlowly", "whom a slow reader reads from", 1, int),
        Flag("-a", "notifyConsumerIdsChanged", "tell members: true or false", True, boolean),
        body=_group_settings,
    ),
    "deleteSubGroup": Subcommand(
        "delete a group; with -c its retry topic and dead letters too",
        _add_delete_group,
        _delete_group,
    ),
}
