"""Schemas of Avro as types of Spark, with what makes values of one out of data of the other.

    Avro                               Spark (as its own module for Avro has it)
    int, long, float, double, boolean  int, bigint, float, double, boolean
    string, enum, uuid                 string
    bytes, fixed                       binary; with the logical type decimal, decimal
    date, timestamp-*                  date, timestamp
    local-timestamp-*                  timestamp_ntz
    time-millis, time-micros           int, bigint
    record, array, map                 struct, array, map
    T or null                          T
    int or long, float or double       bigint, double
    other unions                       struct of member0, member1, ..., of which one is not null
    null, records without fields       no column

Schemas that hold themselves are refused: the decoder would follow a body of nothing but the same
byte until the stack of its process is full. So are arrays of items that take no bytes: a few bytes
say that there are a billion of them.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ledgermq.spark.errors import ValueSchemaError
from ledgermq.spark.values.limits import BadValueError, TypeBudget

Convert = Callable[[Any], Any]

_DECIMAL_DIGITS_MAX: Final = 38
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True, frozen=True)
class AvroType:
    """What Spark calls a schema, and how data of it become values and back."""

    # None: it says nothing, and is left out.
    spark_type: DataType | None
    # Fewest bytes that data of it take.
    bytes_min: int
    # Values that data of it have in all, those of items apart.
    nodes: int
    # None: data are values as they are.
    to_value: Convert | None = None
    to_datum: Convert | None = None


def _plain(spark_type: DataType, bytes_min: int) -> AvroType:
    return AvroType(spark_type, bytes_min, 1)


def _of_time(value: Any) -> int:
    """Returns microseconds of a day; of another writer's schema also what it wrote."""
    if isinstance(value, time):
        hours = value.hour * 3600 + value.minute * 60 + value.second
        return hours * 1_000_000 + value.microsecond
    found: int = value
    return found


def _moment_of(unit_us: int, tz: Any) -> Convert:
    """Returns what makes a time of what was written with or without the logical type."""
    epoch = _EPOCH.replace(tzinfo=tz)

    def convert(value: Any) -> datetime:
        if isinstance(value, datetime):
            return value.replace(tzinfo=tz)
        return epoch + timedelta(microseconds=value * unit_us)

    return convert


def _day(value: Any) -> date:
    return value if isinstance(value, date) else _EPOCH.date() + timedelta(days=value)


_PRIMITIVES: Final[Mapping[str, AvroType]] = {
    "null": AvroType(None, 0, 1),
    "boolean": _plain(BooleanType(), 1),
    "int": _plain(IntegerType(), 1),
    "long": _plain(LongType(), 1),
    "float": _plain(FloatType(), 4),
    "double": _plain(DoubleType(), 8),
    "bytes": _plain(BinaryType(), 1),
    "string": _plain(StringType(), 1),
}
_LOGICAL: Final[Mapping[tuple[str, str], AvroType]] = {
    ("int", "date"): AvroType(DateType(), 1, 1, _day),
    ("int", "time-millis"): AvroType(
        IntegerType(), 1, 1, lambda v: _of_time(v) // 1000 if isinstance(v, time) else v
    ),
    ("long", "time-micros"): AvroType(LongType(), 1, 1, _of_time),
    ("long", "timestamp-millis"): AvroType(TimestampType(), 1, 1, _moment_of(1000, UTC)),
    ("long", "timestamp-micros"): AvroType(TimestampType(), 1, 1, _moment_of(1, UTC)),
    ("long", "local-timestamp-millis"): AvroType(TimestampNTZType(), 1, 1, _moment_of(1000, None)),
    ("long", "local-timestamp-micros"): AvroType(TimestampNTZType(), 1, 1, _moment_of(1, None)),
    ("string", "uuid"): AvroType(StringType(), 1, 1, str, lambda v: str(uuid.UUID(v))),
}


