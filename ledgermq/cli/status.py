"""Admin commands about brokers and their clients: brokerStatus, getBrokerConfig,
consumerConnection, producerConnection.
"""

from __future__ import annotations

import argparse
from typing import Final

from ledgermq.cli.group import RETRY_PREFIX
from ledgermq.cli.remote import Remote
from ledgermq.cli.subcommand import Subcommand, add_broker_or_cluster, chosen_brokers
from ledgermq.cli.table import print_table
from ledgermq.protocol.bodies import ClientConnection, ConsumerConnection, ProducerConnection
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from ledgermq.protocol.properties_file import parse_properties
from ledgermq.protocol.route import MASTER_ID, KVTable

_VALUE_COLUMNS: Final = ("broker", "key", "value")
_CLIENT_COLUMNS: Final = ("broker", "client", "address", "language", "version")


def _print_status(remote: Remote, options: argparse.Namespace) -> None:
    rows: list[tuple[object, ...]] = []
    for broker in chosen_brokers(remote, options):
        answer = remote.call(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        rows += [(broker, *one) for one in sorted(KVTable.decode(answer.body).table.items())]
    print_table(_VALUE_COLUMNS, rows, options.json)


def _print_config(remote: Remote, options: argparse.Namespace) -> None:
    rows: list[tuple[object, ...]] = []
    for broker in chosen_brokers(remote, options):
        answer = remote.call(broker, RequestCode.GET_BROKER_CONFIG)
        settings = parse_properties(answer.body.decode("utf-8", "replace"))
        rows += [(broker, *one) for one in sorted(settings.items())]
    print_table(_VALUE_COLUMNS, rows, options.json)


def _add_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-g", "--consumerGroup", required=True, help="the consumer group")


def _print_consumers(remote: Remote, options: argparse.Namespace) -> None:
    group = options.consumerGroup
    header = GetConsumerConnectionListRequestHeader(consumer_group=group)
    rows: list[tuple[object, ...]] = []
    for broker in _masters(remote, RETRY_PREFIX + group):
        answer = remote.call(broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        clients = ConsumerConnection.decode(answer.body).connection_set
        rows += _rows(broker, clients)
    print_table(_CLIENT_COLUMNS, rows, options.json)


def _add_producers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-g", "--producerGroup", required=True, help="the producer group")
    parser.add_argument("-t", "--topic", required=True, help="a topic that it sends to")


def _print_producers(remote: Remote, options: argparse.Namespace) -> None:
    header = GetProducerConnectionListRequestHeader(producer_group=options.producerGroup)
    rows: list[tuple[object, ...]] = []
    for broker in _masters(remote, options.topic):
        answer = remote.call(broker, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        clients = ProducerConnection.decode(answer.body).connection_set
        rows += _rows(broker, clients)
    print_table(_CLIENT_COLUMNS, rows, options.json)


def _masters(remote: Remote, topic: str) -> list[str]:
    """The brokers of a topic that take writes, or one of each group that has none."""
    addresses = [broker.broker_addrs for broker in remote.route(topic).broker_datas]
    return [known.get(MASTER_ID) or min(known.values()) for known in addresses if known]


def _rows(broker: str, clients: list[ClientConnection]) -> list[tuple[object, ...]]:
    return [(broker, one.client_id, one.client_addr, one.language, one.version) for one in clients]


SUBCOMMANDS: Final = {
    "brokerStatus": Subcommand("what brokers count", add_broker_or_cluster, _print_status),
    "getBrokerConfig": Subcommand("settings in force", add_broker_or_cluster, _print_config),
    "consumerConnection": Subcommand("members of a group", _add_group, _print_consumers),
    "producerConnection": Subcommand("producers of a group", _add_producers, _print_producers),
}
