"""Messages of Protobuf as types of Spark, with what makes values of one out of the other.

    Protobuf                                     Spark
    int32, sint32, sfixed32                      int
    int64, sint64, sfixed64, uint32, fixed32     bigint
    uint64, fixed64                              decimal(20,0)
    float, double, bool, string, bytes           float, double, boolean, string, binary
    enum                                         string: its name, or the number of an unknown one
    message, repeated, map                       struct, array, map
    google.protobuf.Timestamp                    timestamp
    wrappers (StringValue, ...)                  what they wrap
    Struct, Value, ListValue                     string: their JSON
    a message without fields                     no column

A field that tells whether it was set is null when it was not; others have their defaults. Messages
that hold themselves are refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ledgermq.spark.errors import ValueSchemaError
from ledgermq.spark.values.codec import load_protobuf
from ledgermq.spark.values.limits import FIRST_SECOND, LAST_SECOND, BadValueError, TypeBudget

_KNOWN: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_KNOWN}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON: Final = frozenset(f"{_KNOWN}{name}" for name in ("Struct", "Value", "ListValue"))

# By the numbers of descriptor.proto, which do not change: 1 double, 2 float, 3 int64, 4 uint64,
# 5 int32, 6 fixed64, 7 fixed32, 8 bool, 9 string, 12 bytes, 13 uint32, 14 enum, 15 sfixed32,
# 16 sfixed64, 17 sint32, 18 sint64; 10 and 11 are messages.
_SCALARS: Final[Mapping[int, DataType]] = {
    **dict.fromkeys((5, 15, 17), IntegerType()),
    **dict.fromkeys((3, 7, 13, 16, 18), LongType()),
    **dict.fromkeys((4, 6), DecimalType(20, 0)),
    1: DoubleType(),
    2: FloatType(),
    8: BooleanType(),
    9: StringType(),
    12: BinaryType(),
}
_ENUM: Final = 14


@dataclass(slots=True, frozen=True)
class ProtobufType:
    """What Spark calls a field's type, and how one value becomes the other."""

    # None: it says nothing, and is left out.
    spark_type: DataType | None
    # A value of a scalar or of a message.
    to_value: Callable[[Any], Any]
    # A scalar of a value; of messages see `fill`.
    to_scalar: Callable[[Any], Any] | None = None
    # Sets a message that is empty; None: it is a scalar.
    fill: Callable[[Any, Any], None] | None = None


def _same(value: Any) -> Any:
    return value


