"""The columns of a table as Arrow knows them: what Delta's and Iceberg's libraries build upon."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from ledgermq.spark.errors import TableFormatError
from ledgermq.spark.tables.files import columns_of

_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_PREFIX: Final = "property_"
# Columns that each message has a value for.
_ALWAYS_SET: Final = frozenset(
    {
        *("topic", "queueId", "brokerName", "queueOffset", "msgId", "storeTimestamp", "body"),
        *("properties", "reconsumeTimes", "date"),
    }
)


def arrow_schema(properties: Sequence[str]) -> Any:
    """Returns the schema of a table with some properties as columns."""
    columns = columns_of(properties)
    return pa.schema([(name, _TYPES[kind.simpleString()]) for name, kind in columns.items()])


def properties_of(found: Any) -> tuple[str, ...]:
    """Returns the properties that are columns of a table."""
    names = (field.name for field in found)
    return tuple(name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))


def check_columns(where: str, found: Any) -> None:
    """Checks that a table is an archive; columns of others beside ours do no harm.

    Raises:
        TableFormatError: a column is missing or has another type.
    """
    for field in arrow_schema(properties_of(found)):
        index = found.get_field_index(field.name)
        if index < 0:
            raise TableFormatError(where, f"has no column {field.name}")
        kind = found.field(index).type
        if _kind(kind) != _kind(field.type):
            raise TableFormatError(where, f"column {field.name} is {kind}, not {field.type}")


def check_takes_rows(where: str, found: Any) -> None:
    """Checks, before rows are added, that a table is an archive still, and takes all that come.

    Raises:
        TableFormatError: another engine has changed it so that it does not.
    """
    check_columns(where, found)
    for field in found:
        if not field.nullable and field.name not in _ALWAYS_SET:
            reason = f"wants a value in each row of column {field.name}, which messages may lack"
            raise TableFormatError(where, reason)


def _kind(kind: Any) -> str:
    """Returns a type without what does not matter: the width of lengths, names inside a map."""
    if pa.types.is_map(kind):
        return f"map of {_kind(kind.key_type)} and {_kind(kind.item_type)}"
    return str(kind).removeprefix("large_").removesuffix("_view")
