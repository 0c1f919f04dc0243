"""Avro: types, values both ways, resolution, and bodies and schemas that mean harm."""

from __future__ import annotations

import json
import random
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ledgermq.spark.errors import MissingPackageError, ValueSchemaError
from ledgermq.spark.values.avro_values import AvroCodec
from ledgermq.spark.values.codec import SchemaDocument
from ledgermq.spark.values.limits import BadValueError
from tests.unit.spark.values.columns_of import decoded, plan_of, schema_file

LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "sum", "type": DECIMAL},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NONE", "GIFT"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "any", "type": ["null", "string", "int", "Line", "Kind"]},
        {"name": "none", "type": "null"},
    ],
}
VALUE = {
    "id": 1,
    "note": None,
    "at": datetime(2026, 1, 2, tzinfo=UTC),
    "local": datetime(2026, 1, 2, 3),
    "day": date(2026, 1, 2),
    "clock": 5,
    "ref": "12345678-1234-5678-1234-567812345678",
    "sum": Decimal("1.25"),
    "kind": "GIFT",
    "hash": b"ab",
    "counts": [("x", 1)],
    "lines": [{"sku": "a"}, {"sku": "b"}],
    "first": {"sku": "c"},
    "any": {"member0": None, "member1": None, "member2": {"sku": "d"}, "member3": None},
}


def codec_of(*schemas: Any) -> AvroCodec:
    parts = tuple(("", json.dumps(schema).encode()) for schema in schemas)
    return AvroCodec(SchemaDocument("avro", "S", parts))


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def nested(depth: int) -> dict[str, Any]:
    """A record of 2 to the power of the depth fields that take no byte."""
    schema: dict[str, Any] = record({"name": "x", "type": "null"}, name="R0")
    for i in range(1, depth):
        inner = {"name": "b", "type": schema["name"]}
        schema = record({"name": "a", "type": schema}, inner, name=f"R{i}")
    return schema


def test_values_go_there_and_back(tmp_path: Path) -> None:
    plan = plan_of(format="avro", schema_file=schema_file(tmp_path, json.dumps(ORDER).encode()))
    assert plan.spark_type.simpleString() == (
        "struct<id:bigint,note:string,at:timestamp,local:timestamp_ntz,day:date,clock:int,"
        "ref:string,sum:decimal(9,2),kind:string,hash:binary,counts:map<string,int>,"
        "lines:array<struct<sku:string>>,first:struct<sku:string>,"
        "any:struct<member0:string,member1:int,member2:struct<sku:string>,member3:string>>"
    )
    codec = codec_of(ORDER)
    body = codec.encode(json_copy(VALUE))
    assert decoded(plan, [body]) == [(VALUE, None)]
    for member in ({"member0": "t"}, {"member1": 4}, {"member3": "NONE"}):
        whole = {"member0": None, "member1": None, "member2": None, "member3": None, **member}
        body = codec.encode(json_copy({**VALUE, "any": whole}))
        assert decoded(plan, [body]) == [({**VALUE, "any": whole}, None)]


def json_copy(value: Any) -> Any:
    """A copy, all the way down: encoding takes what it is given."""
    if isinstance(value, dict):
        return {key: json_copy(one) for key, one in value.items()}
    return [json_copy(one) for one in value] if isinstance(value, list) else value


def test_bytes_are_those_of_the_specification() -> None:
    """Against bytes written by hand: zigzag 27, a length and "foo"."""
    codec = codec_of(record({"name": "a", "type": "long"}, {"name": "b", "type": "string"}))
    assert codec.decode(b"\x36\x06foo") == {"a": 27, "b": "foo"}
    assert codec.encode({"a": 27, "b": "foo"}) == b"\x36\x06foo"


def test_cut_and_flipped_bodies_end_no_read(tmp_path: Path) -> None:
    plan = plan_of(format="avro", schema_file=schema_file(tmp_path, json.dumps(ORDER).encode()))
    body = codec_of(ORDER).encode(json_copy(VALUE))
    cuts = decoded(plan, [body[:i] for i in range(len(body))] + [body + b"x"])
    assert all(value is None and error for value, error in cuts)
    assert cuts[-1][1] == "1 bytes are left behind the datum"
    draw = random.Random(3)
    flipped = []
    for _ in range(2_000):
        bad = bytearray(body)
        for _ in range(draw.randrange(1, 4)):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        flipped.append(bytes(bad))
    for value, error in decoded(plan, [*flipped, draw.randbytes(4_000)]):
        assert (value is None) == (error is not None)


