"""Admin commands that change where a group goes on: resetOffsetByTime, skipAccumulatedMessage,
cloneGroupOffset.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from ledgermq.cli.moments import FORMS, moment_ms
from ledgermq.cli.remote import Remote
from ledgermq.cli.subcommand import Flag, Row, Subcommand, boolean, flag_adder
from ledgermq.cli.table import print_table
from ledgermq.client.admin import OffsetChange

_COLUMNS: Final = ("topic", "broker", "queue", "offset")
_GROUP: Final = Flag("-g", "group", "the consumer group")
_TOPIC: Final = Flag("-t", "topic", "the topic")
_FORCE: Final = Flag("-f", "force", "also forward: true or false", True, boolean)


def _reset(remote: Remote, options: argparse.Namespace) -> None:
    to = moment_ms(options.timestamp)
    change = remote.admin.reset_offsets(options.group, options.topic, to, forward=options.force)
    _print_offsets(change, options.json)


def _skip(remote: Remote, options: argparse.Namespace) -> None:
    change = remote.admin.reset_offsets(options.group, options.topic, "last", forward=options.force)
    _print_offsets(change, options.json)


def _clone(remote: Remote, options: argparse.Namespace) -> None:
    change = remote.admin.copy_offsets(options.srcGroup, options.destGroup, options.topic)
    _print_offsets(change, options.json)


def _print_offsets(changes: Sequence[OffsetChange], as_json: bool) -> None:
    rows: list[Row] = [
        (one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.after) for one in changes
    ]
    print_table(_COLUMNS, rows, as_json)


SUBCOMMANDS: Final = {
    "resetOffsetByTime": Subcommand(
        "make a group go on at the messages of a time",
        flag_adder(
            _GROUP,
            _TOPIC,
            Flag("-s", "timestamp", FORMS),
            _FORCE,
        ),
        _reset,
    ),
    "skipAccumulatedMessage": Subcommand(
        "make a group go on at the end of a topic", flag_adder(_GROUP, _TOPIC, _FORCE), _skip
    ),
    "cloneGroupOffset": Subcommand(
        "give a group the offsets of another",
        flag_adder(
            Flag("-s", "srcGroup", "whose offsets"),
            Flag("-d", "destGroup", "who gets them"),
            _TOPIC,
        ),
        _clone,
    ),
}
