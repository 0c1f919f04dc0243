"""Values by a registry: ids in bodies, references, accounts, outages, and hostile answers."""

from __future__ import annotations

import contextlib
import json
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructType

from ledgermq.spark.errors import ClusterError, OptionError, ValueSchemaError
from ledgermq.spark.values.registry import Registry
from ledgermq.spark.values.rows import BodyWriter
from ledgermq.spark.values.value_options import RegistryAddress
from tests.spark.schema_registry import SchemaRegistry, running_registry
from tests.unit.spark.values.columns_of import decoded, plan_of
from tests.unit.spark.values.descriptors import ORDER, file_of

V1 = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
V2 = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": "string", "default": "?"}],
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as served:
        yield served


def head(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def avro_plan(registry: SchemaRegistry, **given: object) -> Any:
    return plan_of(format="avro", schema_registry=registry.url, **given)


def test_bodies_of_all_versions_come_as_the_latest(registry: SchemaRegistry) -> None:
    first, second = registry.register("T-value", V1), registry.register("T-value", V2)
    plan = avro_plan(registry)
    assert plan.spark_type.simpleString() == "struct<id:bigint,n:string>"
    registry.asked.clear()
    bodies = [head(first) + b"\x0a", head(second) + b"\x0c\x02x", head(first) + b"\x0e"]
    assert (
        decoded(plan, bodies * 50)
        == [
            ({"id": 5, "n": "?"}, None),
            ({"id": 6, "n": "x"}, None),
            ({"id": 7, "n": "?"}, None),
        ]
        * 50
    )
    assert registry.asked == [f"/schemas/ids/{first}"], "each is asked for once, the latest never"


def test_bodies_that_name_no_schema_are_nulls(registry: SchemaRegistry) -> None:
    good = registry.register("T-value", V1)
    other = registry.register("else", {"type": "object"}, "JSON")
    endless = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
    recursive = registry.register("recursive", endless)
    plan = avro_plan(registry)
    bodies = [b"{}", b"\x01" + head(good)[1:] + b"\x02", head(99) + b"\x02", head(99) + b"\x02"]
    bodies += [head(other) + b"{}", head(recursive) + b"\x02" * 4_000_000, head(good) + b"\x02"]
    registry.asked.clear()
    found = decoded(plan, bodies)
    assert [value for value, _ in found] == [None] * 6 + [{"id": 1}]
    errors = [error or "" for _, error in found]
    words = ["too short", "begins with 0x01", "does not know /schemas/ids/99", "/schemas/ids/99"]
    for error, word in zip(errors, [*words, "is of json", "holds itself", ""], strict=True):
        assert word in error
    assert registry.asked.count("/schemas/ids/99") == 1


def test_ids_without_a_schema_are_not_looked_up_for_ever(registry: SchemaRegistry) -> None:
    registry.register("T-value", V1)
    plan = avro_plan(registry)
    registry.asked.clear()
    found = decoded(plan, [head(number) + b"\x02" for number in range(10, 1_510)])
    assert all(value is None for value, _ in found)
    assert "was not looked up" in (found[-1][1] or "")
    assert len(registry.asked) == 1_000


def test_a_subject_has_a_default_and_may_have_any_name(registry: SchemaRegistry) -> None:
    registry.register("a/b ü", V1)
    assert avro_plan(registry, schema_subject="a/b ü").schema_id == 1
    with pytest.raises(OptionError, match="subject is 'T-value'; .*does not know /subjects/T-val"):
        avro_plan(registry)
    with pytest.raises(ValueSchemaError, match="it is of avro, value.format is 'json'"):
        plan_of(format="json", schema_registry=registry.url, schema_subject="a/b ü")


def test_the_file_gives_the_columns_and_the_registry_the_writers(
    registry: SchemaRegistry, tmp_path: Path
) -> None:
    first = registry.register("whatever", V1)
    path = tmp_path / "v2.avsc"
    path.write_text(json.dumps(V2))
    plan = avro_plan(registry, schema_file=path)
    assert registry.asked == []
    assert decoded(plan, [head(first) + b"\x0a"]) == [({"id": 5, "n": "?"}, None)]


def test_references_are_followed(registry: SchemaRegistry) -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
    registry.register("line", line)
    one = {"name": "Line", "subject": "line", "version": 1}
    order = {"type": "record", "name": "O", "fields": [{"name": "line", "type": "Line"}]}
    number = registry.register("T-value", order, "AVRO", [one])
    plan = avro_plan(registry)
    assert decoded(plan, [head(number) + b"\x02a"]) == [({"line": {"sku": "a"}}, None)]
    registry.register("T-value", order, "AVRO", [{**one, "version": 7}])
    with pytest.raises(ValueSchemaError, match="a reference is missing"):
        avro_plan(registry)
    circle = {"name": "C", "subject": "circle", "version": 1}
    registry.register("circle", order, "AVRO", [circle])
    registry.register("T-value", order, "AVRO", [circle])
    with pytest.raises(ValueSchemaError, match="go in a circle"):
        avro_plan(registry)


def test_messages_of_protobuf_by_their_place(registry: SchemaRegistry) -> None:
    file = file_of(ORDER)
    file.dependency.append("line.proto")
    file.message_type[1].field.add(name="tax", number=2, type=11, label=1, type_name=".shop.Tax")
    tax = file_of('name: "x" package: "shop" message_type { name: "Tax" field { name: "p"'
                  " number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }")  # fmt: skip
    registry.register("tax", tax.SerializeToString(), "PROTOBUF")
    one = {"name": "line.proto", "subject": "tax", "version": 1}
    number = registry.register("T-value", file.SerializeToString(), "PROTOBUF", [one])
    given = {"format": "protobuf", "schema_registry": registry.url}
    assert decoded(plan_of(**given), [head(number) + b"\0\x08\x05"])[0][0]["id"] == 5
    plan = plan_of(**given, schema_message="shop.Other")
    assert plan.spark_type.simpleString() == "struct<id:bigint,tax:struct<p:int>>"
    bodies = [b"\x02\x02\x08\x05\x12\x02\x08\x07", b"\0\x08\x05", b"\x02\x14\x08\x05", b"\x02"]
    found = decoded(plan, [head(number) + body for body in bodies])
    assert found[0] == ({"id": 5, "tax": {"p": 7}}, None)
    words = ("it is a message shop.Order, not shop.Other", "has no message at", "ends within")
    for (value, error), word in zip(found[1:], words, strict=True):
        assert value is None and word in (error or "")
    writer = BodyWriter(plan, plan.spark_type)
    assert writer.encode({"id": 5, "tax": {"p": 7}}) == head(number) + bodies[0]


def test_values_are_written_with_the_head(registry: SchemaRegistry) -> None:
    number = registry.register("T-value", V2)
    plan = avro_plan(registry)
    writer = BodyWriter(plan, plan.spark_type)
    assert writer.encode({"id": 3, "n": "x"}) == head(number) + b"\x06\x02x"
    assert decoded(plan, [writer.encode({"id": 3})]) == [({"id": 3, "n": "?"}, None)]
    number = registry.register("J-value", {"properties": {"id": {"type": "integer"}}}, "JSON")
    plan = plan_of(format="json", schema_registry=registry.url, schema_subject="J-value")
    body = BodyWriter(plan, StructType().add("id", LongType())).encode({"id": 3})
    assert body == head(number) + b'{"id":3}'
    assert decoded(plan, [body]) == [({"id": 3}, None)]


def test_an_account_is_asked_for_and_not_shown(registry: SchemaRegistry) -> None:
    registry.register("T-value", V1)
    registry.account = "me:päss"
    account = {"schema_registry_user": "me", "schema_registry_password": "päss"}
    plan = avro_plan(registry, **account)
    assert plan.schema_id == 1
    assert "päss" not in repr(plan)
    with pytest.raises(ClusterError, match="401"):
        avro_plan(registry)


def test_an_outage_is_waited_for_and_is_no_fault_of_a_body(registry: SchemaRegistry) -> None:
    first = registry.register("T-value", V1)
    registry.register("T-value", V2)
    registry.failures = [503, 500, 429]
    plan = avro_plan(registry)
    registry.failures = [502] * 1_000
    with pytest.raises(ClusterError, match="502 .*tried for 2 s"):
        decoded(plan, [head(first) + b"\x02"])
    with pytest.raises(ClusterError, match="registry http://127.0.0.1:1: .*tried for 2 s"):
        plan_of(format="avro", schema_registry="http://127.0.0.1:1")


def test_an_answer_that_never_ends_is_given_up(registry: SchemaRegistry) -> None:
    """Each byte comes before the socket's timeout; all of them would take a minute."""
    registry.register("T-value", V1)
    registry.pause_s = 0.3
    begun_s = time.monotonic()
    with pytest.raises(ClusterError, match="the answer took more than 2 s"):
        avro_plan(registry)
    assert time.monotonic() - begun_s < 20


def test_redirects_are_not_followed(registry: SchemaRegistry) -> None:
    """They would carry the account to wherever they lead."""
    registry.register("T-value", V1)
    registry.failures = [302]
    with pytest.raises(ClusterError, match="302"):
        avro_plan(registry)
    assert "/elsewhere" not in registry.asked


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"x" * 5_000_000, "more than 4194304 B"),
        (b"<html>", "is answered with no schema"),
        (b"[" * 100_000, "is answered with no schema"),
        (b'{"schema": 5, "id": 1}', "is answered with no schema"),
        (b'{"schema": "\\"int\\""}', "has the id -1"),
        (b'{"schema": "x", "id": 1, "schemaType": "XML"}', "its type is 'XML'"),
        (b'{"schema": "x", "id": 1}', "it is no JSON"),
        (b'{"schema": "syntax = 3;", "id": 1, "schemaType": "PROTOBUF"}', "gives it as source"),
        (b'{"schema": "aaaa", "id": 1, "schemaType": "PROTOBUF"}', "value.format is 'avro'"),
    ],
)
def test_an_answer_that_is_no_schema_says_why(
    registry: SchemaRegistry, body: bytes, words: str
) -> None:
    registry.body = body
    with pytest.raises((ClusterError, ValueSchemaError), match=words):
        avro_plan(registry)