def test_a_body_is_resolved_from_its_writers_schema() -> None:
    writer = codec_of(
        record(
            {"name": "id", "type": "int"},
            {"name": "gone", "type": {"type": "array", "items": "string"}},
            {"name": "sum", "type": {**DECIMAL, "scale": 3}},
        )
    )
    reader = codec_of(
        record(
            {"name": "id", "type": "long"},
            {"name": "sum", "type": {**DECIMAL, "scale": 3}},
            {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {"a": 1}},
        )
    )
    body = writer.encode({"id": 5, "gone": ["x"], "sum": Decimal("1.125")})
    found = reader.decode_from(writer, body)
    assert found == {"id": 5, "sum": Decimal("1.125"), "tags": [("a", 1)]}
    with pytest.raises(Exception, match="mismatch"):
        reader.decode_from(codec_of(record({"name": "id", "type": "int"}, name="Else")), b"\x02")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array", "items": "null"}, "items of value take no bytes"),
        ({"type": "array", "items": record()}, "items of value take no bytes"),
        (record({"name": "n", "type": ["null", "R"]}), "value.n holds itself: record R"),
        (nested(20), "more than 2000 fields"),
        (record({"name": "x", "type": "null"}), "it has no fields"),
        ({"type": "nonsense"}, "it is no Avro schema"),
        ({"type": "record", "name": "x"}, "it has no fields"),
        ([], "it has no fields"),
        (7, "it is no Avro schema"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "Spark has 38 digits"),
    ],
)
def test_a_schema_that_is_not_read_says_why(schema: Any, words: str) -> None:
    with pytest.raises(ValueSchemaError, match=words):
        assert codec_of(schema).spark_type


def test_counts_and_lengths_of_a_body_are_not_believed() -> None:
    """A count of 2 to the power of 62 items, a length as large, one below zero."""
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    for schema in ({"type": "array", "items": "long"}, {"type": "map", "values": "long"}):
        with pytest.raises(BadValueError, match="it ends within a datum"):
            codec_of(schema).decode(huge + b"\x02")
    for length in (huge, b"\x01"):
        with pytest.raises(BadValueError, match="it ends within a datum"):
            codec_of("bytes").decode(length + b"abc")


def test_what_a_small_body_unfolds_to_is_bounded() -> None:
    """An item of one byte that has a thousand fields, and one that gets them from the reader."""
    nulls = [{"name": f"n{i}", "type": "null"} for i in range(1000)]
    wide = {"type": "array", "items": record({"name": "b", "type": "boolean"}, *nulls)}
    assert codec_of(wide).body_bytes_max < 20_000
    narrow = {"type": "array", "items": record({"name": "b", "type": "boolean"})}
    assert codec_of(narrow).body_bytes_max > 1_000_000
    longs = [{"name": f"n{i}", "type": "long", "default": 0} for i in range(1000)]
    reader = codec_of({"type": "array", "items": record({"name": "b", "type": "boolean"}, *longs)})
    body = b"\xc0\xa9\x07" + b"\x01" * 60_000 + b"\0"
    assert len(body) < reader.body_bytes_max
    with pytest.raises(BadValueError, match="60004 bytes of S, limit"):
        reader.decode_from(codec_of(narrow), body)


def test_a_value_that_is_none_of_the_schema_is_refused() -> None:
    codec = codec_of(ORDER)
    for change in ({"id": None}, {"kind": "ELSE"}, {"hash": b"abc"}, {"ref": "no"}, {"any": {}}):
        with pytest.raises(Exception):  # noqa: B017
            codec.encode(json_copy({**VALUE, **change}))
    both = {"member0": "a", "member1": 1}
    with pytest.raises(BadValueError, match="2 members of a union are set"):
        codec.encode(json_copy({**VALUE, "any": both}))


def test_a_schema_may_refer_to_others() -> None:
    other = {**LINE, "namespace": "shop"}
    codec = codec_of(other, record({"name": "line", "type": "shop.Line"}))
    assert codec.spark_type.simpleString() == "struct<line:struct<sku:string>>"
    assert codec.decode(b"\x02a") == {"line": {"sku": "a"}}


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # What Python itself takes for a package that cannot be imported.
    for module in ("fastavro", "google.protobuf.descriptor_pb2"):
        monkeypatch.setitem(sys.modules, module, None)
    path = schema_file(tmp_path, b'"string"')
    for value_format, package in (("avro", "fastavro"), ("protobuf", "protobuf")):
        words = f"value.format={value_format} needs the package {package}, .* its extra values"
        with pytest.raises(MissingPackageError, match=words):
            plan_of(format=value_format, schema_file=path)
