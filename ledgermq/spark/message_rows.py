"""Rows as messages: what of a row is sent, what is left out, and which rows are refused.

Properties that clients and brokers set by themselves (delivery, retries, transactions, delays) are
left out, so that rows that were read can be written again. Tags and keys come from their columns,
or from the properties where those have no column.
"""

import hashlib
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ledgermq.client import Message
from ledgermq.protocol import properties as names
from ledgermq.spark.errors import RowError
from ledgermq.spark.schema import VALUE
from ledgermq.spark.values.limits import BadValueError
from ledgermq.spark.values.rows import BodyWriter

# Of one delivery, not of the message.
LEFT_OUT: Final = names.OF_A_DELIVERY | {names.UNIQUE_KEY}


# Rows of different content that a task counts, by a digest of 16 bytes: about 91 MB in all.
COUNTED_MAX: Final = 1_000_000


class RowNames:
    """Gives each row of a task an id that is the same when the task runs again, in any order.

    The id is made of what the row says and of how many rows of the same content came before it. So
    it never stands for two contents, as a position would when a shuffle brings the rows in another
    order; and rows that are equal get different ids, of which it does not matter who has which.
    """

    def __init__(self, prefix: str, counted_max: int = COUNTED_MAX) -> None:
        """Takes what the ids of all rows of the task begin with.

        Args:
            prefix: the write, or query and batch, and the partition.
            counted_max: contents that are counted. A row of a later one is named by content and
                position: still by no other row's id, but by another one if the order changes.
        """
        self._prefix = prefix
        self._counted_max = counted_max
        self._count_of: dict[bytes, int] = {}

    def place(self, position: int) -> str:
        """Names a row of this try by its position, for what is said of one that is refused."""
        return f"{self._prefix}-{position}"

    def name(self, message: Message, queue_key: str | None, position: int) -> str:
        """Returns the id of a row: its message without an id, and its position in the task."""
        digest = _digest(message, queue_key)
        known = self._count_of.get(digest)
        if known is None and len(self._count_of) >= self._counted_max:
            return f"{self._prefix}-{digest.hex()}-at{position}"
        count = known or 0
        self._count_of[digest] = count + 1
        return f"{self._prefix}-{digest.hex()}-{count}"


def _digest(message: Message, queue_key: str | None) -> bytes:
    """Returns 16 bytes of BLAKE2b over all that is sent, each part with its length before it."""
    texts = [message.topic, message.keys, message.tags, queue_key or ""]
    for name, value in sorted(message.properties.items()):
        texts += name, value
    parts = [message.body, *(text.encode() for text in texts)]
    digest = hashlib.blake2b(struct.pack(f">{len(parts)}Q", *map(len, parts)), digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _body(content: Any, encoder: BodyWriter | None) -> bytes:
    """Returns what is sent of a row's body or value.

    Raises:
        BadValueError: there is none, or it cannot be encoded.
    """
    if content is None:
        raise BadValueError("its body is null" if encoder is None else "its value is null")
    if encoder is not None:
        return encoder.encode(content)
    body: bytes = content.encode() if isinstance(content, str) else content
    return body


class RowMessage(NamedTuple):
    """A row, ready to be sent."""

    message: Message
    # Messages with the same one keep their order; None for any queue.
    queue_key: str | None


def messages_of(
    batch: Any,
    topic: str | None,
    row_id_property: str,
    row_names: RowNames,
    first_row: int,
    encoder: BodyWriter | None = None,
) -> Iterator[RowMessage]:
    """Yields the messages of a record batch, in the order of its rows.

    Args:
        batch: its columns were checked with the schema of the write.
        topic: of rows that name none.
        row_id_property: the property that holds the row's id.
        row_names: names the rows of the task that bring no id of their own.
        first_row: position of the batch's first row in its task.
        encoder: makes bodies of the column `value`; None: there is a column `body`.

    Raises:
        RowError: a row has no topic or no body, or its value cannot be encoded.
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
    for i, content in enumerate(columns["body" if encoder is None else VALUE]):
        row_topic = topics[i] or topic
        if row_topic is None:
            where = row_ids[i] or row_names.place(first_row + i)
            raise RowError(where, "it has no topic, and the option topic is not set")
        try:
            body = _body(content, encoder)
        except BadValueError as error:
            where = row_ids[i] or row_names.place(first_row + i)
            raise RowError(where, str(error)) from error
        given = {name: value for name, value in properties[i] or () if name not in LEFT_OUT}
        from_block = (given.pop(names.KEYS, None), given.pop(names.TAGS, None))
        # Of a write before this one.
        given.pop(row_id_property, None)
        given = {name: value for name, value in given.items() if value}
        message = Message(
            row_topic,
            body,
            keys=(keys[i] if "keys" in columns else from_block[0]) or "",
            tags=(tags[i] if "tags" in columns else from_block[1]) or "",
            properties=given,
        )
        row_id = row_ids[i] or row_names.name(message, queue_keys[i], first_row + i)
        message.properties = {**given, row_id_property: row_id}
        yield RowMessage(message, queue_keys[i])
