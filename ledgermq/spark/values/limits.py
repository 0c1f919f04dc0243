"""How much a schema and a body may ask for, and what is said of what asks for more.

A body of a few bytes can stand for much: a list of records without fields, or of records of many
fields that are all left out. What a body may unfold to is therefore bounded before it is decoded,
by its size and by the widest item that the schema lets it repeat.
"""

from dataclasses import dataclass
from typing import Any, Final

from ledgermq.spark.errors import ValueSchemaError

# Of a schema's text, or of a file's descriptors.
SCHEMA_BYTES_MAX: Final = 1024 * 1024
# Of lists and objects in JSON, schemas included.
JSON_DEPTH_MAX: Final = 64
# Of structs, arrays and maps in a type.
TYPE_DEPTH_MAX: Final = 32
# Fields of a type, those of its inner structs included.
TYPE_FIELDS_MAX: Final = 2_000
# What the value of one body may unfold to, in slots of 8 bytes: a gigabyte.
SLOTS_MAX: Final = 128 * 1024 * 1024
# So many fields of all rows together are in one batch.
BATCH_FIELDS_MAX: Final = 4 * 1024 * 1024
# Characters of a reason; more of a hostile body is not repeated.
REASON_CHARS_MAX: Final = 300
# Smallest and largest second of a year from 1 to 9999, since 1970.
FIRST_SECOND: Final = -62_135_596_800
LAST_SECOND: Final = 253_402_300_799


class BadValueError(Exception):
    """A body is no value of the schema, or a value cannot be encoded; its text is the reason."""


def shortened(text: str, chars_max: int = REASON_CHARS_MAX) -> str:
    """Returns a text of at most so many characters."""
    return text if len(text) <= chars_max else text[: chars_max - 3] + "..."


@dataclass(slots=True)
class TypeBudget:
    """Counts the fields of a type while it is made, so that no schema unfolds without end."""

    schema: str
    count: int = 0

    def take(self, path: str, depth: int) -> None:
        """Counts one field.

        Args:
            path: of the field, for the error.
            depth: structs, arrays and maps around it.

        Raises:
            ValueSchemaError: there are too many, or they are too deep.
        """
        self.count += 1
        if self.count > TYPE_FIELDS_MAX:
            raise ValueSchemaError(self.schema, f"more than {TYPE_FIELDS_MAX} fields, at {path}")
        if depth > TYPE_DEPTH_MAX:
            raise ValueSchemaError(self.schema, f"deeper than {TYPE_DEPTH_MAX} levels, at {path}")


def body_bytes_max(slots_per_byte: float) -> int:
    """Returns the size of the largest body whose value stays within SLOTS_MAX."""
    return int(SLOTS_MAX / max(slots_per_byte, 1.0))


def item_nodes(kind: Any) -> int:
    """Returns how many values the widest item of an array or map in a Spark type has, itself and
    all that it always brings; 0 without arrays and maps.
    """
    name = kind.typeName()
    if name == "struct":
        return max((item_nodes(field.dataType) for field in kind.fields), default=0)
    if name == "array":
        return max(_nodes(kind.elementType), item_nodes(kind.elementType))
    if name == "map":
        return max(1 + _nodes(kind.valueType), item_nodes(kind.valueType))
    return 0


def _nodes(kind: Any) -> int:
    if kind.typeName() == "struct":
        return 3 + sum(_nodes(field.dataType) for field in kind.fields)
    return 1


def leaf_count(kind: Any) -> int:
    """Returns how many fields a row of a Spark type has, arrays and maps as one each."""
    if kind.typeName() == "struct":
        return 1 + sum(leaf_count(field.dataType) for field in kind.fields)
    return 1
