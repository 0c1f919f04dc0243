"""What a body costs that becomes a value: processor time of the Python side, for each format.

python -m bench.bench_values

A flat record of five fields, and one with a list of four lines of two fields each; the value column
as a task makes it, from Arrow bytes to an Arrow struct. What the read costs besides is in
bench_columns.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2
from pyspark.sql.types import StructField, StructType

from ledgermq.spark.batches import arrow_schema
from ledgermq.spark.values.codec import SchemaDocument
from ledgermq.spark.values.columns import BodyReader
from ledgermq.spark.values.schemas import ValuePlan, codec_of
from ledgermq.spark.values.value_options import ValueOptions

COUNT = 20_000
ROUNDS = 5
LINES = 4


def avro_schema(*, has_lines: bool) -> dict[str, Any]:
    """Five fields, or those and a list."""
    kinds = {"id": "long", "name": "string", "price": "double", "paid": "boolean", "count": "int"}
    fields: list[dict[str, Any]] = [{"name": name, "type": kind} for name, kind in kinds.items()]
    if has_lines:
        inner = [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]
        item = {"type": "record", "name": "Line", "fields": inner}
        fields.append({"name": "lines", "type": {"type": "array", "items": item}})
    return {"type": "record", "name": "Order", "fields": fields}


def protobuf_file(*, has_lines: bool) -> bytes:
    """The same as a message."""
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", syntax="proto3")
    order = file.message_type.add(name="Order")
    for i, (name, kind) in enumerate(
        zip(("id", "name", "price", "paid", "count"), (3, 9, 1, 8, 5), strict=True)
    ):
        order.field.add(name=name, number=i + 1, type=kind, label=1)
    if has_lines:
        line = file.message_type.add(name="Line")
        line.field.add(name="sku", number=1, type=9, label=1)
        line.field.add(name="n", number=2, type=5, label=1)
        order.field.add(name="lines", number=6, type=11, label=3, type_name=".Line")
    return file.SerializeToString()


def value_of(number: int, *, has_lines: bool) -> dict[str, Any]:
    """One value."""
    found: dict[str, Any] = {
        "id": number, "name": f"name {number}", "price": number / 4, "paid": True, "count": 7,
    }  # fmt: skip
    if has_lines:
        found["lines"] = [{"sku": f"sku-{i}", "n": i} for i in range(LINES)]
    return found


def microseconds_a_body(value_format: str, *, has_lines: bool) -> float:
    """Processor time of the best of some rounds."""
    document: SchemaDocument | None = None
    avro = json.dumps(avro_schema(has_lines=has_lines)).encode()
    if value_format == "protobuf":
        data = protobuf_file(has_lines=has_lines)
        document = SchemaDocument("protobuf", "bench", (("", data),), "Order")
    elif value_format == "avro":
        document = SchemaDocument("avro", "bench", (("", avro),))
    elif value_format == "json":
        kind = codec_of("avro", SchemaDocument("avro", "bench", (("", avro),))).spark_type
        document = SchemaDocument("json", "bench", (("", kind.json().encode()),))
    codec = codec_of(value_format, document)
    values = (value_of(number, has_lines=has_lines) for number in range(COUNT))
    if value_format == "text":
        bodies = [json.dumps(value).encode() for value in values]
    else:
        bodies = [codec.encode(value) for value in values]
    plan = ValuePlan(
        options=ValueOptions(format=value_format),
        document=document,
        schema_id=None,
        timeout_s=1,
        spark_type=codec.spark_type,
    )
    array = pa.array(bodies, pa.binary())
    kind = arrow_schema(StructType([StructField("value", codec.spark_type)])).field(0).type
    reader, best = BodyReader(plan), float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        _, errors = reader.columns(array, kind, str)
        best = min(best, time.process_time() - begin)
        assert errors.null_count == COUNT
    return best / COUNT * 1e6


def main() -> None:
    """Prints the table."""
    print("| format | flat, us a body | with a list of structs |")
    print("|---|---|---|")
    for value_format in ("text", "json", "avro", "protobuf"):
        flat, deep = (microseconds_a_body(value_format, has_lines=one) for one in (False, True))
        print(f"| {value_format} | {flat:.2f} | {deep:.2f} |")


if __name__ == "__main__":
    main()
