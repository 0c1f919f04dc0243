"""What an admin subcommand is made of."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from ledgermq.cli.remote import Remote


class Subcommand(NamedTuple):
    """Its one-line summary, its flags, and what it does."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    carry_out: Callable[[Remote, argparse.Namespace], None]


def add_broker_or_cluster(parser: argparse.ArgumentParser) -> None:
    """Declares -b and -c, of which exactly one must be given."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("-b", "--brokerAddr", help="host:port of one broker")
    where.add_argument("-c", "--clusterName", help="all masters of a cluster")


def chosen_brokers(remote: Remote, options: argparse.Namespace) -> list[str]:
    """The broker given by -b, or the masters of the cluster given by -c."""
    if options.brokerAddr:
        return [options.brokerAddr]
    return remote.masters(options.clusterName)
