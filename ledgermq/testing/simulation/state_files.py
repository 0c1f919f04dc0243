"""The broker's state files on a simulated disk: contents by the broker, kept as its files are."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ledgermq.broker.storage.state_files import StateFile, parse_tolerant
from ledgermq.state.broker_state import BrokerState
from ledgermq.testing.simulation.disk import SimDisk

_FOLDER: Final = "/store/config"


class SimStateFile:
    """One file; each write of it is durable."""

    def __init__(self, disk: SimDisk, name: str) -> None:
        self._disk = disk
        self._path = f"{_FOLDER}/{name}"
        # What was to be written did not get to the disk.
        self.is_behind = False

    def write(self, content: bytes, *, is_durable: bool) -> None:
        """Replaces the content."""
        self._disk.replace(self._path, content)

    def load(self) -> Any:
        """Returns what was written last, None when nothing was."""
        content = self._disk.read(self._path)
        return parse_tolerant(content.decode("utf-8")) if content else None


class SimTables:
    """Topics, groups, offsets and locks, and their files."""

    # All tables of a simulation fit.
    is_waiting = False

    def __init__(self, state: BrokerState, disk: SimDisk) -> None:
        """Reads and writes nothing yet."""
        self._state = state
        self._topics = SimStateFile(disk, "topics.json")
        self._groups = SimStateFile(disk, "subscriptionGroup.json")
        self._offsets = SimStateFile(disk, "consumerOffset.json")
        self._locks = SimStateFile(disk, "queueLocks.json")
        self._format = SimStateFile(disk, "stateFormat.json")

    def load(self) -> None:
        """Fills the tables from the files."""
        state = self._state
        loads: tuple[tuple[SimStateFile, Callable[[Mapping[str, Any]], None]], ...] = (
            (self._format, state.formats.load_json),
            (self._topics, state.topics.load_json),
            (self._groups, state.groups.load_json),
            (self._offsets, state.offsets.load_json),
            (self._locks, state.locks.load_json),
        )
        for file, load in loads:
            value = file.load()
            if value is not None:
                load(value)

    def save(self) -> bool:
        """Writes all that is unsaved."""
        for file, content in self.take_unsaved():
            file.write(content, is_durable=True)
        return True

    def take_unsaved(self) -> list[tuple[SimStateFile, bytes]]:
        """Returns the files that are older than their tables, with what they must hold."""
        state = self._state
        tables = (
            (self._topics, state.topics.to_json, state.are_topics_unsaved),
            (self._groups, state.groups.to_json, state.are_groups_unsaved),
            (self._offsets, state.offsets.to_json, state.are_offsets_unsaved),
            (self._locks, state.locks.to_json, state.are_locks_unsaved),
            (self._format, state.formats.to_json, state.formats.is_unsaved),
        )
        unsaved = []
        for file, to_json, is_unsaved in tables:
            if is_unsaved or file.is_behind:
                file.is_behind = False
                unsaved.append((file, StateFile.encode(to_json())))
        state.are_topics_unsaved = state.are_groups_unsaved = False
        state.are_offsets_unsaved = state.are_locks_unsaved = False
        state.formats.is_unsaved = False
        return unsaved

    def take_back(self, files: list[tuple[SimStateFile, bytes]]) -> None:
        """Notes that these did not get to the disk."""
        for file, _ in files:
            file.is_behind = True
