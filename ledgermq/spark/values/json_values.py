"""JSON and plain text: bodies as values of a Spark type, and back.

Values are read as Spark's own `from_json` reads them, except that what does not fit is told instead
of becoming a null: where the type is string, a value that is none gives its JSON text; times are
ISO 8601, bytes are base64. Names that the type does not have are left out. When values are written,
nulls are left out, and a number that JSON cannot say (NaN) is refused.
"""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from ledgermq.spark.values.json_text import depth_of
from ledgermq.spark.values.limits import (
    JSON_DEPTH_MAX,
    BadValueError,
    body_bytes_max,
    item_nodes,
    shortened,
)

_Convert = Callable[[Any, str], Any]
# Above this a float is no exact integer.
_EXACT_MAX: Final = 2**53
# Of a number of another kind than float; larger ones are no int64 anyway.
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
# A list costs more than its two brackets.
_SLOTS_PER_BYTE: Final = 4
# Two bytes make an item, and a comma.
_ITEM_BYTES: Final = 2
_SHOWN_CHARS: Final = 60

_encoder: Final = msgspec.json.Encoder(decimal_format="number")


class TextCodec:
    """Bodies as UTF-8."""

    spark_type: Final = StringType()
    body_bytes_max: Final = body_bytes_max(1)

    def decode(self, body: bytes) -> str:
        """Returns the text."""
        return body.decode()

    def encode(self, value: Any) -> bytes:
        """Returns the bytes of a text."""
        text: str = value
        return text.encode()


class JsonCodec:
    """Bodies as JSON."""

    def __init__(self, spark_type: DataType | None) -> None:
        """Takes the type of values; None for their text, which is only checked."""
        self.spark_type = spark_type or StringType()
        self.body_bytes_max = body_bytes_max(
            max(_SLOTS_PER_BYTE, item_nodes(self.spark_type) / _ITEM_BYTES)
        )
        self._keeps_text = spark_type is None
        self._convert = _reader(self.spark_type)
        self._prepare = _preparer(self.spark_type)
        has_decimals = "decimal" in self.spark_type.simpleString()
        self._decoder = msgspec.json.Decoder(float_hook=Decimal if has_decimals else None)

    def decode(self, body: bytes) -> Any:
        """Returns the value; see Codec."""
        document = self._parsed(body)
        return body.decode() if self._keeps_text else self._convert(document, "value")

    def encode(self, value: Any) -> bytes:
        """Returns the JSON; see Codec."""
        if isinstance(value, str):
            body = value.encode()
            self._parsed(body)
            return body
        return _encoder.encode(self._prepare(value))

    def _parsed(self, body: bytes) -> Any:
        document = self._decoder.decode(body)
        if depth_of(body, JSON_DEPTH_MAX) > JSON_DEPTH_MAX:
            raise BadValueError(f"it is deeper than {JSON_DEPTH_MAX} levels")
        return document


def _misfit(value: Any, path: str, wanted: str) -> BadValueError:
    shown = shortened(repr(value), _SHOWN_CHARS)
    return BadValueError(f"{path} is {shown}, the schema says {wanted}")


def _reader(kind: DataType) -> _Convert:
    """Returns what makes a value of a type from a JSON value and its path."""
    match kind:
        case StructType():
            return _struct_reader(kind)
        case ArrayType():
            item = _reader(kind.elementType)

            def items(value: Any, path: str) -> Any:
                if value is None:
                    return None
                if not isinstance(value, list):
                    raise _misfit(value, path, "array")
                return [item(one, path) for one in value]

            return items
        case MapType():
            inner = _reader(kind.valueType)

            def pairs(value: Any, path: str) -> Any:
                if value is None:
                    return None
                if not isinstance(value, dict):
                    raise _misfit(value, path, "map")
                return [(key, inner(one, path)) for key, one in value.items()]

            return pairs
        case _:
            return _simple_reader(kind)


def _struct_reader(kind: StructType) -> _Convert:
    fields = [(field.name, _reader(field.dataType)) for field in kind.fields]

    def struct(value: Any, path: str) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _misfit(value, path, "struct")
        return {
            name: convert(value[name], f"{path}.{name}")
            for name, convert in fields
            if name in value
        }

    return struct


def _simple_reader(kind: DataType) -> _Convert:
    name = kind.typeName()
    read = _SIMPLE[name]
    # Of whole numbers the range is checked here, of decimals where Arrow takes them.
    limit: int = 2 ** (_BITS[name] - 1) if name in _BITS else 0

    def simple(value: Any, path: str) -> Any:
        if value is None:
            return None
        try:
            found: Any = read(value)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise _misfit(value, path, kind.simpleString()) from error
        if limit and not -limit <= found < limit:
            raise _misfit(value, path, kind.simpleString())
        return found

    return simple


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encoder.encode(value).decode()


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError
    if isinstance(value, int):
        return value
    # 7.0 is an integer to JSON Schema.
    exact = Decimal(value)
    if abs(exact) > _EXACT_MAX or exact != int(exact):
        raise ValueError
    return int(exact)


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError
    found = float(value)
    if not math.isfinite(found):
        raise ValueError
    return found


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


_DECIMAL_DIGITS_MAX: Final = 76


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise TypeError
    found = Decimal(value)
    # No decimal of Spark has more digits, and with a billion of them each step takes a second.
    if not found.is_finite() or abs(found.adjusted()) > _DECIMAL_DIGITS_MAX:
        raise ValueError
    return found


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(_string(value))
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _local_moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(_string(value))
    if moment.tzinfo is not None:
        raise ValueError
    return moment


_SIMPLE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": _text,
    "byte": _integer,
    "short": _integer,
    "integer": _integer,
    "long": _integer,
    "float": _float,
    "double": _float,
    "boolean": _boolean,
    "decimal": _decimal,
    "binary": lambda value: base64.b64decode(_string(value), validate=True),
    "date": lambda value: date.fromisoformat(_string(value)),
    "timestamp": _moment,
    "timestamp_ntz": _local_moment,
}


def _preparer(kind: DataType) -> Callable[[Any], Any]:
    """Returns what makes of a value, as Arrow gives it, what the encoder takes."""
    match kind:
        case StructType():
            fields = [(field.name, _preparer(field.dataType)) for field in kind.fields]
            return lambda value: {
                name: prepare(value[name]) for name, prepare in fields if value[name] is not None
            }
        case ArrayType():
            item = _preparer(kind.elementType)
            return lambda value: [None if one is None else item(one) for one in value]
        case MapType():
            inner = _preparer(kind.valueType)
            return lambda value: {key: None if one is None else inner(one) for key, one in value}
        case _ if kind.typeName() in ("float", "double"):
            return _said
        case _:
            return lambda value: value


def _said(value: float) -> float:
    if not math.isfinite(value):
        raise BadValueError(f"JSON has no number {value}")
    return value
