"""Avro: bodies as values of a Spark type, and back, by fastavro.

A body holds one datum without a head of its own: neither a file's nor that of a single object. Of a
registry, a body is decoded by the schema with which it was written and resolved to the one that
gives the columns, as Avro describes it.
"""

import io
import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import DataType

from ledgermq.spark.errors import ValueSchemaError
from ledgermq.spark.values.avro_types import AvroWalk
from ledgermq.spark.values.codec import SchemaDocument, load_fastavro
from ledgermq.spark.values.json_schema import parsed
from ledgermq.spark.values.limits import BadValueError, body_bytes_max, shortened

# An entry of a dict with a small object.
_SLOTS_PER_NODE: Final = 8


class AvroCodec:
    """Bodies as data of one schema."""

    def __init__(self, document: SchemaDocument) -> None:
        """Reads a schema.

        Raises:
            MissingPackageError: fastavro is not installed.
            ValueSchemaError: it is no schema, or one that is not read here.
        """
        self._fastavro = load_fastavro()
        self.name = document.name
        self.schema, named = self._parsed(document)
        self.walk = AvroWalk(document.name, named)
        try:
            self._type = self.walk.type_of(self.schema, "value")
        # What fastavro lets through, such as a decimal without a precision.
        except (KeyError, TypeError, ValueError) as error:
            reason = f"it is no Avro schema: {shortened(repr(error))}"
            raise ValueSchemaError(document.name, reason) from error
        self.body_bytes_max = body_bytes_max(_SLOTS_PER_NODE * self.walk.nodes_per_byte)

    @property
    def spark_type(self) -> DataType:
        """The type of the column.

        Raises:
            ValueSchemaError: there is nothing to show.
        """
        if self._type.spark_type is None:
            raise ValueSchemaError(self.name, "it has no fields")
        return self._type.spark_type

    def decode(self, body: bytes) -> Any:
        """Returns the value; see Codec."""
        return self._decode(body, self.schema, None)

    def decode_from(self, writer: "AvroCodec", body: bytes) -> Any:
        """Returns the value of a body that another schema has written.

        Raises:
            Exception: any; see Codec.
        """
        walk = writer.walk
        unfolded = _SLOTS_PER_NODE * self.walk.item_nodes / walk.item_bytes_min
        limit = min(writer.body_bytes_max, body_bytes_max(unfolded))
        if len(body) > limit:
            raise BadValueError(f"{len(body)} bytes of {writer.name}, limit {limit}")
        return self._decode(body, writer.schema, self.schema)

    def encode(self, value: Any) -> bytes:
        """Returns the body; see Codec."""
        to_datum = self._type.to_datum
        out = io.BytesIO()
        datum = value if to_datum is None else to_datum(value)
        self._fastavro.schemaless_writer(out, self.schema, datum)
        return out.getvalue()

    def _decode(self, body: bytes, writer: Any, reader: Any) -> Any:
        file = io.BytesIO(body)
        try:
            datum = self._fastavro.schemaless_reader(
                file, writer, reader, return_record_name=True, return_named_type=True
            )
        except EOFError as error:
            raise BadValueError(f"it ends within a datum, after {len(body)} bytes") from error
        if file.tell() != len(body):
            raise BadValueError(f"{len(body) - file.tell()} bytes are left behind the datum")
        to_value = self._type.to_value
        return datum if to_value is None or datum is None else to_value(datum)

    def _parsed(self, document: SchemaDocument) -> tuple[Any, Mapping[str, Any]]:
        """Returns the schema with full names, and what they mean."""
        named: dict[str, Any] = {}
        schema: Any = None
        for _, data in document.parts:
            text = parsed(document.name, data)
            try:
                schema = self._fastavro.parse_schema(text, named_schemas=named)
            # It raises its own errors of schemas, and KeyError or TypeError for what has no shape.
            except Exception as error:
                shown = shortened(f"{type(error).__name__} {error}")
                raise ValueSchemaError(document.name, f"it is no Avro schema: {shown}") from error
        if isinstance(schema, dict):
            return schema, named
        if len(document.parts) > 1:
            reason = f"{shortened(json.dumps(schema), 80)} refers to others, and is no record"
            raise ValueSchemaError(document.name, reason)
        return schema, named
