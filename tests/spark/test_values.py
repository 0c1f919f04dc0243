"""Typed values in a real Spark session, over a real broker: tables, streams and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Message
from ledgermq.spark import SparkSourceError
from ledgermq.spark.values.wire_format import head_of
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.schema_registry import SchemaRegistry, running_registry
from tests.spark.session import patiently
from tests.spark.topics import send_all
from tests.unit.spark.values.descriptors import ORDER, set_of
from tests.unit.spark.values.test_protobuf_values import BODY

pytestmark = pytest.mark.timeout(900)
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}
JSON_PERSON = {"properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as served:
        yield served


@pytest.fixture(scope="module")
def json_topic(cluster: UpCluster) -> str:
    bodies = [json.dumps({"id": number, "name": f"n{number}"}).encode() for number in range(20)]
    bodies += [b"{", b'{"id": "7"}']
    send_all(cluster.name_server, [Message("JsonValues", body) for body in bodies])
    return "JsonValues"


@pytest.fixture(scope="module")
def json_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("schemas") / "person.json"
    path.write_text(json.dumps(JSON_PERSON))
    return str(path)


def options_of(cluster: UpCluster, topic: str, **given: str) -> dict[str, str]:
    options = {f"value.{name.replace('_', '.')}": text for name, text in given.items()}
    return {"nameServer": cluster.name_server, "topic": topic, **options}


def test_a_table_of_values_keeps_bodies_and_tells_errors(
    spark: Any, cluster: UpCluster, json_topic: str, json_file: str
) -> None:
    options = options_of(cluster, json_topic, format="json", schema_file=json_file)
    frame = spark.read.format("rocketmq").options(**options).load()
    assert frame.columns[-2:] == ["value", "value_error"] and "body" in frame.columns
    rows = frame.select("body", "value.*", "value_error").collect()
    good = {row.id: row.name for row in rows if row.value_error is None}
    assert good == {number: f"n{number}" for number in range(20)}
    bad = {bytes(row.body): row.value_error for row in rows if row.value_error}
    assert bad.keys() == {b"{", b'{"id": "7"}'}
    assert "value.id is '7', the schema says bigint" in bad[b'{"id": "7"}']
    failing = spark.read.format("rocketmq").options(**options, **{"value.errors": "fail"})
    with pytest.raises(Exception, match="of topic JsonValues on .* the body is no value"):
        failing.load().collect()


def test_columns_of_values_are_chosen(cluster: UpCluster, json_topic: str, json_file: str) -> None:
    options = options_of(cluster, json_topic, format="json", schema_file=json_file)
    assert list(direct.read_rows({**options, "columns": "value,queueId"})[0]) == [
        "value",
        "queueId",
    ]
    chosen = direct.read_rows({**options, "columns": "queueOffset", "fetchBytes": 16384})
    assert list(chosen[0]) == ["queueOffset", "value", "value_error"] and len(chosen) == 22
    with pytest.raises(SparkSourceError, match="value only with another value.format"):
        direct.read_rows(options_of(cluster, json_topic) | {"columns": "value"})
    with pytest.raises(SparkSourceError, match="the body is no value"):
        direct.read_rows({**options, "value.errors": "fail"})


def test_rows_of_a_wide_schema_come_in_several_batches(cluster: UpCluster, tmp_path: Path) -> None:
    """A row of 1,900 nulls costs 15 kB: what one fetch of small bodies brings would be too much."""
    wide = {"properties": {f"f{number}": {"type": "integer"} for number in range(1900)}}
    path = tmp_path / "wide.json"
    path.write_text(json.dumps(wide))
    bodies = [b'{"f7": %d}' % number for number in range(12_000)]
    send_all(cluster.name_server, [Message("WideValues", body) for body in bodies])
    options = options_of(cluster, "WideValues", format="json", schema_file=str(path))
    source = direct.source_of({**options, "columns": "queueOffset,value,body"})
    reader = source.reader(source.schema())
    found = []
    for part in reader.partitions():
        batches = list(reader.read(part))
        assert len(batches) > 1 and max(batch.num_rows for batch in batches) <= 2_207
        offsets = [offset for batch in batches for offset in batch.column(0).to_pylist()]
        assert offsets == list(range(len(offsets)))
        for batch in batches:
            numbers = batch.column("value").field("f7").to_pylist()
            assert batch.column("body").to_pylist() == [b'{"f7": %d}' % one for one in numbers]
            found += numbers
    assert sorted(found) == list(range(12_000))


def test_a_stream_of_values_of_a_registry_from_rows_that_were_written(
    spark: Any, cluster: UpCluster, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """Rows to bodies and back, both by the registry; the writer's schema is an older version."""
    first = registry.register("AvroValues-value", PERSON)
    options = options_of(cluster, "AvroValues", format="avro", schema_registry=registry.url)
    frame = spark.range(30).selectExpr(
        "named_struct('id', id, 'name', if(id = 3, null, concat('n', id)), 'tags', array('t'))"
        " as value",
        "concat('k', id) as keys",
    )
    frame.write.format("rocketmq").mode("append").options(**options).save()
    raw = direct.read_written({"nameServer": cluster.name_server, "topic": "AvroValues"})
    assert len(raw) == 30 and {row["body"][:5] for row in raw} == {head_of(first, None)}
    more = {"name": "more", "type": "int", "default": 9}
    registry.register("AvroValues-value", {**PERSON, "fields": [*PERSON["fields"], more]})
    send_all(cluster.name_server, [Message("AvroValues", b"no head")])
    found: list[Any] = []
    reader = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest")
    stream = reader.load().select("keys", "value", "value_error").writeStream
    stream = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    stream = stream.foreachBatch(lambda rows, _: found.extend(rows.collect()))
    assert patiently(lambda: stream.start().awaitTermination(800))
    by_key = {row["keys"]: row.value for row in found if row.value_error is None}
    assert by_key.keys() == {f"k{number}" for number in range(30)} and len(found) == 31
    for number in range(30):
        name = None if number == 3 else f"n{number}"
        assert by_key[f"k{number}"].asDict() == {
            "id": number, "name": name, "tags": ["t"], "more": 9,
        }  # fmt: skip
    assert [row.value_error for row in found if row.value_error] == [
        "it begins with 0x6e, not with 0 and the id of a schema"
    ]


