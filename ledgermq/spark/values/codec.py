"""What a codec is, and how the packages that some need are loaded: when the first one is used."""

import importlib
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pyspark.sql.types import DataType

from ledgermq.spark.errors import MissingPackageError

# The extra, and which machines need it.
_EVERYWHERE: Final = ("values", "on the driver and on every worker")


class Codec(Protocol):
    """Bodies to values of a Spark type and back."""

    @property
    def spark_type(self) -> DataType:
        """The type of the column."""

    @property
    def body_bytes_max(self) -> int:
        """The size of the largest body whose value stays within bounds."""

    def decode(self, body: bytes) -> Any:
        """Returns a value that Arrow takes for the type.

        Raises:
            Exception: any; the body is no value of the schema.
        """

    def encode(self, value: Any) -> bytes:
        """Returns the body of a value of the type, as Arrow gives it.

        Raises:
            Exception: any; the value is none of the schema.
        """


@dataclass(slots=True, frozen=True)
class SchemaDocument:
    """A schema as it was found; it travels to where tasks run."""

    # json, avro or protobuf.
    format: str
    # For errors: a file, or a subject or id of a registry.
    name: str
    # Each with its name, those that others refer to before them: JSON texts, or serialized
    # FileDescriptorProtos. The last one is the schema.
    parts: tuple[tuple[str, bytes], ...]
    # Full name of a Protobuf message; "" for the first one.
    message: str = ""


def load_fastavro() -> Any:
    """Returns the package fastavro.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        return importlib.import_module("fastavro")
    except ImportError as error:
        raise MissingPackageError("value.format=avro", "fastavro", *_EVERYWHERE) from error


def load_protobuf(module: str) -> Any:
    """Returns a module of the package protobuf, by its name there.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        return importlib.import_module(f"google.protobuf.{module}")
    except ImportError as error:
        raise MissingPackageError("value.format=protobuf", "protobuf", *_EVERYWHERE) from error
