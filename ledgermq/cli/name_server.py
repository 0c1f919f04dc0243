"""Admin commands for the name servers: key-value configuration, settings, permissions."""

from __future__ import annotations

import argparse
from typing import Final

from ledgermq.cli.remote import AdminError, Remote
from ledgermq.cli.status import settings_rows
from ledgermq.cli.subcommand import NAME_SERVERS, Flag, Subcommand, flag_adder, order
from ledgermq.cli.table import print_table
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

# Namespace of the order of topics: topic -> "brokerName:queues;...".
_ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
_NAMESPACE: Final = Flag("-s", "namespace", "where the key lies")
_KEY: Final = Flag("-k", "key", "name of the item")
_BROKER_NAME: Final = Flag("-b", "brokerName", "name of the broker group")


def _order_topic(remote: Remote, options: argparse.Namespace) -> None:
    topic, value = options.topic, options.orderConf
    if options.method == "get":
        header = GetKVConfigRequestHeader(namespace=_ORDER_NAMESPACE, key=topic)
        answer = remote.ask_name_server(RequestCode.GET_KV_CONFIG, header)
        value = answer.header(GetKVConfigResponseHeader).value or ""
    elif options.method == "put":
        if not value:
            raise AdminError("-v must be given with -m put, as broker-a:8;broker-b:4")
        put = PutKVConfigRequestHeader(namespace=_ORDER_NAMESPACE, key=topic, value=value)
        for address in remote.name_servers:
            remote.call(address, RequestCode.PUT_KV_CONFIG, put)
    elif options.method == "delete":
        value = ""
        delete = DeleteKVConfigRequestHeader(namespace=_ORDER_NAMESPACE, key=topic)
        for address in remote.name_servers:
            remote.call(address, RequestCode.DELETE_KV_CONFIG, delete)
    else:
        raise AdminError(f"-m is {options.method!r}; allowed: get, put, delete")
    print_table(("topic", "order"), [(topic, value)], options.json)


SUBCOMMANDS: Final = {
    "getNamesrvConfig": order(
        "settings of the name servers",
        NAME_SERVERS,
        RequestCode.GET_NAMESRV_CONFIG,
        columns=("key", "value"),
        rows=settings_rows,
    ),
    "updateNamesrvConfig": order(
        "change a setting of the name servers until their next start",
        NAME_SERVERS,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        Flag("-k", "key", "its name"),
        Flag("-v", "value", "its value"),
        body=lambda options: f"{options.key}={options.value}\n".encode(),
    ),
    "updateKvConfig": order(
        "set an item of the key-value configuration",
        NAME_SERVERS,
        RequestCode.PUT_KV_CONFIG,
        _NAMESPACE,
        _KEY,
        Flag("-v", "value", "its value"),
        header=lambda options: PutKVConfigRequestHeader(
            namespace=options.namespace, key=options.key, value=options.value
        ),
    ),
    "deleteKvConfig": order(
        "delete an item of the key-value configuration",
        NAME_SERVERS,
        RequestCode.DELETE_KV_CONFIG,
        _NAMESPACE,
        _KEY,
        header=lambda options: DeleteKVConfigRequestHeader(
            namespace=options.namespace, key=options.key
        ),
    ),
    "updateOrderConf": Subcommand(
        "look at or change the order of a topic",
        flag_adder(
            Flag("-t", "topic", "its name"),
            Flag("-m", "method", "get, put or delete"),
            Flag("-v", "orderConf", "broker-a:8;broker-b:4", None),
        ),
        _order_topic,
    ),
    "wipeWritePerm": order(
        "take the write permission of all topics of a broker",
        NAME_SERVERS,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        _BROKER_NAME,
        header=lambda options: WipeWritePermOfBrokerRequestHeader(broker_name=options.brokerName),
        columns=("topics",),
        rows=lambda answer: [
            (answer.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count,)
        ],
    ),
    "addWritePerm": order(
        "give the write permission of all topics of a broker back",
        NAME_SERVERS,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        _BROKER_NAME,
        header=lambda options: AddWritePermOfBrokerRequestHeader(broker_name=options.brokerName),
        columns=("topics",),
        rows=lambda answer: [(answer.header(AddWritePermOfBrokerResponseHeader).add_topic_count,)],
    ),
}
