"""Admin commands about brokers and their clients: brokerStatus, getBrokerConfig,
updateBrokerConfig, cleanExpiredCQ, cleanUnusedTopic, deleteExpiredCommitLog, consumerConnection,
producerConnection.
"""

from __future__ import annotations

import argparse
from typing import Final

from ledgermq.cli.remote import Remote
from ledgermq.cli.subcommand import (
    BROKERS,
    Flag,
    Row,
    Subcommand,
    brokers_of,
    flag_adder,
    order,
)
from ledgermq.cli.table import print_table
from ledgermq.protocol.bodies import ClientConnection, ConsumerConnection, ProducerConnection
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from ledgermq.protocol.names import RETRY_PREFIX
from ledgermq.protocol.properties_file import parse_properties
from ledgermq.protocol.route import KVTable

_VALUE_COLUMNS: Final = ("key", "value")
_CLIENT_COLUMNS: Final = ("broker", "client", "address", "language", "version")


def read_settings(answer: RemotingCommand) -> dict[str, str]:
    """The settings that a server tells."""
    return parse_properties(answer.body.decode("utf-8", "replace"))


def settings_rows(answer: RemotingCommand) -> list[Row]:
    """The same, sorted by key."""
    return sorted(read_settings(answer).items())


def _counted_rows(answer: RemotingCommand) -> list[Row]:
    return sorted(KVTable.decode(answer.body).table.items())


def _print_consumers(remote: Remote, options: argparse.Namespace) -> None:
    group = options.consumerGroup
    header = GetConsumerConnectionListRequestHeader(consumer_group=group)
    rows: list[Row] = []
    for broker in brokers_of(remote, RETRY_PREFIX + group):
        answer = remote.call(broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        rows += _client_rows(broker, ConsumerConnection.decode(answer.body).connection_set)
    print_table(_CLIENT_COLUMNS, rows, options.json)


def _print_producers(remote: Remote, options: argparse.Namespace) -> None:
    header = GetProducerConnectionListRequestHeader(producer_group=options.producerGroup)
    rows: list[Row] = []
    for broker in brokers_of(remote, options.topic):
        answer = remote.call(broker, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        rows += _client_rows(broker, ProducerConnection.decode(answer.body).connection_set)
    print_table(_CLIENT_COLUMNS, rows, options.json)


def _client_rows(broker: str, clients: list[ClientConnection]) -> list[Row]:
    return [(broker, one.client_id, one.client_addr, one.language, one.version) for one in clients]


SUBCOMMANDS: Final = {
    "brokerStatus": order(
        "what brokers count",
        BROKERS,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        columns=_VALUE_COLUMNS,
        rows=_counted_rows,
    ),
    "getBrokerConfig": order(
        "settings in force",
        BROKERS,
        RequestCode.GET_BROKER_CONFIG,
        columns=_VALUE_COLUMNS,
        rows=settings_rows,
    ),
    "updateBrokerConfig": order(
        "change a setting until the next start",
        BROKERS,
        RequestCode.UPDATE_BROKER_CONFIG,
        Flag("-k", "key", "its name"),
        Flag("-v", "value", "its value"),
        body=lambda options: f"{options.key}={options.value}\n".encode(),
    ),
    "cleanExpiredCQ": order(
        "cut what the log no longer holds out of the consume queues",
        BROKERS,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    ),
    "cleanUnusedTopic": order(
        "delete the queues of topics that are configured no more",
        BROKERS,
        RequestCode.CLEAN_UNUSED_TOPIC,
    ),
    "deleteExpiredCommitLog": order(
        "delete files of the log that are old enough now, at any hour",
        BROKERS,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
    ),
    "consumerConnection": Subcommand(
        "members of a group",
        flag_adder(Flag("-g", "consumerGroup", "the consumer group")),
        _print_consumers,
    ),
    "producerConnection": Subcommand(
        "producers of a group",
        flag_adder(
            Flag("-g", "producerGroup", "the producer group"),
            Flag("-t", "topic", "a topic that it sends to"),
        ),
        _print_producers,
    ),
}