class AvroWalk:
    """One pass over a schema that fastavro has parsed: names are full, and known."""

    def __init__(self, name: str, named: Mapping[str, Any]) -> None:
        """Takes what names in the schema mean.

        Args:
            name: of the schema, for errors.
            named: records, enums and fixed types by their full names.
        """
        self._name = name
        self._named = named
        self._budget = TypeBudget(name)
        # Of all arrays and maps: the widest item, the fewest bytes of one, and the worst of both.
        self.item_nodes = 0
        self.item_bytes_min = 1
        self.nodes_per_byte = 0.0

    def type_of(
        self, schema: Any, path: str, depth: int = 0, above: tuple[str, ...] = ()
    ) -> AvroType:
        """Returns what a schema is.

        Args:
            schema: a name, a list or an object.
            path: of the column, for errors.
            depth: types around it.
            above: records around it.

        Raises:
            ValueSchemaError: it holds itself, unfolds to too much, or is not read here.
        """
        self._budget.take(path, depth)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            schema = self._named[schema]
        if isinstance(schema, list):
            return self._union(schema, path, depth, above)
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema, path, depth, above)
            case "array":
                item = self.type_of(schema["items"], f"{path}[]", depth + 1, above)
                return self._array(item, path)
            case "map":
                item = self.type_of(schema["values"], f"{path}[]", depth + 1, above)
                return self._map(item)
            case "enum":
                return _plain(StringType(), 1)
            case "fixed" | "bytes" if schema.get("logicalType") == "decimal":
                return self._decimal(schema, path)
            case "fixed":
                return _plain(BinaryType(), schema["size"])
            case str() if kind in _PRIMITIVES:
                logical = (kind, schema.get("logicalType", ""))
                return _LOGICAL.get(logical, _PRIMITIVES[kind])
        return self.type_of(kind, path, depth, above)

    def _decimal(self, schema: Any, path: str) -> AvroType:
        precision, scale = schema["precision"], schema.get("scale", 0)
        if not 0 < precision <= _DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
            reason = f"{path} is decimal({precision},{scale}); Spark has {_DECIMAL_DIGITS_MAX}"
            raise ValueSchemaError(self._name, f"{reason} digits at most")
        return _plain(DecimalType(precision, scale), schema.get("size", 1))

    def _record(self, schema: Any, path: str, depth: int, above: tuple[str, ...]) -> AvroType:
        name = schema["name"]
        if name in above:
            raise ValueSchemaError(self._name, f"{path} holds itself: record {name}")
        found = [
            (
                field["name"],
                self.type_of(field["type"], f"{path}.{field['name']}", depth + 1, (*above, name)),
            )
            for field in schema["fields"]
        ]
        kept = [
            StructField(key, inner.spark_type)
            for key, inner in found
            if inner.spark_type is not None
        ]
        reads = [(key, inner.to_value) for key, inner in found if inner.to_value is not None]
        writes = [(key, inner.to_datum) for key, inner in found if inner.to_datum is not None]
        return AvroType(
            StructType(kept) if kept else None,
            sum(inner.bytes_min for _, inner in found),
            3 + sum(inner.nodes for _, inner in found),
            _of_fields(reads) if reads else None,
            _of_fields(writes) if writes else None,
        )

    def _array(self, item: AvroType, path: str) -> AvroType:
        if item.bytes_min == 0:
            raise ValueSchemaError(self._name, f"items of {path} take no bytes")
        self._note_item(item.nodes, item.bytes_min)
        if item.spark_type is None:
            return AvroType(None, 1, 1)
        return AvroType(
            ArrayType(item.spark_type), 1, 1, _of_items(item.to_value), _of_items(item.to_datum)
        )

    def _map(self, item: AvroType) -> AvroType:
        self._note_item(1 + item.nodes, 1 + item.bytes_min)
        if item.spark_type is None:
            return AvroType(None, 1, 1)
        to_value, to_datum = item.to_value, item.to_datum

        def pairs(value: Any) -> Any:
            if to_value is None:
                return list(value.items())
            return [(key, None if one is None else to_value(one)) for key, one in value.items()]

        def data(value: Any) -> Any:
            if to_datum is None:
                return dict(value)
            return {key: None if one is None else to_datum(one) for key, one in value}

        return AvroType(MapType(StringType(), item.spark_type), 1, 1, pairs, data)

    def _note_item(self, nodes: int, bytes_min: int) -> None:
        self.item_bytes_min = min(self.item_bytes_min, bytes_min) if self.item_nodes else bytes_min
        self.item_nodes = max(self.item_nodes, nodes)
        self.nodes_per_byte = max(self.nodes_per_byte, nodes / bytes_min)

    def _union(self, schema: Any, path: str, depth: int, above: tuple[str, ...]) -> AvroType:
        branches = [
            (branch, self.type_of(branch, path, depth + 1, above))
            for branch in schema
            if branch != "null"
        ]
        left = [(branch, found) for branch, found in branches if found.spark_type is not None]
        # One byte, or more, says which branch follows.
        # A null takes no more than the byte that says so.
        bytes_min = 1
        if "null" not in schema:
            bytes_min += min((found.bytes_min for _, found in branches), default=0)
        nodes = max((found.nodes for _, found in branches), default=1)
        if not left:
            return AvroType(None, bytes_min, nodes)
        if len(branches) == 1:
            found = left[0][1]
            return AvroType(
                found.spark_type, bytes_min, nodes, _unnamed(left[0][0], found), found.to_datum
            )
        kinds = {str(branch) for branch, _ in branches}
        if kinds in ({"int", "long"}, {"float", "double"}):
            wider: DataType = LongType() if "long" in kinds else DoubleType()
            return AvroType(wider, bytes_min, 1)
        return _members(branches, bytes_min, nodes + len(branches))