def test_a_plan_travels_to_tasks(registry: SchemaRegistry) -> None:
    number = registry.register("T-value", V1)
    registry.account = "me:secret"
    account = {"schema_registry_user": "me", "schema_registry_password": "secret"}
    plan = pickle.loads(pickle.dumps(avro_plan(registry, **account)))
    registry.register("T-value", V2)
    bodies = [head(number) + b"\x02", head(number + 1) + b"\x04\0"]
    assert [value for value, _ in decoded(plan, bodies)] == [{"id": 1}, None]
    with pytest.raises(OptionError, match="password is missing"):
        avro_plan(registry, schema_registry_user="me")


def test_an_answer_that_drips_is_not_waited_for() -> None:
    """Each byte of its head comes within the time for a read, and there is no end to them."""
    dripped = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            listening.close()
            with connection, contextlib.suppress(OSError):
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                # Half a minute, where a second is allowed.
                while len(dripped) < 300:
                    connection.sendall(b"X")
                    dripped.append(1)
                    threading.Event().wait(0.1)

        thread = threading.Thread(target=drip)
        thread.start()
        address = RegistryAddress(url=f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(ClusterError, match=r"timed out|took more than|refused"):
            Registry(address, 1.0).by_id(3)
        thread.join()
    assert 0 < len(dripped) < 150
