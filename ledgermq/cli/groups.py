"""``ledgermq groups``: the consumer groups of a cluster, or all about one of them.

    ledgermq groups                       the list, with members and lag
    ledgermq groups show GROUP            members, queues, settings, what is wrong
    ledgermq groups reset GROUP TOPIC --to first|last|TIME [--yes]
    ledgermq groups delete GROUP --yes

reset shows what would change, and changes it with --yes.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from ledgermq.cli.cluster_command import add_cluster_arguments, moment, run_with_admin
from ledgermq.cli.failure import fail
from ledgermq.cli.moments import FORMS, local_time
from ledgermq.cli.table import print_table
from ledgermq.client.admin import GroupDescription
from ledgermq.client.blocking import AdminClient
from ledgermq.protocol.plain_text import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_cluster_arguments(parser)
    parser.add_argument("--to", type=_target, help=f"reset: first, last, {FORMS}")
    parser.add_argument(
        "--only-back",
        action="store_true",
        help="reset: leave the queues alone where messages would be left out",
    )
    parser.add_argument("--yes", action="store_true", help="reset, delete: do it")
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=("list", "show", "reset", "delete"),
        help="default: list",
    )
    parser.add_argument("words", nargs="*", metavar="GROUP [TOPIC]", help="their names")


def _target(text: str) -> str | int:
    return text if text in ("first", "last") else moment(text)


def run(options: argparse.Namespace) -> int:
    """Lists, shows or changes; returns the exit code."""
    wanted = {"list": 0, "show": 1, "delete": 1, "reset": 2}[options.action]
    if len(options.words) != wanted or (options.action == "reset" and options.to is None):
        takes = ("no name", "a group", "a group, a topic and --to")[wanted]
        fail(f"{options.action} takes {takes}", as_json=options.json)
        return 2
    options.group, options.topic = [*options.words, None, None][:2]
    if options.action == "delete" and not options.yes:
        return fail(
            f"deletes group {options.group} with its offsets and dead letters: say --yes",
            as_json=options.json,
        )
    return run_with_admin(options, _WORK[options.action])


def _list(admin: AdminClient, options: argparse.Namespace) -> None:
    found = admin.groups()
    if options.json:
        rows: list[tuple[Any, ...]] = [
            (one.name, one.member_count, one.behind, one.topics) for one in found
        ]
    else:
        rows = [(one.name, one.member_count, one.behind, ", ".join(one.topics)) for one in found]
    print_table(("group", "members", "behind", "topics"), rows, options.json)


def _show(admin: AdminClient, options: argparse.Namespace) -> None:
    told = admin.describe_group(options.group)
    if options.json:
        print(json.dumps(document(told), indent=1))
        return
    head = (
        f"{told.name}: {told.mode or 'offline'}, {len(told.members)} members,"
        f" {told.lag.behind} messages behind, {told.dead_letter_count} dead letters"
    )
    for line in (head, *(f"problem: {problem}" for problem in told.problems)):
        print(escaped(line))
    owners = {one.queue: member for member in told.members for one in member.queues}
    print()
    rows = [
        (
            one.queue.topic,
            one.queue.broker_name,
            one.queue.queue_id,
            one.committed_offset,
            one.end_offset,
            one.behind,
            owners[one.queue].client_id if one.queue in owners else "",
        )
        for one in told.lag.queues
    ]
    columns = ("topic", "broker", "queue", "consumed", "end", "behind", "member")
    print_table(columns, rows, False)
    print()
    members = [
        (one.client_id, one.address, one.language, len(one.queues), one.failure or "")
        for one in told.members
    ]
    print_table(("member", "address", "language", "queues", "failure"), members, False)


def document(told: GroupDescription) -> dict[str, Any]:
    """Returns a group as plain values for JSON."""
    return {
        "group": told.name,
        "mode": told.mode,
        "behind": told.lag.behind,
        "rate": told.lag.rate,
        "dead_letters": told.dead_letter_count,
        "problems": told.problems,
        "queues": [
            {
                "topic": one.queue.topic,
                "broker": one.queue.broker_name,
                "queue": one.queue.queue_id,
                "consumed": one.committed_offset,
                "end": one.end_offset,
                "behind": one.behind,
                "consumed_time": local_time(one.consumed_ms) or None,
            }
            for one in told.lag.queues
        ],
        "members": [
            {
                "client": one.client_id,
                "address": one.address,
                "language": one.language,
                "subscriptions": dict(one.subscriptions) if one.subscriptions else None,
                "queues": [
                    f"{held.queue.topic}/{held.queue.broker_name}/{held.queue.queue_id}"
                    for held in one.queues
                ],
                "failure": one.failure,
            }
            for one in told.members
        ],
        "settings": {
            broker: {
                "enabled": one.consume_enable,
                "retries": one.retry_max_times,
                "retry_queues": one.retry_queue_nums,
                "broadcast": one.consume_broadcast_enable,
            }
            for broker, one in told.settings.items()
        },
    }


def _reset(admin: AdminClient, options: argparse.Namespace) -> None:
    change = admin.reset_offsets if options.yes else admin.preview_reset
    changes = change(options.group, options.topic, options.to, forward=not options.only_back)
    rows = [
        (
            one.queue.topic,
            one.queue.broker_name,
            one.queue.queue_id,
            "" if one.before is None else one.before,
            one.after,
            one.repeated_count,
        )
        for one in changes
    ]
    columns = ("topic", "broker", "queue", "before", "after", "again")
    if options.json:
        print_table(columns, rows, True)
        return
    shown = [(*row[:-1], max(row[-1], 0), max(-row[-1], 0)) for row in rows]
    print_table((*columns, "skipped"), shown, False)
    print(f"\n{options.group} goes on there" if options.yes else "\nnothing is changed: say --yes")


def _delete(admin: AdminClient, options: argparse.Namespace) -> None:
    admin.lag(options.group)
    admin.delete_group(options.group)
    print_table(("deleted",), [(options.group,)], options.json)


_WORK = {"list": _list, "show": _show, "reset": _reset, "delete": _delete}
