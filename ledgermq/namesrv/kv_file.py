"""The file of the key-value configuration: read whole, replaced whole; may wait for the disk.

It is upstream's `kvConfig.json`: ``{"configTable": {"NAMESPACE": {"key": "value"}}}``.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from ledgermq.protocol.regular_file import read_regular_file
from ledgermq.protocol.replaced_file import replace_file

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


def read_kv_file(path: Path) -> Namespaces:
    """Reads the file; a missing one is an empty table.

    Raises:
        OSError: the file cannot be read, is no regular one, or larger than it may be.
        ValueError: it is not such a table.
    """
    try:
        data, _ = read_regular_file(path, FILE_BYTES_MAX)
    except FileNotFoundError:
        return {}
    text = data.decode("utf-8")
    try:
        document = json.loads(text) if text.strip() else {}
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    table = document.get("configTable", {}) if isinstance(document, dict) else None
    if not isinstance(table, dict) or not all(isinstance(items, dict) for items in table.values()):
        raise ValueError(f"{path} holds no configTable object of objects")
    return {
        str(namespace): {str(key): str(value) for key, value in items.items()}
        for namespace, items in table.items()
    }


def write_kv_file(path: Path, namespaces: Namespaces) -> None:
    """Replaces the file, durably, readable by its owner only.

    Args:
        path: of the file; its folder is made.
        namespaces: nobody changes them meanwhile.

    Raises:
        OSError: see `replace_file`.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, _encoded(namespaces))


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
