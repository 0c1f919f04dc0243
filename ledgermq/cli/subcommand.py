"""What an admin subcommand is made of: its flags, and what it does with them.

Most subcommands send one request to each of some servers and print a row or more for each answer;
`order` makes such a one from a line of a table. Names of flags are mqadmin's.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ledgermq.cli.remote import Remote
from ledgermq.cli.table import print_table
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers.header import Header
from ledgermq.protocol.route import MASTER_ID

AddArguments = Callable[[argparse.ArgumentParser], object]
# One row of a table.
Row = tuple[object, ...]


class Subcommand(NamedTuple):
    """Its one-line summary, its flags, and what it does."""

    summary: str
    add_arguments: AddArguments
    carry_out: Callable[[Remote, argparse.Namespace], None]


class Flag(NamedTuple):
    """One option; without a default it must be given."""

    short: str
    name: str
    help: str
    default: Any = ...
    kind: Callable[[str], Any] = str


class Place(NamedTuple):
    """Servers that a request goes to: the flags that name them, and their addresses."""

    add_arguments: AddArguments
    addresses: Callable[[Remote, argparse.Namespace], Sequence[str]]


def hyphened(name: str) -> str:
    """Returns a name of mqadmin as other commands spell it: `brokerAddr` as `broker-addr`."""
    return re.sub("[A-Z]+", lambda found: f"-{found[0].lower()}", name)


def flag_words(short: str, name: str) -> list[str]:
    """Returns the spellings of a flag: short, as mqadmin has it, and with hyphens."""
    return list(dict.fromkeys((short, f"--{name}", f"--{hyphened(name)}")))


def flag_adder(*flags: Flag) -> AddArguments:
    """Returns a function that declares flags."""

    def add(parser: argparse.ArgumentParser) -> None:
        for flag in flags:
            words = flag_words(flag.short, flag.name)
            if flag.default is ...:
                parser.add_argument(*words, required=True, type=flag.kind, help=flag.help)
            else:
                parser.add_argument(*words, default=flag.default, type=flag.kind, help=flag.help)

    return add


def boolean(text: str) -> bool:
    """Reads the value of a flag that is true or false."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is not true or false")
    return text.lower() == "true"


def add_broker_or_cluster(parser: argparse.ArgumentParser) -> None:
    """Declares -b and -c, of which exactly one must be given."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(*flag_words("-b", "brokerAddr"), help="host:port of one broker")
    where.add_argument(*flag_words("-c", "clusterName"), help="all masters of a cluster")


def chosen_brokers(remote: Remote, options: argparse.Namespace) -> list[str]:
    """The broker given by -b, or the masters of the cluster given by -c."""
    if options.brokerAddr:
        return [options.brokerAddr]
    return remote.masters(options.clusterName)


def brokers_by_name(remote: Remote, topic: str) -> dict[str, str]:
    """The brokers of a topic that take writes, or one of each group that has none now."""
    return {
        broker.broker_name: broker.broker_addrs.get(MASTER_ID) or min(broker.broker_addrs.values())
        for broker in remote.route(topic).broker_datas
        if broker.broker_addrs
    }


def brokers_of(remote: Remote, topic: str) -> list[str]:
    """Their addresses."""
    return list(brokers_by_name(remote, topic).values())


BROKERS: Final = Place(add_broker_or_cluster, chosen_brokers)
NAME_SERVERS: Final = Place(flag_adder(), lambda remote, options: remote.name_servers)


def order(
    summary: str,
    place: Place,
    code: int,
    *flags: Flag,
    header: Callable[[argparse.Namespace], Header] | None = None,
    body: Callable[[argparse.Namespace], bytes] | None = None,
    columns: Sequence[str] = (),
    rows: Callable[[RemotingCommand], Sequence[Row]] = lambda answer: [()],
) -> Subcommand:
    """Makes a subcommand that sends one request to each of some servers.

    Args:
        summary: what it does, in a line.
        place: the servers.
        code: of the request.
        flags: those of the request.
        header: makes its header; None sends none.
        body: makes its body.
        columns: titles of what an answer tells; its server stands before them.
        rows: reads an answer.
    """

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        place.add_arguments(parser)
        flag_adder(*flags)(parser)

    def carry_out(remote: Remote, options: argparse.Namespace) -> None:
        table: list[Row] = []
        head = None if header is None else header(options)
        content = b"" if body is None else body(options)
        for address in place.addresses(remote, options):
            answer = remote.call(address, code, head, content)
            table += [(address, *row) for row in rows(answer)]
        print_table(("server" if columns else "done", *columns), table, options.json)

    return Subcommand(summary, add_arguments, carry_out)
