"""``ledgermq admin SUBCOMMAND``: the commands of mqadmin, with its names and flags.

``ledgermq admin SUBCOMMAND --help`` tells the flags of one.
"""

from __future__ import annotations

import argparse
from typing import Final

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
from ledgermq.cli.cluster_command import EXPECTED
from ledgermq.cli.failure import failed
from ledgermq.cli.remote import Remote
from ledgermq.cli.security import read_security
from ledgermq.cli.settings import add_name_servers
from ledgermq.cli.subcommand import hyphened

# A subcommand lives in the file of its noun.
NOUNS: Final = {
    "clusters": cluster,
    "topics": topic,
    "groups": group,
    "offsets": offsets,
    "messages": message,
    "messages of a queue": queue_message,
    "brokers and their clients": status,
    "leaders of groups of brokers": leader,
    "name servers": name_server,
    "access control": access,
    "traces": trace,
    "exports": export,
    "monitoring": monitor,
}


def _listed() -> str:
    """Returns all subcommands with what they do, by noun."""
    lines = []
    for title, noun in NOUNS.items():
        lines.append(f"{title}:")
        lines += [f"  {name:<26} {entry.summary}" for name, entry in noun.SUBCOMMANDS.items()]
        lines.append("")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands of all nouns; each has a name with hyphens, too."""
    # Without help of their own they stay out of argparse's list, which knows no groups.
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    parser.epilog = _listed()
    for noun in NOUNS.values():
        for name, entry in noun.SUBCOMMANDS.items():
            subcommand = subcommands.add_parser(
                name, aliases=[hyphened(name)], description=entry.summary
            )
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
    except EXPECTED as error:
        return failed(error, as_json=options.json)
    return 0
