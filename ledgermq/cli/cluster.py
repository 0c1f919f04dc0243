"""Admin commands about clusters: clusterList."""

from __future__ import annotations

import argparse
from typing import Final

from ledgermq.cli.moments import local_time
from ledgermq.cli.remote import Remote
from ledgermq.cli.subcommand import Subcommand
from ledgermq.cli.table import print_table
from ledgermq.client.admin import BrokerState

_COLUMNS: Final = (
    "cluster", "broker", "id", "address", "role", "version", "in_tps", "out_tps", "messages",
    "earliest",
)  # fmt: skip


def _add_cluster_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", "--moreStats", "--more-stats", action="store_true", help="accepted; all is shown"
    )


def _list_clusters(remote: Remote, options: argparse.Namespace) -> None:
    rows = [
        (one.cluster, one.broker_name, one.broker_id, one.address, *_figures(one))
        for one in remote.admin.brokers()
    ]
    print_table(_COLUMNS, rows, options.json)


def _figures(one: BrokerState) -> tuple[object, ...]:
    """Figures of one broker; a broker that does not answer is shown as such, not left out."""
    if one.failure is not None:
        return ("", "unreachable", "", "", "", "")
    figures = one.figures
    return (
        (figures.get("ledgerRole") or ("master" if one.is_leader else "slave")).lower(),
        figures.get("brokerVersionDesc", ""),
        one.rate("putTps"),
        one.rate("getTransferedTps"),
        figures.get("msgPutTotalTodayNow", ""),
        local_time(one.number("earliestMessageTimeStamp")),
    )


SUBCOMMANDS: Final = {
    "clusterList": Subcommand("brokers of all clusters", _add_cluster_list, _list_clusters),
}
