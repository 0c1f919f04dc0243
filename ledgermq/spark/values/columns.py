"""Bodies as columns, where Spark runs its tasks: a value, or a null and the reason for it.

A body that cannot be decoded ends nothing unless the read was told so. A registry that is gone is
no fault of a body: the task fails after the timeout, and Spark runs it again.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.spark.errors import BodyError, SparkSourceError, ValueSchemaError
from ledgermq.spark.values.avro_values import AvroCodec
from ledgermq.spark.values.limits import (
    BATCH_FIELDS_MAX,
    BadValueError,
    leaf_count,
    shortened,
)
from ledgermq.spark.values.protobuf_values import ProtobufCodec
from ledgermq.spark.values.registry import Registry, UnknownSchemaError
from ledgermq.spark.values.schemas import ValuePlan, codec_of
from ledgermq.spark.values.value_options import AVRO, PROTOBUF
from ledgermq.spark.values.wire_format import split_head, split_indexes

# Objects of so many bytes of bodies are held at a time; of the rest there are Arrow's arrays.
_CHUNK_BYTES: Final = 1024 * 1024
_SLICE_ROWS: Final = 1_000
# Schemas of writers that a task keeps.
_SCHEMAS_MAX: Final = 1_000
# Ids without a schema for which a task asks: each costs a request, and bodies may have any.
_UNKNOWN_MAX: Final = 1_000


class BodyReader:
    """Decodes bodies; made in a task, for that task."""

    def __init__(self, plan: ValuePlan) -> None:
        """Makes the codec.

        Raises:
            MissingPackageError: the extra is not installed here.
        """
        self._plan = plan
        self._codec = codec_of(plan.options.format, plan.document)
        self._batch_bytes = self._codec.body_bytes_max
        self._limit = min(plan.options.body_bytes_max, self._codec.body_bytes_max)
        self._decode: Callable[[bytes], Any] = self._codec.decode
        if plan.options.registry is not None:
            self._decode = _RegistryBodies(plan, self._codec).decode
        self.spark_type = plan.spark_type
        # Rows of one batch, so that a schema of many fields makes no huge one.
        self._rows_max = max(1, BATCH_FIELDS_MAX // leaf_count(plan.spark_type))

    def parts(self, bodies: Any) -> Iterator[tuple[int, int]]:
        """Yields which rows are one batch: the first, and the one behind the last.

        What one body may unfold to is bounded, and so is what those of a batch do together: a fetch
        of little may bring many bodies that were compressed.

        Args:
            bodies: Arrow bytes.
        """
        first = held_bytes = 0
        for row, size in enumerate(pc.binary_length(bodies).to_pylist()):
            # A body beyond the limit is not decoded.
            size = size if size <= self._limit else 0
            is_full = row - first >= self._rows_max or held_bytes + size > self._batch_bytes
            if is_full and row > first:
                yield first, row
                first, held_bytes = row, 0
            held_bytes += size
        if first < len(bodies):
            yield first, len(bodies)

    def columns(self, bodies: Any, kind: Any, place: Callable[[int], str]) -> tuple[Any, Any]:
        """Returns the values and the errors of some bodies as Arrow arrays.

        Args:
            bodies: Arrow bytes.
            kind: the Arrow type of values.
            place: names a row, for the error of a read that is to fail.

        Raises:
            BodyError: a body is no value, and the read is to fail then.
            ClusterError: the registry does not answer.
        """
        errors: list[str | None] = [None] * len(bodies)
        parts, held, held_bytes = [], list[Any](), 0
        for i, body in enumerate(_each(bodies)):
            try:
                value = self._value(body)
            except (SparkSourceError, MemoryError):
                raise
            # Whatever a codec ends with, it is this body that cannot be decoded.
            except Exception as error:
                errors[i] = self._refused(error, i, place)
                value = None
            held.append(value)
            held_bytes += len(body)
            if held_bytes >= _CHUNK_BYTES:
                parts.append(self._array(held, i + 1 - len(held), kind, errors, place))
                held, held_bytes = [], 0
        parts.append(self._array(held, len(bodies) - len(held), kind, errors, place))
        values = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return values, pa.array(errors, pa.string())

    def _value(self, body: bytes) -> Any:
        if len(body) > self._limit:
            name = (
                "value.maxBytes" if self._limit == self._plan.options.body_bytes_max else "schema"
            )
            raise BadValueError(f"{len(body)} bytes, the limit of {name} is {self._limit}")
        return self._decode(body)

    def _array(
        self,
        values: list[Any],
        first: int,
        kind: Any,
        errors: list[str | None],
        place: Callable[[int], str],
    ) -> Any:
        """Returns values as an array; one that Arrow does not take is an error, too."""
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            pass
        for i, value in enumerate(values):
            try:
                pa.array([value], kind)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                errors[first + i] = self._refused(error, first + i, place)
                values[i] = None
        return pa.array(values, kind)

    def _refused(self, error: Exception, row: int, place: Callable[[int], str]) -> str:
        """Returns the reason for a null, or raises it."""
        reason = str(error)
        if not isinstance(error, BadValueError):
            reason = f"{type(error).__name__}: {reason}"
        reason = shortened(reason)
        if self._plan.options.fails:
            raise BodyError(place(row), reason) from error
        return reason


def _each(bodies: Any) -> Iterator[bytes]:
    """Yields Arrow bytes one by one; as objects there are only some at a time."""
    for first in range(0, len(bodies), _SLICE_ROWS):
        yield from bodies.slice(first, _SLICE_ROWS).to_pylist()


class _RegistryBodies:
    """Bodies with a head: each is decoded by the schema that its head names."""

    def __init__(self, plan: ValuePlan, codec: Any) -> None:
        assert plan.options.registry is not None
        self._registry = Registry(plan.options.registry, plan.timeout_s)
        self._format = plan.options.format
        self._codec = codec
        # Codecs by id; the reason instead where there is none.
        self._writers: dict[int, Any] = {}
        self._unknown_count = 0
        if plan.schema_id is not None:
            self._writers[plan.schema_id] = codec

    def decode(self, body: bytes) -> Any:
        """Returns the value.

        Raises:
            ClusterError: the registry does not answer.
            Exception: any other; the body is no value.
        """
        schema_id, at = split_head(body)
        if self._format == AVRO:
            writer = self._writer(schema_id)
            if writer is self._codec:
                return writer.decode(body[at:])
            return self._codec.decode_from(writer, body[at:])
        if self._format == PROTOBUF:
            indexes, at = split_indexes(body, at)
            name = self._writer(schema_id).name_at(indexes)
            if name != self._codec.full_name:
                raise BadValueError(f"it is a message {name}, not {self._codec.full_name}")
        # JSON says by itself what it is.
        return self._codec.decode(body[at:])

    def _writer(self, schema_id: int) -> Any:
        found = self._writers.get(schema_id)
        if found is None:
            found = self._asked(schema_id)
            if len(self._writers) >= _SCHEMAS_MAX:
                self._writers.pop(next(iter(self._writers)))
            self._writers[schema_id] = found
        if isinstance(found, str):
            raise BadValueError(found)
        return found

    def _asked(self, schema_id: int) -> AvroCodec | ProtobufCodec | str:
        """Returns the codec of a schema, or why there is none."""
        if self._unknown_count >= _UNKNOWN_MAX:
            return f"schema {schema_id} was not looked up: {_UNKNOWN_MAX} ids before it have none"
        try:
            document = self._registry.by_id(schema_id)
            if document.format != self._format:
                reason = f"schema {schema_id} is of {document.format}"
            elif self._format == AVRO:
                return AvroCodec(document)
            else:
                return ProtobufCodec(document)
        # A schema that somebody else has registered ends no read.
        except (UnknownSchemaError, ValueSchemaError) as error:
            reason = str(error)
        self._unknown_count += 1
        return reason
