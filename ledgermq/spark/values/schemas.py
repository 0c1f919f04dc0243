"""Finding the schema of values, on the driver; what comes of it travels to the tasks."""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import DataType

from ledgermq.spark.errors import OptionError, ValueSchemaError
from ledgermq.spark.values.avro_values import AvroCodec
from ledgermq.spark.values.codec import Codec, SchemaDocument
from ledgermq.spark.values.json_schema import type_of_json_schema
from ledgermq.spark.values.json_values import JsonCodec, TextCodec
from ledgermq.spark.values.limits import SCHEMA_BYTES_MAX
from ledgermq.spark.values.protobuf_values import ProtobufCodec, file_parts
from ledgermq.spark.values.registry import Registry, UnknownSchemaError
from ledgermq.spark.values.value_options import AVRO, JSON, PROTOBUF, TEXT, ValueOptions


@dataclass(slots=True, frozen=True, kw_only=True)
class ValuePlan:
    """How values are read or written; it holds no codec, as those do not travel."""

    options: ValueOptions
    # None: a format without one.
    document: SchemaDocument | None
    # Of the schema in the registry; None: it is from a file.
    schema_id: int | None
    # How long the registry may be gone.
    timeout_s: float
    spark_type: DataType


def plan_values(options: ValueOptions, timeout_s: float) -> ValuePlan | None:
    """Finds the schema; opens a file, or asks a registry.

    Args:
        options: of the read or write.
        timeout_s: how long the registry may be gone.

    Returns:
        None when bodies are bytes.

    Raises:
        OptionError: the file cannot be read, or the registry does not know the subject.
        ValueSchemaError: the schema cannot be used.
        ClusterError: the registry does not answer.
        MissingPackageError: the extra is not installed.
    """
    if not options.is_typed:
        return None
    document: SchemaDocument | None = None
    schema_id: int | None = None
    if options.schema_file:
        document = _of_file(options)
    elif options.registry is not None:
        try:
            schema_id, document = Registry(options.registry, timeout_s).latest(options.subject)
        except UnknownSchemaError as error:
            allowed = f"a subject that the registry knows: {error}"
            raise OptionError("value.schema.subject", options.subject, allowed) from error
        if document.format != options.format:
            reason = f"it is of {document.format}, value.format is {options.format!r}"
            raise ValueSchemaError(document.name, reason)
        document = SchemaDocument(document.format, document.name, document.parts, options.message)
    return ValuePlan(
        options=options,
        document=document,
        schema_id=schema_id,
        timeout_s=timeout_s,
        spark_type=codec_of(options.format, document).spark_type,
    )


def codec_of(value_format: str, document: SchemaDocument | None) -> Codec:
    """Returns the codec of a format and a schema.

    Raises:
        ValueSchemaError: the schema cannot be used.
        MissingPackageError: the extra is not installed.
    """
    match value_format, document:
        case (str(name), None) if name == TEXT:
            return TextCodec()
        case (str(name), None) if name == JSON:
            return JsonCodec(None)
        case (str(name), SchemaDocument()) if name == JSON:
            return JsonCodec(type_of_json_schema(document.name, document.parts[-1][1]))
        case (str(name), SchemaDocument()) if name == AVRO:
            return AvroCodec(document)
        case (str(name), SchemaDocument()) if name == PROTOBUF:
            return ProtobufCodec(document)
        case _:
            raise ValueError(f"{value_format} with {document}")


def _of_file(options: ValueOptions) -> SchemaDocument:
    path = Path(options.schema_file)
    try:
        # Neither a device nor a pipe, which would never end.
        if not path.is_file():
            raise OSError("there is no such file")
        with path.open("rb") as file:
            data = file.read(SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        allowed = f"a schema that the driver can read: {error}"
        raise OptionError("value.schema.file", options.schema_file, allowed) from error
    if len(data) > SCHEMA_BYTES_MAX:
        allowed = f"a schema of at most {SCHEMA_BYTES_MAX} bytes"
        raise OptionError("value.schema.file", options.schema_file, allowed)
    name = str(path)
    parts: tuple[tuple[str, bytes], ...] = (("", data),)
    if options.format == PROTOBUF:
        parts = file_parts(name, data)
    return SchemaDocument(options.format, name, parts, options.message)
