"""Rows as messages: what of a row is sent, what is left out, and which rows are refused.

Properties that clients and brokers set by themselves (delivery, retries, transactions, delays) are
left out, so that rows that were read can be written again. Tags and keys come from their columns,
or from the properties where those have no column.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ledgermq.client import Message
from ledgermq.protocol import properties as names
from ledgermq.spark.errors import RowError

# Of one delivery, not of the message.
LEFT_OUT: Final = names.OF_A_DELIVERY | {names.UNIQUE_KEY}


class RowMessage(NamedTuple):
    """A row, ready to be sent."""

    message: Message
    # Messages with the same one keep their order; None for any queue.
    queue_key: str | None


def messages_of(
    batch: Any, topic: str | None, row_id_property: str, id_prefix: str, first_row: int
) -> Iterator[RowMessage]:
    """Yields the messages of a record batch, in the order of its rows.

    Args:
        batch: its columns were checked with the schema of the write.
        topic: of rows that name none.
        row_id_property: the property that holds the row's id.
        id_prefix: what the ids of all rows of a task begin with.
        first_row: number of the batch's first row in its task.

    Raises:
        RowError: a row has no topic or no body.
    """
    count = batch.num_rows
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    nothing: list[Any] = [None] * count
    topics = columns.get("topic", nothing)
    keys = columns.get("keys", nothing)
    tags = columns.get("tags", nothing)
    properties = columns.get("properties", nothing)
    queue_keys = columns.get("queueKey", nothing)
    row_ids = columns.get("rowId", nothing)
    for i, body in enumerate(columns["body"]):
        row_id = row_ids[i] or f"{id_prefix}-{first_row + i}"
        row_topic = topics[i] or topic
        if row_topic is None:
            raise RowError(row_id, "it has no topic, and the option topic is not set")
        if body is None:
            raise RowError(row_id, "its body is null")
        given = {name: value for name, value in properties[i] or () if name not in LEFT_OUT}
        from_block = (given.pop(names.KEYS, None), given.pop(names.TAGS, None))
        given = {name: value for name, value in given.items() if value}
        given[row_id_property] = row_id
        message = Message(
            row_topic,
            body.encode() if isinstance(body, str) else body,
            keys=(keys[i] if "keys" in columns else from_block[0]) or "",
            tags=(tags[i] if "tags" in columns else from_block[1]) or "",
            properties=given,
        )
        yield RowMessage(message, queue_keys[i])
