"""Values as bodies, where Spark runs its tasks, and which columns fit a schema."""

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from ledgermq.spark.errors import RowSchemaError, SparkSourceError
from ledgermq.spark.schema import VALUE
from ledgermq.spark.values.json_values import JsonCodec
from ledgermq.spark.values.limits import BadValueError, shortened
from ledgermq.spark.values.protobuf_values import ProtobufCodec
from ledgermq.spark.values.schemas import ValuePlan, codec_of
from ledgermq.spark.values.value_options import JSON
from ledgermq.spark.values.wire_format import head_of

# Whole numbers, from narrow to wide.
_WHOLE = (ByteType, ShortType, IntegerType, LongType)


class BodyWriter:
    """Encodes values; made in a task, for that task."""

    def __init__(self, plan: ValuePlan, column: DataType) -> None:
        """Makes the codec.

        Args:
            plan: of the write.
            column: the type of the values.

        Raises:
            MissingPackageError: the extra is not installed here.
        """
        self._codec = codec_of(plan.options.format, plan.document)
        self._head = b""
        if plan.schema_id is not None:
            codec = self._codec
            indexes = codec.indexes() if isinstance(codec, ProtobufCodec) else None
            self._head = head_of(plan.schema_id, indexes)
        if plan.options.format == JSON:
            # What a row has counts, also where the schema leaves more open.
            self._codec = JsonCodec(column)

    def encode(self, value: Any) -> bytes:
        """Returns the body of a value, as Arrow gives it.

        Raises:
            BadValueError: it is none of the schema.
        """
        try:
            return self._head + self._codec.encode(value)
        except (SparkSourceError, MemoryError, BadValueError):
            raise
        # Codecs end with errors of all kinds; the row is what they complain about.
        except Exception as error:
            raise BadValueError(shortened(f"{type(error).__name__}: {error}")) from error


def check_value_column(plan: ValuePlan, column: DataType) -> None:
    """Checks that a column can be written by a schema.

    Raises:
        RowSchemaError: it has another type, or fields that the schema does not know.
    """
    # A text is sent as the JSON that it is.
    if plan.options.format == JSON and isinstance(column, StringType):
        return
    if plan.options.format == JSON and plan.document is None:
        if not isinstance(column, StructType | ArrayType | MapType):
            raise RowSchemaError(VALUE, column.simpleString(), "struct, array, map or string")
        return
    _check(VALUE, column, plan.spark_type)


def _check(path: str, column: DataType, wanted: DataType) -> None:
    match column, wanted:
        case StructType(), StructType():
            by_name = {field.name: field.dataType for field in wanted.fields}
            for field in column.fields:
                if field.name not in by_name:
                    known = shortened(", ".join(by_name))
                    raise RowSchemaError(f"{path}.{field.name}", "unknown", known)
                _check(f"{path}.{field.name}", field.dataType, by_name[field.name])
        case ArrayType(), ArrayType():
            _check(f"{path}[]", column.elementType, wanted.elementType)
        case MapType(), MapType():
            _check(f"keys of {path}", column.keyType, wanted.keyType)
            _check(f"{path}[]", column.valueType, wanted.valueType)
        case _:
            if not _fits(column, wanted):
                raise RowSchemaError(path, column.simpleString(), wanted.simpleString())


def _fits(column: DataType, wanted: DataType) -> bool:
    """Whether every value of a simple type is one of another."""
    if column == wanted:
        return True
    if isinstance(wanted, DecimalType):
        if isinstance(column, DecimalType):
            return column.scale == wanted.scale and column.precision <= wanted.precision
        # For uint64, which no other type of Spark holds.
        return wanted.scale == 0 and isinstance(column, _WHOLE)
    if isinstance(wanted, DoubleType):
        return isinstance(column, FloatType)
    if isinstance(column, _WHOLE) and isinstance(wanted, _WHOLE):
        return _WHOLE.index(type(column)) <= _WHOLE.index(type(wanted))
    return False
