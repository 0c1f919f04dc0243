"""LocalOffsets: how far a broadcast consumer has come, in a file of its own.

In broadcast mode every member gets every message, so that the broker cannot keep one offset for
all. The file is a JSON object with a seal, and kept twice (`TwinFile`):

    {"orders": {"broker-a": {"0": 17, "1": 12}}}         topic, broker, queue: next offset

Waiting for the disk is the business of a thread. What is committed while one write goes on is in
the next, whatever the number of queues.
"""

import asyncio
import json
import logging
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ledgermq.client.errors import ConfigError
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.file_seal import SEAL
from ledgermq.protocol.twin_file import TwinFile

_FILE_BYTES_MAX: Final = 16 * 1024 * 1024

_log = logging.getLogger("ledgermq.client")


def offsets_path(directory: Path, instance_name: str | None, group: str) -> Path:
    """Returns the file of one group of one instance, whatever characters the names have.

    Raises:
        ConfigError: the directory is below a home that this user does not have.
    """
    instance = quote(instance_name or "default", safe="")
    try:
        directory = directory.expanduser()
    except RuntimeError as error:
        raise ConfigError(f"offsets_directory is {directory}: {error}") from error
    return directory / instance / f"{quote(group, safe='')}.json"


class LocalOffsets:
    """Offsets by queue; every commit is in the file when it returns."""

    def __init__(self, path: Path, *, bytes_max: int = _FILE_BYTES_MAX) -> None:
        """Reads the file; a missing one holds no offsets.

        Args:
            bytes_max: of what is read, and of what is written.

        Raises:
            ConfigError: it cannot be read, or is no such file.
        """
        self._path = path
        self._bytes_max = bytes_max
        # Another member of the group on this machine has the same file.
        owner = f"{path.parent.name}/{path.stem}"
        self._file = TwinFile(path, bytes_max, owner, is_shared=True)
        self._offsets: dict[MessageQueue, int] = {}
        # Held by who writes.
        self._gate = asyncio.Lock()
        # The write that has not begun; who commits now waits for it.
        self._next: asyncio.Task[None] | None = None
        try:
            self._offsets = _read(self._file)
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise ConfigError(f"{path} holds no offsets: {error}") from error

    async def committed(self, queue: MessageQueue) -> int | None:
        """Returns up to where the queue is consumed, None when that is not known."""
        return self._offsets.get(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Notes up to where the queue is consumed.

        Raises:
            ConfigError: the file cannot be written, or would be larger than what is read; the next
                commit tries again.
        """
        self._offsets[queue] = offset
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._write_all())
        # Others wait for it, too.
        await asyncio.shield(self._next)

    async def _write_all(self) -> None:
        async with self._gate:
            # From here on who commits comes too late for this one.
            self._next = None
            content = self._content()
            await asyncio.to_thread(_write, self._path, self._file, content)

    def _content(self) -> bytes:
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for known, next_offset in sorted(self._offsets.items()):
            brokers = topics.setdefault(known.topic, {})
            brokers.setdefault(known.broker_name, {})[str(known.queue_id)] = next_offset
        content = json.dumps(topics).encode("ascii")
        if len(content) > self._bytes_max:
            raise ConfigError(
                f"{self._path} would have {len(content)} bytes; allowed: {self._bytes_max}"
            )
        return content


def _write(path: Path, file: TwinFile, content: bytes) -> None:
    """Replaces the file; runs in a thread."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file.write([content])
    except OSError as error:
        raise ConfigError(f"{path}: {error}") from error


def _read(file: TwinFile) -> dict[MessageQueue, int]:
    content = file.read()
    for note in file.notes:
        _log.warning("the offsets are read from their other copy: %s", note)
    if content is None:
        return {}
    value = json.loads(content)
    value.pop(SEAL, None)
    return {
        MessageQueue(topic, broker_name, int(queue_id)): int(offset)
        for topic, brokers in value.items()
        for broker_name, queues in brokers.items()
        for queue_id, offset in queues.items()
    }
