"""Messages as admin commands print them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from ledgermq.cli.bodies import cell_of, fields_of
from ledgermq.cli.moments import local_time
from ledgermq.cli.subcommand import Row
from ledgermq.cli.table import print_table
from ledgermq.client import ReceivedMessage

_COLUMNS: Final = ("topic", "broker", "queue", "offset", "stored", "id", "keys", "tags", "body")


def print_messages(messages: Iterable[ReceivedMessage], as_json: bool) -> None:
    """Prints a row for each message; as JSON with all of the body and the properties."""
    found = list(messages)
    if as_json:
        print(json.dumps([_document(message) for message in found], indent=1))
        return
    print_table(_COLUMNS, [_row(message) for message in found], False)


def _row(message: ReceivedMessage) -> Row:
    message = message.legible()
    return (
        message.record.topic,
        message.queue.broker_name,
        message.queue.queue_id,
        message.queue_offset,
        local_time(message.store_timestamp_ms),
        message.message_id,
        message.keys,
        message.tags,
        cell_of(message.body),
    )


def _document(message: ReceivedMessage) -> dict[str, object]:
    message = message.legible()
    return {
        **dict(zip(_COLUMNS[:-1], _row(message)[:-1], strict=True)),
        "offset_id": message.offset_message_id,
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
        **fields_of(message.body),
    }
