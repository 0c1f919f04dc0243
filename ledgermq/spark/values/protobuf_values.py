"""Protobuf: bodies as values of a Spark type, and back, by Google's package.

A schema is a set of descriptors, as `protoc --descriptor_set_out=F --include_imports` writes it, or
what a registry gives for `?format=serialized`. Files of `google/protobuf/` need not be in it.
"""

from typing import Any, Final

from pyspark.sql.types import DataType

from ledgermq.spark.errors import ValueSchemaError
from ledgermq.spark.values.codec import SchemaDocument, load_protobuf
from ledgermq.spark.values.limits import BadValueError, body_bytes_max, item_nodes, shortened
from ledgermq.spark.values.protobuf_types import ProtobufWalk

# A field of a parsed message and its entry in a dict; a message as an item takes two bytes.
_SLOTS_PER_NODE: Final = 4
_ITEM_BYTES: Final = 2
_KNOWN_FILES: Final = "google/protobuf/"
# Those that come with the package, without descriptors of compilers.
_KNOWN: Final = frozenset(
    ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct")
    + ("timestamp", "type", "wrappers")
)


class ProtobufCodec:
    """Bodies as one message of a schema."""

    def __init__(self, document: SchemaDocument) -> None:
        """Reads a schema.

        Raises:
            MissingPackageError: protobuf is not installed.
            ValueSchemaError: it is no schema, or one that is not read here.
        """
        self.name = document.name
        self._file = _loaded(document)
        self._descriptor = self._chosen(document.message)
        self.full_name: str = self._descriptor.full_name
        factory = load_protobuf("message_factory")
        self._class = factory.GetMessageClass(self._descriptor)
        self._type = ProtobufWalk(document.name).type_of(self._descriptor, "value")
        # A message as the column itself is always shown as its fields, or not at all.
        kind = self._type.spark_type
        nodes = 0 if kind is None else item_nodes(kind)
        self.body_bytes_max = body_bytes_max(_SLOTS_PER_NODE * max(2.0, nodes / _ITEM_BYTES))

    @property
    def spark_type(self) -> DataType:
        """The type of the column.

        Raises:
            ValueSchemaError: there is nothing to show.
        """
        if self._type.spark_type is None:
            raise ValueSchemaError(self.name, f"message {self.full_name} has no fields")
        return self._type.spark_type

    def decode(self, body: bytes) -> Any:
        """Returns the value; see Codec."""
        message = self._class.FromString(body)
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise BadValueError(f"required fields are missing: {missing}")
        return self._type.to_value(message)

    def encode(self, value: Any) -> bytes:
        """Returns the body; see Codec."""
        message = self._class()
        assert self._type.fill is not None, "messages can be filled"
        self._type.fill(message, value)
        # The same row gives the same bytes: ids of rows are made of them.
        body: bytes = message.SerializeToString(deterministic=True)
        return body

    def indexes(self) -> tuple[int, ...]:
        """Returns where the message stands in its file: its place at the top, then in each."""
        found: list[int] = []
        descriptor = self._descriptor
        while (outer := descriptor.containing_type) is not None:
            found.insert(
                0, [one.full_name for one in outer.nested_types].index(descriptor.full_name)
            )
            descriptor = outer
        found.insert(0, list(self._file.message_types_by_name).index(descriptor.name))
        return tuple(found)

    def name_at(self, indexes: tuple[int, ...]) -> str:
        """Returns the full name of the message that stands somewhere in the file.

        Raises:
            BadValueError: there is none.
        """
        level = list(self._file.message_types_by_name.values())
        name = ""
        for index in indexes:
            if index >= len(level):
                raise BadValueError(f"{self.name} has no message at {list(indexes)}")
            name = level[index].full_name
            level = list(level[index].nested_types)
        return name

    def _chosen(self, wanted: str) -> Any:
        by_name: dict[str, Any] = {}
        waiting = list(self._file.message_types_by_name.values())
        for descriptor in waiting:
            by_name[descriptor.full_name] = descriptor
            waiting += descriptor.nested_types
        if not by_name:
            raise ValueSchemaError(self.name, "it has no messages")
        found = by_name.get(wanted) if wanted else next(iter(by_name.values()))
        if found is None:
            known = shortened(", ".join(by_name))
            raise ValueSchemaError(self.name, f"it has no message {wanted}; it has {known}")
        return found


def file_parts(name: str, data: bytes) -> tuple[tuple[str, bytes], ...]:
    """Returns the parts of a schema that is a set of descriptors.

    Raises:
        MissingPackageError: protobuf is not installed.
        ValueSchemaError: it is none.
    """
    files = load_protobuf("descriptor_pb2").FileDescriptorSet()
    reason = "it is no set of descriptors (protoc --descriptor_set_out=F --include_imports)"
    try:
        files.ParseFromString(data)
    except load_protobuf("message").DecodeError as error:
        raise ValueSchemaError(name, reason) from error
    if not files.file:
        raise ValueSchemaError(name, reason)
    return tuple((one.name, one.SerializeToString()) for one in files.file)


def _loaded(document: SchemaDocument) -> Any:
    """Returns the descriptor of the schema's own file."""
    pool = load_protobuf("descriptor_pool").DescriptorPool()
    file_class = load_protobuf("descriptor_pb2").FileDescriptorProto
    own = ""
    done: set[str] = set()
    try:
        for name, data in document.parts:
            file = file_class.FromString(data)
            # What refers to it does so by this name; a registry may call its own another one.
            file.name = own = name or file.name or "schema.proto"
            for dependency in file.dependency:
                _add_known(pool, dependency, done)
            if own not in done:
                pool.AddSerializedFile(file.SerializeToString())
                done.add(own)
        return pool.FindFileByName(own)
    # TypeError says that descriptors do not fit together; what is none raises DecodeError.
    except (TypeError, KeyError, ValueError, load_protobuf("message").DecodeError) as error:
        reason = f"its descriptors cannot be read: {shortened(str(error))}"
        raise ValueSchemaError(document.name, reason) from error


def _add_known(pool: Any, name: str, done: set[str]) -> None:
    """Adds a file that comes with the package, and what it imports."""
    short = name.removeprefix(_KNOWN_FILES).removesuffix(".proto")
    if name in done or short not in _KNOWN or not name.startswith(_KNOWN_FILES):
        return
    done.add(name)
    file = load_protobuf(f"{short}_pb2").DESCRIPTOR
    proto = load_protobuf("descriptor_pb2").FileDescriptorProto.FromString(file.serialized_pb)
    for dependency in proto.dependency:
        _add_known(pool, dependency, done)
    pool.AddSerializedFile(file.serialized_pb)
