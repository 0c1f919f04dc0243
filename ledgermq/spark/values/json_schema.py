"""Schemas of JSON as types of Spark: JSON Schema, or what ``df.schema.json()`` gives.

    JSON Schema                        Spark
    object with properties             struct, in their order
    object with additionalProperties   map<string, T>
    array with items                   array<T>
    string, integer, number, boolean   string, bigint, double, boolean
    T or null (type list, anyOf)       T
    anything else                      string, which holds the JSON text

Every column may be null. Of a JSON Schema the types count, nothing else: neither `required` nor
bounds nor formats. A `$ref` leads to the same document; types that hold themselves are refused.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from ledgermq.spark.errors import ValueSchemaError
from ledgermq.spark.values.json_text import depth_of
from ledgermq.spark.values.limits import JSON_DEPTH_MAX, TypeBudget

_SIMPLE: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
}
# Types of Spark's own that JSON text stands for.
_OF_SPARK: Final = frozenset(
    ("struct", "array", "map", "string", "binary", "boolean", "byte", "short", "integer", "long")
    + ("float", "double", "decimal", "date", "timestamp", "timestamp_ntz")
)


def parsed(name: str, data: bytes) -> Any:
    """Returns the JSON document of a schema, which is not deeper than what is read here.

    Raises:
        ValueSchemaError: it is no JSON, or too deep.
    """
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueSchemaError(name, f"it is no JSON: {error}") from error
    if depth_of(data, JSON_DEPTH_MAX) > JSON_DEPTH_MAX:
        raise ValueSchemaError(name, f"it is deeper than {JSON_DEPTH_MAX} levels")
    return document


def type_of_json_schema(name: str, data: bytes) -> DataType:
    """Returns the type of Spark for a schema.

    Args:
        name: of the schema, for errors.
        data: its text.

    Raises:
        ValueSchemaError: it is no schema of either kind, too large, or it holds itself.
    """
    document = parsed(name, data)
    if not isinstance(document, dict):
        raise ValueSchemaError(name, f"it is a {type(document).__name__}, not an object")
    if document.get("type") == "struct" and isinstance(document.get("fields"), list):
        return _of_spark(name, document)
    return _Walk(name, document).type_of(document, "value", 0, ())


def _of_spark(name: str, document: Any) -> DataType:
    try:
        kind = StructType.fromJson(document)
    # PySpark lets through whatever its reading of a wrong document ends with.
    except Exception as error:
        raise ValueSchemaError(name, f"it is no schema of Spark: {error!r}") from error
    _check(kind, "value", 0, TypeBudget(name))
    return kind


def _check(kind: DataType, path: str, depth: int, budget: TypeBudget) -> None:
    budget.take(path, depth)
    if kind.typeName() not in _OF_SPARK:
        reason = f"{path} is {kind.simpleString()}; allowed: {', '.join(sorted(_OF_SPARK))}"
        raise ValueSchemaError(budget.schema, reason)
    match kind:
        case StructType():
            if not kind.fields:
                raise ValueSchemaError(budget.schema, f"{path} has no fields")
            for field in kind.fields:
                # What a body leaves out is null, whatever the schema says.
                field.nullable = True
                _check(field.dataType, f"{path}.{field.name}", depth + 1, budget)
        case ArrayType():
            kind.containsNull = True
            _check(kind.elementType, f"{path}[]", depth + 1, budget)
        case MapType():
            kind.valueContainsNull = True
            if not isinstance(kind.keyType, StringType):
                found = kind.keyType.simpleString()
                raise ValueSchemaError(budget.schema, f"keys of {path} are {found}, not string")
            _check(kind.valueType, f"{path}[]", depth + 1, budget)


class _Walk:
    """One pass over a JSON Schema."""

    def __init__(self, name: str, root: dict[str, Any]) -> None:
        self._name = name
        self._root = root
        self._budget = TypeBudget(name)

    def type_of(self, node: Any, path: str, depth: int, above: tuple[str, ...]) -> DataType:
        """Returns the type of one schema in the document.

        Args:
            node: the schema.
            path: of the column, for errors.
            depth: types around it.
            above: references that led here.
        """
        self._budget.take(path, depth)
        node, above = self._followed(node, path, above)
        node, above = self._without_null(node, path, above)
        kind = node.get("type")
        if isinstance(kind, list):
            named = [one for one in kind if one != "null"]
            kind = named[0] if len(named) == 1 else None
        properties, items = node.get("properties"), node.get("items")
        others = node.get("additionalProperties")
        if kind in (None, "object") and isinstance(properties, dict) and properties:
            return StructType(
                [
                    StructField(key, self.type_of(inner, f"{path}.{key}", depth + 1, above))
                    for key, inner in properties.items()
                ]
            )
        if kind == "object" and isinstance(others, dict) and others:
            return MapType(StringType(), self.type_of(others, f"{path}[]", depth + 1, above))
        if kind == "array" and isinstance(items, dict) and items:
            return ArrayType(self.type_of(items, f"{path}[]", depth + 1, above))
        return _SIMPLE.get(kind, StringType()) if isinstance(kind, str) else StringType()

    def _followed(
        self, node: Any, path: str, above: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Follows references until a schema is found."""
        while isinstance(node, dict) and "$ref" in node:
            reference = node["$ref"]
            if reference in above:
                raise ValueSchemaError(self._name, f"{path} holds itself, by {reference!r}")
            above = (*above, reference)
            node = self._target(reference, path)
        # `true` and `false` are schemas, too: of anything, and of nothing.
        return (node if isinstance(node, dict) else {}), above

    def _target(self, reference: Any, path: str) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            reason = f"{path} refers to {reference!r}; only #/... of the same document is read"
            raise ValueSchemaError(self._name, reason)
        node: Any = self._root
        for step in filter(None, reference[1:].split("/")):
            step = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or step not in node:
                raise ValueSchemaError(self._name, f"{path} refers to {reference!r}: not there")
            node = node[step]
        return node

    def _without_null(
        self, node: dict[str, Any], path: str, above: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Returns the one choice of a schema that is not null, when there are no others."""
        choices = node.get("anyOf") or node.get("oneOf")
        if isinstance(choices, list) and "type" not in node and "properties" not in node:
            left = [one for one in choices if one != {"type": "null"}]
            if len(left) == 1:
                return self._followed(left[0], path, above)
        return node, above
