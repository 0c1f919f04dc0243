"""Messages as admin commands print them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from ledgermq.cli.moments import local_time
from ledgermq.cli.subcommand import Row
from ledgermq.cli.table import print_table
from ledgermq.client import ReceivedMessage

_COLUMNS: Final = ("topic", "broker", "queue", "offset", "stored", "id", "keys", "tags", "body")
_BODY_CHARS_MAX: Final = 60


def print_messages(messages: Iterable[ReceivedMessage], as_json: bool) -> None:
    """Prints a row for each message; as JSON with all of the body and the properties."""
    found = list(messages)
    if as_json:
        print(json.dumps([_document(message) for message in found], indent=1))
        return
    print_table(_COLUMNS, [_row(message) for message in found], False)


def _row(message: ReceivedMessage) -> Row:
    text = message.body.decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else "." for char in text[:_BODY_CHARS_MAX])
    return (
        message.record.topic,
        message.queue.broker_name,
        message.queue.queue_id,
        message.queue_offset,
        local_time(message.store_timestamp_ms),
        message.message_id,
        message.keys,
        message.tags,
        shown if len(text) <= _BODY_CHARS_MAX else f"{shown}...",
    )


def _document(message: ReceivedMessage) -> dict[str, object]:
    return {
        **dict(zip(_COLUMNS, _row(message), strict=True)),
        "offset_id": message.offset_message_id,
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
        "body": message.body.decode("utf-8", "backslashreplace"),
    }
