"""``ledgermq dlq``: the dead letters of a consumer group: messages that it gave up on.

    ledgermq dlq list GROUP [--from TIME] [--until TIME] [--all]
    ledgermq dlq show GROUP ID ...
    ledgermq dlq resend GROUP ID ... | --waiting [--rate N] [--yes]
    ledgermq dlq drop GROUP ID ... | --waiting [--yes]

An ID is a place (broker/queue/offset, as list prints it) or the id of a message. resend sends to
the topic that a message came from, with its keys, tags, properties and id; each once, however often
and by whomever it is asked for. drop notes that a message is dealt with: lists leave it out. Each
tells what became of each message; the exit code is 1 when one of them failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

from ledgermq.cli.bodies import cell_of, fields_of, shown
from ledgermq.cli.cluster_command import (
    add_cluster_arguments,
    count,
    moment,
    positive,
    run_with_admin,
)
from ledgermq.cli.failure import fail
from ledgermq.cli.moments import FORMS, local_time
from ledgermq.cli.progress import Progress
from ledgermq.cli.table import print_table
from ledgermq.client.admin import DeadLetter, DeadLetterOutcome
from ledgermq.client.blocking import AdminClient
from ledgermq.protocol.plain_text import escaped

_COLUMNS: Final = (
    "id", "state", "origin", "message", "keys", "tags", "died", "tries", "body",
)  # fmt: skip
_OUTCOME_COLUMNS: Final = ("id", "outcome", "message", "origin", "queue", "offset", "reason")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_cluster_arguments(parser)
    parser.add_argument("--from", dest="start", type=moment, metavar="TIME", help=FORMS)
    parser.add_argument("--until", dest="stop", type=moment, metavar="TIME", help="before it")
    parser.add_argument(
        "--max", type=count, default=100, metavar="N", help="so many; default: %(default)s"
    )
    parser.add_argument("--all", action="store_true", help="list: those dealt with, too")
    parser.add_argument(
        "--waiting",
        action="store_true",
        help="resend, drop: those that list shows with the same --from, --until and --max",
    )
    parser.add_argument("--rate", type=positive, metavar="N", help="messages a second at most")
    parser.add_argument("--yes", action="store_true", help="with --waiting: do it")
    parser.add_argument("action", choices=("list", "show", "resend", "drop"))
    parser.add_argument(
        "words", nargs="*", metavar="GROUP [ID ...]", help="consumer group, and ids of messages"
    )


def run(options: argparse.Namespace) -> int:
    """Lists, shows, sends again or drops; returns the exit code."""
    wrong = None
    options.group, options.ids = next(iter(options.words), ""), options.words[1:]
    if not options.group:
        wrong = f"{options.action} takes a consumer group"
    elif options.action == "list" and options.ids:
        wrong = "list takes no ID; show does"
    elif options.action == "show" and not options.ids:
        wrong = "show takes an ID, as list prints it"
    elif options.action in ("resend", "drop") and bool(options.ids) == options.waiting:
        wrong = f"{options.action} takes either IDs or --waiting"
    if wrong is not None:
        fail(wrong, as_json=options.json)
        return 2
    return run_with_admin(options, _WORK[options.action])


def _found(admin: AdminClient, options: argparse.Namespace) -> list[DeadLetter]:
    """Returns the dead letters that are asked for.

    Raises:
        NotFoundError: there are none, and no broker knows the group: its name is mistyped, perhaps.
    """
    letters = admin.dead_letters(
        options.group,
        start="first" if options.start is None else options.start,
        stop="last" if options.stop is None else options.stop,
        count_max=options.max,
        waiting_only=not options.all,
    )
    if not letters:
        admin.lag(options.group)
    return letters


def _list(admin: AdminClient, options: argparse.Namespace) -> None:
    letters = _found(admin, options)
    if options.json:
        print(json.dumps([_document(one) for one in letters], indent=1))
        return
    if not letters:
        print(f"{options.group} has no dead letters")
        return
    rows = [
        (
            one.id,
            one.state,
            one.origin or "",
            one.message_id,
            message.keys,
            message.tags,
            local_time(message.store_timestamp_ms),
            message.reconsume_times,
            cell_of(message.body),
        )
        for one in letters
        for message in (one.message.legible(),)
    ]
    print_table(_COLUMNS, rows, False)
    if len(letters) == options.max:
        print(f"\nthere may be more: --max is {options.max}", file=sys.stderr)


def _show(admin: AdminClient, options: argparse.Namespace) -> None:
    letters = [one for given in options.ids for one in admin.dead_letter(options.group, given)]
    if options.json:
        print(json.dumps([_document(one) for one in letters], indent=1))
        return
    for number, one in enumerate(letters):
        if number:
            print()
        message = one.message.legible()
        print(escaped(f"{one.id}  {one.state}"))
        for name, value in (
            ("origin", one.origin or "unknown"),
            ("message", one.message_id),
            ("born", local_time(message.born_timestamp_ms)),
            ("died", local_time(message.store_timestamp_ms)),
            ("tries", message.reconsume_times),
        ):
            print(f"  {name:<8} {escaped(str(value))}")
        for name, value in sorted(message.properties.items()):
            print(f"  property {escaped(name)} = {escaped(value)}")
        print(f"  body     {len(message.body)} bytes")
        print(shown(message.body))


def _document(one: DeadLetter) -> dict[str, Any]:
    message = one.message.legible()
    return {
        "id": one.id,
        "state": one.state,
        "group": one.group,
        "origin": one.origin,
        "message": one.message_id,
        "keys": message.keys,
        "tags": message.tags,
        "born": local_time(message.born_timestamp_ms),
        "died": local_time(message.store_timestamp_ms),
        "tries": message.reconsume_times,
        "properties": message.properties,
        **fields_of(message.body),
    }


def _resend(admin: AdminClient, options: argparse.Namespace) -> int:
    return _change(admin, options, "sent again")


def _drop(admin: AdminClient, options: argparse.Namespace) -> int:
    return _change(admin, options, "dropped")


def _change(admin: AdminClient, options: argparse.Namespace, verb: str) -> int:
    ids = options.ids
    if options.waiting:
        letters = [one for one in _found(admin, options) if one.state == "waiting"]
        ids = [one.id for one in letters]
        if not options.yes:
            size = sum(len(one.message.record.body) for one in letters)
            text = f"{len(ids)} messages of {size} bytes would be {verb}: say --yes"
            if options.json:
                print(json.dumps({"preview": ids}))
                return 0
            print(text)
            return 0
    progress = Progress(verb, len(ids))

    def told(_: DeadLetterOutcome) -> None:
        progress.add(0)

    work = admin.resend_dead_letters if options.action == "resend" else admin.drop_dead_letters
    outcomes = work(options.group, ids, rate=options.rate, on_outcome=told)
    progress.clear()
    rows = [
        (
            one.id,
            one.outcome,
            one.message_id,
            one.origin or "",
            "" if one.queue is None else f"{one.queue.broker_name}/{one.queue.queue_id}",
            "" if one.queue_offset is None else one.queue_offset,
            one.reason,
        )
        for one in outcomes
    ]
    print_table(_OUTCOME_COLUMNS, rows, options.json)
    left = sum(not one.is_done for one in outcomes)
    if left:
        text = f"{left} of {len(outcomes)} messages are not {verb}"
        return fail(text, as_json=options.json)
    return 0


_WORK = {"list": _list, "show": _show, "resend": _resend, "drop": _drop}