def _of_fields(converts: list[tuple[str, Convert]]) -> Convert:
    def convert(value: Any) -> Any:
        # Some fields of a row that is to be written may have no column.
        for name, inner in converts:
            if (field := value.get(name)) is not None:
                value[name] = inner(field)
        return value

    return convert


def _of_items(inner: Convert | None) -> Convert | None:
    if inner is None:
        return None
    return lambda value: [None if one is None else inner(one) for one in value]


def _unnamed(branch: Any, found: AvroType) -> Convert | None:
    """Returns what takes off the name that stands before data of a named type in a union."""
    inner = found.to_value
    if inner is None and isinstance(branch, str) and branch in _PRIMITIVES:
        return None

    def convert(value: Any) -> Any:
        if isinstance(value, tuple):
            value = value[1]
        return value if inner is None or value is None else inner(value)

    return convert


def branch_name(branch: Any) -> str:
    """Returns the name of one branch of a union: a full name, or that of its kind."""
    if isinstance(branch, str):
        return branch
    name: str = branch["name"] if branch["type"] in _NAMED else branch["type"]
    return name


_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
# How data of a branch without a name look; None: as a logical type makes them.
_LOOKS: Final[Mapping[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "int": (int, date, time),
    "long": (int, datetime, time),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes,),
    "string": (str, uuid.UUID),
    "array": (list,),
    "map": (dict,),
}


def _members(branches: list[tuple[Any, AvroType]], bytes_min: int, nodes: int) -> AvroType:
    """Returns the type of a union of several types: a struct of which one member is not null."""
    members = [(f"member{i}", *branches[i]) for i in range(len(branches))]
    shown = [
        StructField(member, found.spark_type)
        for member, _, found in members
        if found.spark_type is not None
    ]
    by_name = {branch_name(branch): (member, found) for member, branch, found in members}

    def read(value: Any) -> Any:
        member, found, datum = _member_of(value, by_name)
        return {member: datum if found.to_value is None else found.to_value(datum)}

    def write(value: Any) -> Any:
        set_members = [
            (branch, found, value[member])
            for member, branch, found in members
            if value.get(member) is not None
        ]
        if len(set_members) != 1:
            raise BadValueError(f"{len(set_members)} members of a union are set, not one")
        branch, found, datum = set_members[0]
        name = branch_name(branch)
        return name, datum if found.to_datum is None else found.to_datum(datum)

    return AvroType(StructType(shown), bytes_min, nodes, read, write)


def _member_of(
    value: Any, by_name: Mapping[str, tuple[str, AvroType]]
) -> tuple[str, AvroType, Any]:
    if isinstance(value, tuple):
        name, datum = value
        if name not in by_name:
            # A writer's record may have another name space.
            short = name.rpartition(".")[2]
            name = next((one for one in by_name if one.rpartition(".")[2] == short), name)
        if name in by_name:
            return *by_name[name], datum
        raise BadValueError(f"{name} is no branch of the union")
    for name, (member, found) in by_name.items():
        looks = _LOOKS.get(name, ())
        if isinstance(value, looks) and not (isinstance(value, bool) and bool not in looks):
            return member, found, value
        if found.spark_type is not None and found.spark_type.typeName() == "decimal":
            return member, found, value
    raise BadValueError(f"a {type(value).__name__} is no branch of the union")