def test_protobuf_by_a_file_of_descriptors(spark: Any, cluster: UpCluster, tmp_path: Path) -> None:
    path = tmp_path / "order.desc"
    path.write_bytes(set_of(ORDER))
    options = options_of(cluster, "ProtoValues", format="protobuf", schema_file=str(path))
    send_all(cluster.name_server, [Message("ProtoValues", BODY), Message("ProtoValues", b"\x08")])
    frame = spark.read.format("rocketmq").options(**options).load()
    rows = frame.orderBy("value_error").collect()
    assert [row.value is None for row in rows] == [False, True]
    value = rows[0].value
    assert (value.id, value.counts, value.lines[0].price, value.kind) == (-5, {"x": 1}, 1.5, "GIFT")
    assert value.at.microsecond == 600 and int(value.big) == 2**64 - 1
    copy = {**options, "topic": "ProtoCopy"}
    good = frame.where("value is not null").select("value")
    good.write.format("rocketmq").mode("append").options(**copy).save()
    (again,) = direct.read_written(copy)
    first = next(row for row in direct.read_rows(options) if row["value"])
    assert again["value"] == first["value"] and again["value_error"] is None


def test_text_and_json_without_a_schema_are_written(spark: Any, cluster: UpCluster) -> None:
    for value_format, column, body in (
        ("text", "'tést'", "tést".encode()),
        (
            "json",
            "named_struct('at', timestamp'2026-01-02 03:04:05 UTC', 'm', map('x', 1.5D))",
        )
        + (b'{"at":"2026-01-02T03:04:05Z","m":{"x":1.5}}',),
    ):
        options = options_of(cluster, f"Plain{value_format}", format=value_format)
        frame = spark.range(1).selectExpr(f"{column} as value")
        frame.write.format("rocketmq").mode("append").options(**options).save()
        (row,) = direct.read_written(options)
        assert (row["body"], row["value"]) == (body, body.decode())


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("named_struct('id', 'x') as value", "column value.id is string; allowed: bigint"),
        ("named_struct('nobody', 1) as value", "column value.nobody is unknown; allowed: id, name"),
        ("'x' as body", "column body is unknown; allowed: topic, value"),
        ("'x' as keys", "column value is missing"),
        ("1 as value", "column value is int; allowed: struct<id:bigint,name:string>"),
        ("cast(null as struct<id: bigint>) as value", "its value is null"),
        ("'{' as value", "row .* is no message: .*truncated"),
    ],
)
def test_values_that_cannot_be_written_are_named(
    spark: Any, cluster: UpCluster, json_file: str, column: str, words: str
) -> None:
    options = options_of(cluster, "RefusedValues", format="json", schema_file=json_file)
    frame = spark.range(1).selectExpr(column)
    with pytest.raises(Exception, match=words):
        frame.write.format("rocketmq").mode("append").options(**options).save()
