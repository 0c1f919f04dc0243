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
from ledgermq.protocol.bodies import (
    ConsumerConnection,
    ConsumeStatsList,
    SubscriptionGroupConfig,
)
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
)
from ledgermq.protocol.names import RETRY_PREFIX
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


def _print_progress(remote: Remote, options: argparse.Namespace) -> None:
    if options.groupName:
        rows: list[Row] = [
            (
                one.queue.topic,
                one.queue.broker_name,
                one.queue.queue_id,
                one.end_offset,
                one.committed_offset,
                one.end_offset - one.committed_offset,
            )
            for one in remote.admin.lag(options.groupName).queues
        ]
        print_table(_QUEUE_COLUMNS, rows, options.json)
        return
    found = remote.admin.groups(with_members=False)
    print_table(("group", "behind"), [(one.name, one.behind) for one in found], options.json)


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
    if options.clusterName:
        remote.admin.delete_group(
            group, cluster=options.clusterName, with_offsets=options.removeOffset
        )
    else:
        header = DeleteSubscriptionGroupRequestHeader(
            group_name=group, remove_offset=options.removeOffset
        )
        remote.call(options.brokerAddr, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    rows = [(address, group) for address in chosen_brokers(remote, options)]
    print_table(("done", "group"), rows, options.json)


def _print_settings(remote: Remote, options: argparse.Namespace) -> None:
    rows: list[Row] = [
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
        for address, found in remote.admin.group_settings(options.groupName).items()
    ]
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
