"""The file of the key-value configuration: read whole, replaced whole; may wait for the disk.

It is upstream's `kvConfig.json`: ``{"configTable": {"NAMESPACE": {"key": "value"}}}``, with a seal
that upstream skips, and kept twice (`TwinFile`): no peer could tell what a damaged one held.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from ledgermq.protocol.twin_file import TwinFile

# What a start reads; more than the table ever writes, for files of upstream's.
FILE_BYTES_MAX: Final = 64 * 1024 * 1024
# Items encoded in one call, during which no other thread of Python runs.
_ITEMS_AT_ONCE: Final = 500
# What stands around namespaces, and around the items of one.
_FRAME_BYTES: Final = 32
_NAMESPACE_BYTES: Final = 4

Namespaces = dict[str, dict[str, str]]


def namespace_bytes(namespace: str) -> int:
    """Bytes that a namespace without items takes in the file, at the most."""
    return len(msgspec.json.encode(namespace)) + _NAMESPACE_BYTES


def item_bytes(key: str, value: str) -> int:
    """Bytes that an item takes in the file, at the most."""
    return len(msgspec.json.encode({key: value}))


def file_bytes(namespaces: Mapping[str, Mapping[str, str]]) -> int:
    """Bytes that a file has, at the most."""
    return _FRAME_BYTES + sum(
        namespace_bytes(namespace) + sum(item_bytes(key, value) for key, value in items.items())
        for namespace, items in namespaces.items()
    )


class KvFile:
    """The file and its copy.

    Attributes:
        notes: what the last reading did not use and why, for a log.
    """

    def __init__(self, path: Path) -> None:
        """Reads nothing yet."""
        self._path = path
        self._twin = TwinFile(path, FILE_BYTES_MAX)

    @property
    def notes(self) -> list[str]:
        return self._twin.notes

    def read(self) -> Namespaces:
        """Reads the file; a missing one is an empty table.

        Raises:
            OSError: the file cannot be read, is no regular one, or larger than it may be.
            ValueError: it is not such a table, or is damaged and so is its copy.
        """
        data = self._twin.read()
        text = "" if data is None else data.decode("utf-8")
        try:
            document = json.loads(text) if text.strip() else {}
        except RecursionError:
            raise ValueError(f"{self._path} is nested too deeply") from None
        table = document.get("configTable", {}) if isinstance(document, dict) else None
        if not isinstance(table, dict) or not all(
            isinstance(items, dict) for items in table.values()
        ):
            raise ValueError(f"{self._path} holds no configTable object of objects")
        return {
            str(namespace): {str(key): str(value) for key, value in items.items()}
            for namespace, items in table.items()
        }

    def write(self, namespaces: Namespaces) -> None:
        """Replaces the file, durably, readable by its owner only.

        Args:
            namespaces: none changes during the call.

        Raises:
            OSError: see `replace_file`.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._twin.write(_encoded(namespaces))


def _encoded(namespaces: Namespaces) -> Iterator[bytes]:
    """The document in parts, a line for some items."""
    yield b'{"configTable":{'
    comma = b""
    for namespace, items in namespaces.items():
        yield comma + b"\n" + msgspec.json.encode(namespace) + b":{"
        comma, inner = b",", b""
        rest = iter(items.items())
        while some := dict(islice(rest, _ITEMS_AT_ONCE)):
            yield inner + b"\n" + msgspec.json.encode(some)[1:-1]
            inner = b","
        yield b"}"
    yield b"}}\n"
