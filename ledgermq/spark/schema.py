"""The columns of a message, as Spark and as Arrow know them, and what a write may hold.

A read gives the columns that its option `columns` names, in that order; a schema of the user's own
may leave out columns, but not rename or retype them. Absent tags and keys are null.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ledgermq.spark.errors import RowSchemaError

_PROPERTIES: Final = MapType(StringType(), StringType())

COLUMNS: Final[Mapping[str, DataType]] = {
    "topic": StringType(),
    "queueId": IntegerType(),
    "brokerName": StringType(),
    "queueOffset": LongType(),
    # The id that its producer gave it, else the one that tells where it is stored.
    "msgId": StringType(),
    # When it was sent, by the producer's clock.
    "bornTimestamp": TimestampType(),
    # When it was stored, by the broker's clock.
    "storeTimestamp": TimestampType(),
    "tags": StringType(),
    # Words with blanks between.
    "keys": StringType(),
    # Decompressed.
    "body": BinaryType(),
    # All of them, also tags and keys: the dearest column.
    "properties": _PROPERTIES,
    "reconsumeTimes": IntegerType(),
}
COLUMN_NAMES: Final = tuple(COLUMNS)
# What a body says, and why it says nothing; only where the option `value.format` is set.
VALUE: Final = "value"
VALUE_ERROR: Final = "value_error"
BODY: Final = "body"
VALUE_COLUMNS: Final = (VALUE, VALUE_ERROR)
# By the column of what is sent, for errors.
_CONTENT_TYPES: Final = {"body": "binary or string", VALUE: "of the type of value.format"}

# What a row to be sent may have; each with the types that it may have.
_WRITABLE: Final[Mapping[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "body": (BinaryType(), StringType()),
    "keys": (StringType(),),
    "tags": (StringType(),),
    "properties": (_PROPERTIES,),
    # Rows with the same one go to one queue, in their order.
    "queueKey": (StringType(),),
    # The row's id, where the writer is not to make one.
    "rowId": (StringType(),),
}


def chosen_columns(text: str, others: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Reads the value of the option `columns`: names in any case, or ``all``.

    Args:
        text: of the option.
        others: columns that may be named besides those of a message; ``all`` leaves them out.

    Raises:
        ValueError: there is no such column.
    """
    if text.lower() == "all":
        return COLUMN_NAMES
    by_lower = {name.lower(): name for name in (*COLUMN_NAMES, *others)}
    try:
        found = [by_lower[part.strip().lower()] for part in text.split(",")]
    except KeyError as error:
        raise ValueError(text) from error
    return tuple(dict.fromkeys(found))


def message_schema(columns: tuple[str, ...], value: DataType | None = None) -> StructType:
    """Returns the schema of a read of some columns.

    Args:
        columns: their names.
        value: the type of values; None when there is no such column.
    """
    types = _types(value)
    return StructType([StructField(name, types[name]) for name in columns])


def check_read_schema(schema: StructType, value: DataType | None = None) -> None:
    """Checks the schema that a read is to give.

    Args:
        schema: of the read.
        value: the type of values; None when there is no such column.

    Raises:
        RowSchemaError: a column is none of a message's, or has another type.
    """
    types = _types(value)
    for field in schema.fields:
        expected = types.get(field.name)
        if expected is None:
            raise RowSchemaError(field.name, "unknown", ", ".join(types))
        if field.dataType != expected:
            raise RowSchemaError(field.name, field.dataType.simpleString(), expected.simpleString())


def _types(value: DataType | None) -> Mapping[str, DataType]:
    if value is None:
        return COLUMNS
    return {**COLUMNS, VALUE: value, VALUE_ERROR: StringType()}


def check_write_schema(schema: StructType, *, has_topic_option: bool, content: str) -> None:
    """Checks the columns of the rows that are to be sent.

    Args:
        schema: of the rows.
        has_topic_option: whether rows need no topic of their own.
        content: the column of what is sent, `body` or `value`; the type of values is not looked
            at here.

    Raises:
        RowSchemaError: a column is unknown, missing, or has a type that it may not have.
    """
    known = [content if name == "body" else name for name in _WRITABLE]
    for field in schema.fields:
        if field.name not in known:
            raise RowSchemaError(field.name, "unknown", ", ".join(known))
        if field.name == VALUE:
            continue
        allowed = _WRITABLE[field.name]
        found = field.dataType.simpleString()
        if found not in [kind.simpleString() for kind in allowed]:
            names = " or ".join(kind.simpleString() for kind in allowed)
            raise RowSchemaError(field.name, found, names)
    names_found = schema.fieldNames()
    if content not in names_found:
        raise RowSchemaError(content, "missing", _CONTENT_TYPES[content])
    if "topic" not in names_found and not has_topic_option:
        raise RowSchemaError("topic", "missing", "a column topic, or the option topic")
