"""KvTable: the name server's key-value configuration, kept in one JSON file.

The file is upstream's `kvConfig.json`: ``{"configTable": {"NAMESPACE": {"key": "value"}}}``. A
change is durable before it is answered: the new file is written beside, synced, and renamed over
the old one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from ledgermq.namesrv.errors import ConfigItemNotFoundError, LimitError

# Namespace of the order of topics: topic -> "brokerName:queues;...".
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
FILE_BYTES_MAX: Final = 64 * 1024 * 1024
ITEMS_MAX: Final = 100_000


class KvTable:
    """Namespaces of texts by key."""

    def __init__(self, path: Path, *, bytes_max: int = FILE_BYTES_MAX) -> None:
        """Reads nothing yet; `bytes_max` bounds what is read and what is written."""
        self._path = path
        self._bytes_max = bytes_max
        self._namespaces: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Reads the file; a missing one is an empty table.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not such a table, or larger than it may be.
        """
        if not self._path.exists():
            return
        size = self._path.stat().st_size
        if size > self._bytes_max:
            raise ValueError(f"{self._path} has {size} bytes; allowed: {self._bytes_max}")
        text = self._path.read_text(encoding="utf-8")
        document = json.loads(text) if text.strip() else {}
        table = document.get("configTable", {}) if isinstance(document, dict) else None
        if not isinstance(table, dict):
            raise ValueError(f"{self._path} holds no configTable object")
        self._namespaces = {
            str(namespace): {str(key): str(value) for key, value in items.items()}
            for namespace, items in table.items()
        }

    def put(self, namespace: str, key: str, value: str) -> None:
        """Sets one item, durably.

        Raises:
            LimitError: the table is full, or its file would be larger than a start reads.
            OSError: the file cannot be written; the table is as before.
        """
        count = sum(map(len, self._namespaces.values()))
        items = dict(self._namespaces.get(namespace, {}))
        if key not in items and count >= ITEMS_MAX:
            raise LimitError("key-value table", count + 1, ITEMS_MAX)
        items[key] = value
        self._replace({**self._namespaces, namespace: items})

    def delete(self, namespace: str, key: str) -> None:
        """Removes one item, durably; nothing happens when it is not there."""
        if key in self._namespaces.get(namespace, {}):
            items = {k: v for k, v in self._namespaces[namespace].items() if k != key}
            self._replace({**self._namespaces, namespace: items})

    def get(self, namespace: str, key: str) -> str:
        """Returns one item.

        Raises:
            ConfigItemNotFoundError: there is none.
        """
        value = self.find(namespace, key)
        if value is None:
            raise ConfigItemNotFoundError(namespace, key)
        return value

    def find(self, namespace: str, key: str) -> str | None:
        """Returns one item, or None."""
        return self._namespaces.get(namespace, {}).get(key)

    def items(self, namespace: str) -> dict[str, str]:
        """Returns a copy of a namespace.

        Raises:
            ConfigItemNotFoundError: there is none of that name.
        """
        if namespace not in self._namespaces:
            raise ConfigItemNotFoundError(namespace, None)
        return dict(self._namespaces[namespace])

    def _replace(self, namespaces: dict[str, dict[str, str]]) -> None:
        document = {"configTable": namespaces}
        content = json.dumps(document, indent="\t", ensure_ascii=False).encode("utf-8")
        if len(content) > self._bytes_max:
            raise LimitError("bytes of the key-value file", len(content), self._bytes_max)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(self._path.name + ".tmp")
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._namespaces = namespaces
