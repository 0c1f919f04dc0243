"""``ledgermq admin SUBCOMMAND``: the commands of mqadmin, with its names and flags.

``ledgermq admin SUBCOMMAND --help`` tells the flags of one.
"""

from __future__ import annotations

import argparse

from ledgermq.cli import (
    access,
    cluster,
    export,
    group,
    leader,
    message,
    monitor,
    name_server,
    offsets,
    queue_message,
    security,
    status,
    topic,
    trace,
)
from ledgermq.cli.failure import fail
from ledgermq.cli.remote import AdminError, Remote
from ledgermq.cli.security import SecurityError, read_security
from ledgermq.cli.settings import add_name_servers
from ledgermq.protocol.errors import RemoteProtocolError

# A subcommand lives in the file of its noun.
NOUNS = (
    cluster,
    topic,
    group,
    offsets,
    message,
    queue_message,
    status,
    leader,
    name_server,
    access,
    trace,
    export,
    monitor,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands of all nouns."""
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    for noun in NOUNS:
        for name, entry in noun.SUBCOMMANDS.items():
            subcommand = subcommands.add_parser(name, help=entry.summary, description=entry.summary)
            add_name_servers(subcommand)
            subcommand.add_argument("--json", action="store_true", help="JSON instead of a table")
            security.add_arguments(subcommand)
            entry.add_arguments(subcommand)
            subcommand.set_defaults(carry_out=entry.carry_out)


def run(options: argparse.Namespace) -> int:
    """Carries out one subcommand; returns the exit code."""
    try:
        with Remote(options.namesrvAddr, security=read_security(options)) as remote:
            options.carry_out(remote, options)
    except (AdminError, RemoteProtocolError, SecurityError) as error:
        return fail(str(error))
    return 0
