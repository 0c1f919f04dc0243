"""Admin command about the traces that stock clients write: queryMsgTraceById."""

from __future__ import annotations

import argparse
import socket
from typing import Final

from ledgermq.cli.message import messages_of_key
from ledgermq.cli.moments import local_time
from ledgermq.cli.remote import AdminError, Remote
from ledgermq.cli.subcommand import Flag, Subcommand, flag_adder
from ledgermq.cli.table import print_table
from ledgermq.client import ReceivedMessage
from ledgermq.client.trace_reading import TRACE_TOPIC, read_traces

_COLUMNS: Final = ("type", "group", "client", "time", "ms", "status")


def _print_traces(remote: Remote, options: argparse.Namespace) -> None:
    found = messages_of_key(remote, options.traceTopic, options.msgId, False, 0)
    rows = [
        row
        for _, message in found
        for row in read_traces(options.msgId, message.body, _born_host(message))
    ]
    if not rows:
        raise AdminError(f"no trace of the message {options.msgId} in {options.traceTopic}")
    rows.sort(key=lambda row: row.time_ms)
    table = [
        (row.kind, row.group, row.client, local_time(row.time_ms), row.cost_ms or 0, row.status)
        for row in rows
    ]
    print_table(_COLUMNS, table, options.json)


def _born_host(message: ReceivedMessage) -> str:
    address, _ = message.record.born_host
    family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, address)


SUBCOMMANDS: Final = {
    "queryMsgTraceById": Subcommand(
        "the way of a message, by the traces of its clients",
        flag_adder(
            Flag("-i", "msgId", "the id that its producer gave it"),
            Flag("-t", "traceTopic", "where the traces are", TRACE_TOPIC),
        ),
        _print_traces,
    ),
}
