"""``ledgermq lag [GROUP]``: how far consumer groups are behind; --watch prints it again and again.

Without a group a line for each group, else one for each queue. --over N ends with 1 when more than
N messages wait, for scripts that alarm.
"""

from __future__ import annotations

import argparse
import time

from ledgermq.cli.cluster_command import add_cluster_arguments, run_with_admin
from ledgermq.cli.failure import fail
from ledgermq.cli.live import add_live_arguments, repeat
from ledgermq.cli.moments import local_time
from ledgermq.cli.table import print_table
from ledgermq.client.admin import GroupLag
from ledgermq.client.blocking import AdminClient
from ledgermq.protocol.plain_text import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_cluster_arguments(parser)
    parser.add_argument("-t", "--topic", help="of this topic only; with a group")
    parser.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
    parser.add_argument("--over", type=int, metavar="N", help="fail when more messages wait")
    add_live_arguments(parser, interval_s=2.0)
    parser.add_argument("words", nargs="*", metavar="GROUP", help="one group; default: all")


def run(options: argparse.Namespace) -> int:
    """Prints the lag; returns the exit code."""
    if len(options.words) > 1 or (options.topic and not options.words):
        fail("give one group or none; --topic goes with a group", as_json=options.json)
        return 2
    options.group = next(iter(options.words), None)
    return run_with_admin(options, _show)


def _show(admin: AdminClient, options: argparse.Namespace) -> int:
    latest: list[GroupLag] = []

    def print_round() -> None:
        latest[:] = (
            [admin.lag(options.group, topic=options.topic)] if options.group else admin.lags()
        )
        if options.group:
            _print_queues(latest[0], options)
        else:
            _print_groups(latest, options)

    code = 0
    if options.watch or options.rounds:
        code = repeat(options, print_round)
    else:
        print_round()
    behind = sum(one.behind for one in latest)
    if options.over is not None and behind > options.over:
        return fail(f"{behind} messages wait, allowed are {options.over}", as_json=options.json)
    return code


def _print_groups(lags: list[GroupLag], options: argparse.Namespace) -> None:
    rows = []
    for lag in sorted(lags, key=lambda one: (-one.behind, one.group)):
        waiting = [one for one in lag.queues if one.behind]
        oldest = min((one.consumed_ms for one in waiting if one.consumed_ms), default=None)
        worst = max((one.behind for one in lag.queues), default=0)
        rows.append((lag.group, lag.behind, worst, round(lag.rate, 1), local_time(oldest)))
    print_table(("group", "behind", "worst_queue", "rate", "consumed_to"), rows, options.json)


def _print_queues(lag: GroupLag, options: argparse.Namespace) -> None:
    rows = [
        (
            one.queue.topic,
            one.queue.broker_name,
            one.queue.queue_id,
            one.committed_offset,
            one.end_offset,
            one.behind,
            local_time(one.consumed_ms),
        )
        for one in lag.queues
    ]
    if not options.json:
        now = local_time(time.time_ns() // 1_000_000)
        print(
            f"{escaped(lag.group)}: {lag.behind} messages behind, {lag.rate:.1f} messages/s, {now}"
        )
    columns = ("topic", "broker", "queue", "consumed", "end", "behind", "consumed_to")
    print_table(columns, rows, options.json)
