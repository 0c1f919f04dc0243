"""Protobuf: types, values both ways, descriptors, and bodies that mean harm."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from ledgermq.spark.errors import ValueSchemaError
from ledgermq.spark.values.codec import SchemaDocument
from ledgermq.spark.values.limits import BadValueError
from ledgermq.spark.values.protobuf_values import ProtobufCodec, file_parts
from ledgermq.spark.values.wire_format import head_of, split_head, split_indexes
from tests.unit.spark.values.columns_of import decoded, plan_of, schema_file
from tests.unit.spark.values.descriptors import ORDER, file_of, set_of

VALUE = {
    "id": -5,
    "note": None,
    "at": datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC),
    "counts": [("x", 1)],
    "lines": [{"sku": "a", "price": 1.5}],
    "kind": "GIFT",
    "big": Decimal(2**64 - 1),
}
# By hand: field 1 varint, 3 a message, 4 an entry, 5 a message, 6 and 7 varints.
BODY = (
    b"\x08\xfb\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    b"\x1a\x0a\x08\xa5\xeb\xdc\xca\x06\x10\xc0\xcf\x24"
    b"\x22\x05\x0a\x01x\x10\x01"
    b"\x2a\x0c\x0a\x01a\x11\0\0\0\0\0\0\xf8\x3f"
    b"\x30\x01"
    b"\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
)


def codec_of(text: str, message: str = "") -> ProtobufCodec:
    return ProtobufCodec(SchemaDocument("protobuf", "S", file_parts("S", set_of(text)), message))


def test_values_go_there_and_back(tmp_path: Path) -> None:
    plan = plan_of(format="protobuf", schema_file=schema_file(tmp_path, set_of(ORDER)))
    assert plan.spark_type.simpleString() == (
        "struct<id:bigint,note:string,at:timestamp,counts:map<string,int>,"
        "lines:array<struct<sku:string,price:double>>,kind:string,big:decimal(20,0)>"
    )
    found = decoded(plan, [BODY, b"", b"\x12\0\x30\x09"])
    assert found[0] == (VALUE, None)
    empty = {"id": 0, "note": None, "at": None, "counts": [], "lines": [], "kind": "NONE"}
    assert found[1] == ({**empty, "big": 0}, None)
    # Presence is kept, and the number of an enum that the schema does not know.
    assert found[2] == ({**empty, "note": "", "kind": "9", "big": 0}, None)
    codec = codec_of(ORDER)
    assert codec.decode(codec.encode(VALUE)) == codec.decode(BODY)
    for change in ({"id": 2**63}, {"kind": "ELSE"}, {"lines": [None]}, {"id": "x"}):
        with pytest.raises(Exception):  # noqa: B017
            codec.encode({**VALUE, **change})


def test_cut_and_flipped_bodies_end_no_read(tmp_path: Path) -> None:
    plan = plan_of(format="protobuf", schema_file=schema_file(tmp_path, set_of(ORDER)))
    draw = random.Random(4)
    bodies = [BODY[:i] for i in range(len(BODY))]
    for _ in range(2_000):
        bad = bytearray(BODY)
        bad[draw.randrange(len(bad))] = draw.randrange(256)
        bodies.append(bytes(bad))
    found = decoded(plan, bodies)
    assert {(value is None) == (error is not None) for value, error in found} == {True}
    assert 0 < len([error for _, error in found if error]) < len(found)


def test_times_and_texts_that_are_none(tmp_path: Path) -> None:
    plan = plan_of(format="protobuf", schema_file=schema_file(tmp_path, set_of(ORDER)))
    far = b"\x1a\x0c\x08" + b"\xff" * 8 + b"\x7f\x10\0"
    (_, first), (_, second) = decoded(plan, [far, b"\x12\x02\xff\xfe"])
    assert "not in the years 1 to 9999" in (first or "")
    assert "DecodeError" in (second or "")


def test_messages_are_chosen_by_name(tmp_path: Path) -> None:
    path = schema_file(tmp_path, set_of(ORDER))
    for name, kind in (("shop.Other", "struct<id:bigint>"), ("shop.Order.Line", "struct<sku:")):
        plan = plan_of(format="protobuf", schema_file=path, schema_message=name)
        assert plan.spark_type.simpleString().startswith(kind)
    with pytest.raises(ValueSchemaError, match="no message nobody; it has shop.Order, shop.Other"):
        plan_of(format="protobuf", schema_file=path, schema_message="nobody")


def test_known_messages_are_what_spark_has() -> None:
    codec = codec_of("""
        name: "known.proto" syntax: "proto3"
        dependency: "google/protobuf/wrappers.proto" dependency: "google/protobuf/struct.proto"
        dependency: "google/protobuf/empty.proto"
        message_type { name: "Known"
          field { name: "count" number: 1 type: TYPE_MESSAGE label: LABEL_OPTIONAL
                  type_name: ".google.protobuf.Int64Value" }
          field { name: "free" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL
                  type_name: ".google.protobuf.Struct" }
          field { name: "mark" number: 3 type: TYPE_MESSAGE label: LABEL_OPTIONAL
                  type_name: ".google.protobuf.Empty" }
          field { name: "names" number: 4 type: TYPE_MESSAGE label: LABEL_REPEATED
                  type_name: ".google.protobuf.StringValue" } }
    """)
    assert codec.spark_type.simpleString() == "struct<count:bigint,free:string,names:array<string>>"
    value = {"count": 0, "free": '{"a": [1.0, null]}', "names": ["x", ""]}
    assert codec.decode(codec.encode(value)) == value
    assert codec.decode(b"") == {"names": []}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'name: "a" message_type { name: "A" field { name: "a" number: 1 type: TYPE_MESSAGE'
            ' label: LABEL_OPTIONAL type_name: ".A" } }',
            "value.a holds itself: message A",
        ),
        ('name: "a"', "it has no messages"),
        ('name: "a" message_type { name: "A" }', "message A has no fields"),
        ('name: "a" dependency: "b.proto"', "its descriptors cannot be read: .*b.proto"),
        ('name: "a" dependency: "google/protobuf/../os.proto"', "descriptors cannot be read"),
        (
            'name: "a" message_type { name: "A" field { name: "a" number: 1 type: TYPE_MESSAGE'
            ' label: LABEL_OPTIONAL type_name: ".B" } }',
            "its descriptors cannot be read",
        ),
    ],
)
def test_descriptors_that_are_not_read_say_why(text: str, words: str) -> None:
    with pytest.raises(ValueSchemaError, match=words):
        assert codec_of(text).spark_type


def test_a_file_that_holds_no_descriptors_says_so(tmp_path: Path) -> None:
    for data in (b'syntax = "proto3"; message A {}', b"", b"\xff\xff"):
        path = schema_file(tmp_path, data)
        with pytest.raises(ValueSchemaError, match="descriptor_set_out"):
            plan_of(format="protobuf", schema_file=path)


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7]) if number > 0x7F else bytes([number])


def test_a_deep_body_is_refused() -> None:
    """A column of a message that holds itself: a list in a list, ..., two hundred deep."""
    codec = codec_of("""
        name: "r.proto" dependency: "google/protobuf/struct.proto"
        message_type { name: "R"
          field { name: "free" number: 1 type: TYPE_MESSAGE label: LABEL_OPTIONAL
                  type_name: ".google.protobuf.Value" } }
    """)
    # Values of one list_value each, that of one value each.
    deep = b""
    for _ in range(100):
        for tag in (b"\x0a", b"\x32"):
            deep = tag + _varint(len(deep)) + deep
    with pytest.raises(Exception, match="MaxDepth"):
        codec.decode(b"\x0a" + _varint(len(deep)) + deep)


def test_required_fields_are_required() -> None:
    codec = codec_of(
        'name: "a" message_type { name: "A" field { name: "x" number: 1 type: TYPE_INT32'
        " label: LABEL_REQUIRED } }"
    )
    with pytest.raises(Exception, match="x"):
        codec.decode(b"")
    with pytest.raises(Exception, match="x"):
        codec.encode({})


def test_what_a_small_body_unfolds_to_is_bounded() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="w.proto", package="w", syntax="proto3")
    item = file.message_type.add(name="Item")
    for i in range(1, 1001):
        item.field.add(name=f"f{i}", number=i, type=3, label=1)
    file.message_type.add(name="List").field.add(
        name="items", number=1, type=11, label=3, type_name=".w.Item"
    )
    parts = (("", file.SerializeToString()),)
    codec = ProtobufCodec(SchemaDocument("protobuf", "S", parts, "w.List"))
    assert codec.body_bytes_max < 100_000
    assert codec_of(ORDER).body_bytes_max > 4_000_000


def test_the_head_is_confluents() -> None:
    """Against bytes written by hand, from the description of the wire format."""
    assert head_of(1, None) == b"\0\0\0\0\1"
    assert head_of(258, (0,)) == b"\0\0\0\1\2\0"
    assert head_of(1, (1, 0)) == b"\0\0\0\0\1\4\2\0"
    assert split_head(b"\0\0\0\1\2rest") == (258, 5)
    assert split_indexes(b"\0rest", 0) == ((0,), 1)
    assert split_indexes(b"\4\2\0rest", 0) == ((1, 0), 3)
    for number in (0, 1, 63, 64, 300, 2**20):
        assert split_indexes(head_of(1, (number, 1)), 5)[0] == (number, 1)
    for body, words in (
        (b"\0\0\0", "3 bytes are too short"),
        (b'{"a":1}', "it begins with 0x7b"),
        (b"\0\xff\xff\xff\xff", "the id of its schema is -1"),
    ):
        with pytest.raises(BadValueError, match=words):
            split_head(body)
    for indexes in (b"", b"\x02", b"\x01", b"\x40", b"\xff" * 9, b"\x02\x01"):
        with pytest.raises(BadValueError):
            split_indexes(indexes, 0)


def test_a_place_in_a_file_and_a_name_are_one() -> None:
    for name, indexes in (("shop.Order", (0,)), ("shop.Other", (1,)), ("shop.Order.Line", (0, 1))):
        codec = codec_of(ORDER, name)
        assert codec.indexes() == indexes
        assert codec.name_at(indexes) == name
    with pytest.raises(BadValueError, match="no message at"):
        codec_of(ORDER).name_at((0, 7))
    assert [one.name for one in file_of(ORDER).message_type[0].nested_type][1] == "Line"