class ProtobufWalk:
    """One pass over the descriptor of a message."""

    def __init__(self, name: str) -> None:
        """Takes the name of the schema, for errors."""
        self._budget = TypeBudget(name)

    def type_of(
        self, descriptor: Any, path: str, depth: int = 0, above: tuple[str, ...] = ()
    ) -> ProtobufType:
        """Returns what a message is.

        Args:
            descriptor: of the message.
            path: of the column, for errors.
            depth: types around it.
            above: messages around it.

        Raises:
            ValueSchemaError: it holds itself, or unfolds to too much.
        """
        self._budget.take(path, depth)
        name = descriptor.full_name
        if name == f"{_KNOWN}Timestamp":
            return ProtobufType(TimestampType(), _microseconds, None, _fill_time)
        if name in _JSON:
            return ProtobufType(StringType(), _json_of, None, _fill_json)
        if name in _WRAPPERS:
            return self._wrapped(descriptor, path)
        if name in above:
            raise ValueSchemaError(self._budget.schema, f"{path} holds itself: message {name}")
        found = [
            (field, self._field(field, f"{path}.{field.name}", depth + 1, (*above, name)))
            for field in descriptor.fields
        ]
        kept = [(field, inner) for field, inner in found if inner.spark_type is not None]
        shown = [
            StructField(field.name, inner.spark_type)
            for field, inner in found
            if inner.spark_type is not None
        ]
        reads = [(field.name, _is_told(field), inner.to_value) for field, inner in kept]
        fills = [(field.name, _filler(field, inner)) for field, inner in kept]

        def read(message: Any) -> Any:
            return {
                name: convert(getattr(message, name))
                for name, is_told, convert in reads
                if not is_told or message.HasField(name)
            }

        def fill(message: Any, value: Any) -> None:
            for name, set_field in fills:
                if (one := value.get(name)) is not None:
                    set_field(message, one)

        return ProtobufType(StructType(shown) if shown else None, read, None, fill)

    def _field(self, field: Any, path: str, depth: int, above: tuple[str, ...]) -> ProtobufType:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            return self._map(inner, path, depth, above)
        found = self._single(field, path, depth, above)
        if not field.is_repeated:
            return found
        self._budget.take(path, depth)
        kind = None if found.spark_type is None else ArrayType(found.spark_type)
        to_value = found.to_value
        if to_value is _same:
            return ProtobufType(kind, list, found.to_scalar, found.fill)
        return ProtobufType(
            kind, lambda items: [to_value(one) for one in items], found.to_scalar, found.fill
        )

    def _single(self, field: Any, path: str, depth: int, above: tuple[str, ...]) -> ProtobufType:
        if field.message_type is not None:
            return self.type_of(field.message_type, path, depth, above)
        self._budget.take(path, depth)
        if field.type == _ENUM:
            return _enum(field.enum_type)
        kind = _SCALARS[field.type]
        if isinstance(kind, DecimalType):
            return ProtobufType(kind, Decimal, int)
        return ProtobufType(kind, _same, _same)

    def _map(self, entry: Any, path: str, depth: int, above: tuple[str, ...]) -> ProtobufType:
        key = self._single(entry.fields_by_name["key"], path, depth + 1, above)
        item = self._single(entry.fields_by_name["value"], f"{path}[]", depth + 1, above)
        assert key.spark_type is not None, "keys are scalars"
        kind = None if item.spark_type is None else MapType(key.spark_type, item.spark_type)
        to_key, to_item = key.to_value, item.to_value
        return ProtobufType(
            kind,
            lambda pairs: [(to_key(one), to_item(pairs[one])) for one in pairs],
            item.to_scalar,
            item.fill,
        )

    def _wrapped(self, descriptor: Any, path: str) -> ProtobufType:
        found = self._single(descriptor.fields_by_name["value"], path, 0, ())
        to_value, to_scalar = found.to_value, found.to_scalar or _same

        def fill(message: Any, value: Any) -> None:
            message.value = to_scalar(value)

        return ProtobufType(found.spark_type, lambda message: to_value(message.value), None, fill)


def _is_told(field: Any) -> bool:
    """Whether a message knows if the field was set."""
    return bool(field.has_presence) and not field.is_repeated


def _filler(field: Any, found: ProtobufType) -> Callable[[Any, Any], None]:
    """Returns what sets one field of a message."""
    name, fill, to_scalar = field.name, found.fill, found.to_scalar or _same
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry

    def set_map(message: Any, pairs: Any) -> None:
        target = getattr(message, name)
        for key, value in pairs:
            if fill is None:
                target[key] = to_scalar(value)
            else:
                fill(target[key], value)

    def set_items(message: Any, items: Any) -> None:
        target = getattr(message, name)
        for item in items:
            if fill is None:
                target.append(to_scalar(item))
            else:
                fill(target.add(), item)

    def set_message(message: Any, value: Any) -> None:
        assert fill is not None
        target = getattr(message, name)
        target.SetInParent()
        fill(target, value)

    def set_scalar(message: Any, value: Any) -> None:
        setattr(message, name, to_scalar(value))

    if is_map:
        return set_map
    if field.is_repeated:
        return set_items
    return set_scalar if fill is None else set_message


def _enum(descriptor: Any) -> ProtobufType:
    names = {number: value.name for number, value in descriptor.values_by_number.items()}
    numbers = {name: value.number for name, value in descriptor.values_by_name.items()}

    def number_of(name: str) -> int:
        number = numbers.get(name)
        return int(name) if number is None else number

    return ProtobufType(StringType(), lambda number: names.get(number) or str(number), number_of)


def _microseconds(message: Any) -> int:
    if not FIRST_SECOND <= message.seconds <= LAST_SECOND:
        raise BadValueError(f"a Timestamp of {message.seconds} s is not in the years 1 to 9999")
    moment: int = message.seconds * 1_000_000 + message.nanos // 1000
    return moment


def _fill_time(message: Any, value: datetime) -> None:
    # Of Spark's sessions; a time without a zone is UTC.
    message.FromDatetime(value if value.tzinfo is not None else value.replace(tzinfo=UTC))


def _json_of(message: Any) -> str:
    text: str = load_protobuf("json_format").MessageToJson(message, indent=None)
    return text


def _fill_json(message: Any, value: str) -> None:
    load_protobuf("json_format").Parse(value, message)
