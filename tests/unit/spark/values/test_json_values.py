"""JSON and text: what of a body becomes a value, and what is said of what does not."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from ledgermq.spark.errors import BodyError, ValueSchemaError
from ledgermq.spark.values.columns import BodyReader
from ledgermq.spark.values.json_schema import type_of_json_schema
from ledgermq.spark.values.json_text import depth_of
from ledgermq.spark.values.json_values import JsonCodec
from ledgermq.spark.values.limits import JSON_DEPTH_MAX, BadValueError
from tests.unit.spark.values.columns_of import decoded, plan_of, schema_file

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "name": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "line": {"$ref": "#/$defs/line"},
        "free": {},
    },
    "$defs": {"line": {"properties": {"isGift": {"type": "boolean"}}}},
}


def type_of(schema: Any) -> str:
    return type_of_json_schema("s", json.dumps(schema).encode()).simpleString()


def test_a_json_schema_is_a_type() -> None:
    assert type_of(ORDER) == (
        "struct<id:bigint,price:double,name:string,tags:array<string>,counts:map<string,bigint>,"
        "line:struct<isGift:boolean>,free:string>"
    )
    assert type_of({"type": "array"}) == "string"
    assert type_of({"type": ["integer", "string"]}) == "string"


def test_what_spark_calls_a_schema_is_one() -> None:
    kind = StructType().add("at", TimestampType(), nullable=False).add("m", ArrayType(DateType()))
    assert type_of_json_schema("s", kind.json().encode()) == StructType().add(
        "at", TimestampType()
    ).add("m", ArrayType(DateType()))
    with pytest.raises(ValueSchemaError, match="it is no schema of Spark"):
        type_of({"type": "struct", "fields": [{"name": "x"}]})
    with pytest.raises(ValueSchemaError, match="keys of value.m are int, not string"):
        type_of(json.loads(StructType().add("m", MapType(IntegerType(), LongType())).json()))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "#"}, "value holds itself"),
        ({"properties": {"a": {"$ref": "#/x"}}, "x": {"items": {"$ref": "#/x"}, "type": "array"}},)
        + ("value.a\\[\\] holds itself",),
        ({"$ref": "http://h/s"}, "only #/... of the same document"),
        ({"$ref": "#/nothing"}, "not there"),
        ([1], "it is a list, not an object"),
        ({"properties": {f"p{i}": {} for i in range(3000)}}, "more than 2000 fields"),
    ],
)
def test_a_schema_that_cannot_be_read_says_why(schema: Any, words: str) -> None:
    with pytest.raises(ValueSchemaError, match=words):
        type_of(schema)


def test_a_schema_that_unfolds_without_end_is_refused() -> None:
    """Each level refers twice to the next: 2 to the power of 30 fields from 2 kB."""
    defs = {
        str(i): {"properties": {"a": {"$ref": f"#/d/{i + 1}"}, "b": {"$ref": f"#/d/{i + 1}"}}}
        for i in range(30)
    }
    with pytest.raises(ValueSchemaError, match="more than 2000 fields"):
        type_of({"d": {**defs, "30": {"type": "string"}}, "$ref": "#/d/0"})


def test_values_come_as_the_schema_says(tmp_path: Path) -> None:
    plan = plan_of(format="json", schema_file=schema_file(tmp_path, json.dumps(ORDER).encode()))
    body = {"id": 7.0, "price": 1, "tags": ["a", None], "counts": {"x": 1}, "free": [1], "new": 1}
    assert decoded(plan, [json.dumps(body).encode(), b"null", b"{}"]) == [
        (
            {"id": 7, "price": 1.0, "name": None, "tags": ["a", None], "counts": [("x", 1)]}
            | {"line": None, "free": "[1]"},
            None,
        ),
        (None, None),
        (dict.fromkeys(ORDER["properties"]), None),
    ]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"id": "7"}', "value.id is '7', the schema says bigint"),
        (b'{"id": true}', "value.id is True"),
        (b'{"id": 7.5}', "value.id is 7.5"),
        (b'{"id": 9223372036854775808}', "value.id is 9223372036854775808"),
        (b'{"tags": {}}', "value.tags is {}, the schema says array"),
        (b'{"counts": [1]}', "value.counts is [1], the schema says map"),
        (b'{"line": {"isGift": 0}}', "value.line.isGift is 0, the schema says boolean"),
        (b"[]", "value is [], the schema says struct"),
        (b'{"id": 1', "truncated"),
        (b'{"id": NaN}', "malformed"),
        (b"", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[" * 100_000, "recursion"),
        (b'{"new": ' + b"[" * 64 + b"]" * 64 + b"}", "deeper than 64 levels"),
        (b'{"id": ' + b"1" * 1_000_000 + b"}", "out of range"),
        (b'{"name": "' + b"x" * 5_000_000 + b'"}', "the limit of value.maxBytes is 4194304"),
    ],
)
def test_a_bad_body_is_a_null_with_a_reason(tmp_path: Path, body: bytes, words: str) -> None:
    plan = plan_of(format="json", schema_file=schema_file(tmp_path, json.dumps(ORDER).encode()))
    (good, no_error), (value, error), (after, _) = decoded(plan, [b'{"id":1}', body, b'{"id":2}'])
    assert (good["id"], no_error, value, after["id"]) == (1, None, None, 2)
    assert error is not None and words in error and len(error) <= 300


def test_types_of_spark_that_json_has_not_are_read_from_texts(tmp_path: Path) -> None:
    kind = StructType().add("at", TimestampType()).add("day", DateType()).add("raw", BinaryType())
    kind = kind.add("sum", DecimalType(10, 2)).add("small", IntegerType())
    plan = plan_of(format="json", schema_file=schema_file(tmp_path, kind.json().encode()))
    body = b'{"at":"2026-01-02T03:04:05Z","day":"2026-01-02","raw":"AAE=","sum":1.10,"small":-1}'
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    bad = [b'{"sum": 1.234}', b'{"sum": 1e999999}', b'{"at": 5}', b'{"raw": "!"}']
    found = decoded(plan, [body, *bad, b'{"small": 2147483648}'])
    assert found[0] == (
        {"at": at, "day": date(2026, 1, 2), "raw": b"\0\1", "sum": Decimal("1.10"), "small": -1},
        None,
    )
    assert all(value is None and error for value, error in found[1:])
    codec = JsonCodec(kind)
    assert codec.decode(codec.encode(found[0][0])) == found[0][0]


def test_without_a_schema_the_text_is_kept_and_checked() -> None:
    found = decoded(plan_of(format="json"), [b' {"a": [1]}', b"{", b'"x"'])
    assert [value for value, _ in found] == [' {"a": [1]}', None, '"x"']
    assert found[1][1] and found[0][1] is None


def test_text_is_utf_8() -> None:
    found = decoded(plan_of(format="text"), ["tést".encode(), b"\xff", b""])
    assert [value for value, _ in found] == ["tést", None, ""]
    assert "can't decode byte 0xff" in (found[1][1] or "")


def test_a_read_may_be_told_to_fail() -> None:
    with pytest.raises(BodyError, match="row 1: the body is no value: .*value.errors is 'fail'"):
        decoded(plan_of(format="text", errors="fail"), [b"a", b"\xff"])


def test_a_limit_is_the_users() -> None:
    plan = plan_of(format="text", maxBytes=3)
    assert decoded(plan, [b"abc", b"abcd"]) == [
        ("abc", None),
        (None, "4 bytes, the limit of value.maxBytes is 3"),
    ]


def test_what_a_small_body_unfolds_to_is_bounded() -> None:
    """A list of empty objects: three bytes stand for as many nulls as there are fields."""
    wide = StructType()
    for i in range(1500):
        wide = wide.add(f"f{i}", LongType())
    narrow = StructType().add("f", LongType())
    assert JsonCodec(ArrayType(wide)).body_bytes_max < 200_000
    assert JsonCodec(ArrayType(narrow)).body_bytes_max > 4_000_000
    assert JsonCodec(wide).body_bytes_max > 4_000_000


def test_values_are_written_as_json() -> None:
    kind = StructType().add("a", LongType()).add("m", MapType(StringType(), DoubleType()))
    codec = JsonCodec(kind)
    assert codec.encode({"a": None, "m": [("x", 1.5), ("y", None)]}) == b'{"m":{"x":1.5,"y":null}}'
    with pytest.raises(BadValueError, match="JSON has no number nan"):
        codec.encode({"a": 1, "m": [("x", float("nan"))]})
    assert JsonCodec(StringType()).encode('{"a": 1}') == b'{"a": 1}'
    with pytest.raises(Exception, match="truncated"):
        JsonCodec(StringType()).encode('{"a"')


def test_depth_is_told_as_an_obvious_count_tells_it() -> None:
    draw = random.Random(5)

    def value(depth: int) -> Any:
        match draw.randrange(4) if depth < 80 else 0:
            case 0:
                return draw.choice(["[[[", 'a"{', "\\", 1, None])
            case 1:
                return {draw.choice(["{[", "k"]): value(depth + 1)}
            case _:
                return [value(depth + 1)]

    def depth(found: Any) -> int:
        inner = found.values() if isinstance(found, dict) else found
        return 1 + max(map(depth, inner)) if isinstance(found, dict | list) else 0

    for _ in range(2_000):
        found = value(0)
        expected = depth(found)
        text = json.dumps(found).encode()
        limit = draw.choice([1, 3, JSON_DEPTH_MAX])
        assert (depth_of(text, limit) > limit) == (expected > limit)


def test_bodies_that_unfold_to_much_together_are_not_one_batch(tmp_path: Path) -> None:
    """As many that were compressed come with one fetch: each may be decoded, all at once not."""
    wide = {"properties": {f"f{number}": {"type": "integer"} for number in range(1500)}}
    schema = json.dumps({"type": "array", "items": wide}).encode()
    plan = plan_of(format="json", schema_file=schema_file(tmp_path, schema))
    sizes = [60_000, 60_000, 60_000, 5_000_000, 170_000, 20, 20, 178_000]
    bodies = pa.array([b" " * size for size in sizes], pa.binary())
    # 178,600 bytes may have the value of 1 GiB; what is larger is not decoded.
    assert list(BodyReader(plan).parts(bodies)) == [(0, 2), (2, 4), (4, 7), (7, 8)]
    assert list(BodyReader(plan).parts(bodies.slice(0, 0))) == []
