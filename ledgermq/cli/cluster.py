"""Admin commands about clusters: clusterList."""

from __future__ import annotations

import argparse
from typing import Final

from ledgermq.cli.remote import AdminError, Remote
from ledgermq.cli.subcommand import Subcommand
from ledgermq.cli.table import print_table
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import KVTable

_COLUMNS: Final = (
    "cluster", "broker", "id", "address", "version", "in_tps", "out_tps", "messages", "earliest",
)  # fmt: skip


def _add_cluster_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--moreStats", action="store_true", help="accepted; all is shown")


def _list_clusters(remote: Remote, options: argparse.Namespace) -> None:
    info = remote.clusters()
    rows: list[tuple[object, ...]] = []
    for cluster_name, broker_names in sorted(info.cluster_addr_table.items()):
        for broker_name in sorted(broker_names):
            addresses = info.broker_addr_table[broker_name].broker_addrs
            for broker_id, address in sorted(addresses.items()):
                state = _runtime(remote, address)
                rows.append((cluster_name, broker_name, broker_id, address, *state))
    print_table(_COLUMNS, rows, options.json)


def _runtime(remote: Remote, address: str) -> tuple[object, ...]:
    """Figures of one broker; a broker that does not answer is shown as such, not left out."""
    try:
        answer = remote.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    except AdminError:
        return ("unreachable", "", "", "", "")
    table = KVTable.decode(answer.body).table
    return (
        table.get("brokerVersionDesc", ""),
        table.get("putTps", "").split(" ")[0],
        table.get("getTransferedTps", "").split(" ")[0],
        table.get("msgPutTotalTodayNow", ""),
        table.get("earliestMessageTimeStamp", ""),
    )


SUBCOMMANDS: Final = {
    "clusterList": Subcommand("brokers of all clusters", _add_cluster_list, _list_clusters),
}
