"""Descriptors of Protobuf for tests, written down as text: what protoc makes of their sources."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, text_format

# message Order { int64 id = 1; optional string note = 2; google.protobuf.Timestamp at = 3;
#                 map<string, int32> counts = 4; repeated Line lines = 5; Kind kind = 6;
#                 uint64 big = 7; message Line { string sku = 1; double price = 2; } }
ORDER = """
name: "order.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/timestamp.proto"
message_type { name: "Order"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "note" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL
          proto3_optional: true oneof_index: 0 }
  field { name: "at" number: 3 type: TYPE_MESSAGE label: LABEL_OPTIONAL
          type_name: ".google.protobuf.Timestamp" }
  field { name: "counts" number: 4 type: TYPE_MESSAGE label: LABEL_REPEATED
          type_name: ".shop.Order.CountsEntry" }
  field { name: "lines" number: 5 type: TYPE_MESSAGE label: LABEL_REPEATED
          type_name: ".shop.Order.Line" }
  field { name: "kind" number: 6 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".shop.Kind" }
  field { name: "big" number: 7 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  oneof_decl { name: "_note" }
  nested_type { name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL } }
  nested_type { name: "Line"
    field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "price" number: 2 type: TYPE_DOUBLE label: LABEL_OPTIONAL } } }
message_type { name: "Other"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL } }
enum_type { name: "Kind" value { name: "NONE" number: 0 } value { name: "GIFT" number: 1 } }
"""


def file_of(text: str) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of one file."""
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())


def set_of(*texts: str) -> bytes:
    """What ``protoc --descriptor_set_out`` writes for some files."""
    files = descriptor_pb2.FileDescriptorSet()
    files.file.extend(file_of(text) for text in texts)
    return files.SerializeToString()
