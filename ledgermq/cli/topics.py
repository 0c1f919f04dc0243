"""``ledgermq topics``: the topics of a cluster, or all about one of them.

ledgermq topics                       the list; --all with those of the system
ledgermq topics show TOPIC            brokers, queues, groups
ledgermq topics create TOPIC [--queues N] [--permission 6]
ledgermq topics update TOPIC [--queues N] [--permission 4]
ledgermq topics delete TOPIC --yes
"""

from __future__ import annotations

import argparse
import json

from ledgermq.cli.cluster_command import add_cluster_arguments, count, run_with_admin
from ledgermq.cli.failure import fail
from ledgermq.cli.moments import local_time
from ledgermq.cli.table import print_table
from ledgermq.client.blocking import AdminClient
from ledgermq.protocol.plain_text import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_cluster_arguments(parser)
    parser.add_argument("--all", action="store_true", help="list: retry topics and others, too")
    parser.add_argument("--queues", type=count, metavar="N", help="create, update: on each broker")
    parser.add_argument(
        "--permission", type=int, choices=(2, 4, 6), help="create, update: 2 write, 4 read, 6 both"
    )
    parser.add_argument(
        "--attributes", default="", help="create, update: such as +message.type=FIFO"
    )
    parser.add_argument("--cluster", help="create, delete: in this cluster only")
    parser.add_argument("--yes", action="store_true", help="delete: do it")
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=("list", "show", "create", "update", "delete"),
        help="default: list",
    )
    parser.add_argument("words", nargs="*", metavar="TOPIC", help="its name")


def run(options: argparse.Namespace) -> int:
    """Lists, shows or changes; returns the exit code."""
    if len(options.words) != (0 if options.action == "list" else 1):
        return _misused(options)
    options.topic = next(iter(options.words), None)
    if options.action == "delete" and not options.yes:
        return fail(
            f"deletes topic {options.topic} with all its messages: say --yes", as_json=options.json
        )
    return run_with_admin(options, _WORK[options.action])


def _misused(options: argparse.Namespace) -> int:
    text = "list takes no name" if options.action == "list" else f"{options.action} takes a topic"
    fail(text, as_json=options.json)
    return 2


def _list(admin: AdminClient, options: argparse.Namespace) -> None:
    rows = [(one.name, one.kind) for one in admin.topics() if options.all or one.kind == "normal"]
    print_table(("topic", "kind"), rows, options.json)


def _show(admin: AdminClient, options: argparse.Namespace) -> None:
    told = admin.describe_topic(options.topic)
    if options.json:
        print(
            json.dumps(
                {
                    "topic": told.name,
                    "kind": told.kind,
                    "messages": told.message_count,
                    "groups": told.groups,
                    "brokers": [
                        {
                            "cluster": one.cluster,
                            "broker": one.broker_name,
                            "leader": one.leader,
                            "read_queues": one.read_queue_count,
                            "write_queues": one.write_queue_count,
                            "permission": one.permission,
                        }
                        for one in told.brokers
                    ],
                    "queues": [
                        {
                            "broker": one.queue.broker_name,
                            "queue": one.queue.queue_id,
                            "min_offset": one.min_offset,
                            "max_offset": one.max_offset,
                            "updated": local_time(one.updated_ms) or None,
                        }
                        for one in told.queues
                    ],
                },
                indent=1,
            )
        )
        return
    groups = ", ".join(told.groups) or "none"
    head = f"{told.name}: {told.kind}, {told.message_count} messages, groups: {groups}"
    print(f"{escaped(head)}\n")
    rows = [
        (one.broker_name, one.leader or "none now", one.read_queue_count, one.write_queue_count)
        + ({2: "write", 4: "read", 6: "read, write"}.get(one.permission, str(one.permission)),)
        for one in told.brokers
    ]
    print_table(("broker", "leader", "read", "write", "permission"), rows, False)
    print()
    queues = [
        (
            one.queue.broker_name,
            one.queue.queue_id,
            one.min_offset,
            one.max_offset,
            one.message_count,
            local_time(one.updated_ms),
        )
        for one in told.queues
    ]
    print_table(("broker", "queue", "min", "max", "messages", "updated"), queues, False)


def _create(admin: AdminClient, options: argparse.Namespace) -> None:
    admin.create_topic(
        options.topic,
        queue_count=options.queues or 8,
        permission=options.permission or 6,
        attributes=options.attributes,
        cluster=options.cluster,
    )
    print_table(("created",), [(options.topic,)], options.json)


def _update(admin: AdminClient, options: argparse.Namespace) -> None:
    admin.update_topic(
        options.topic,
        queue_count=options.queues,
        permission=options.permission,
        attributes=options.attributes,
    )
    print_table(("updated",), [(options.topic,)], options.json)


def _delete(admin: AdminClient, options: argparse.Namespace) -> None:
    admin.describe_topic(options.topic)
    admin.delete_topic(options.topic, cluster=options.cluster)
    print_table(("deleted",), [(options.topic,)], options.json)


_WORK = {
    "list": _list,
    "show": _show,
    "create": _create,
    "update": _update,
    "delete": _delete,
}
