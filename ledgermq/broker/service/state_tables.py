"""The five state files of a broker, and which of them are older than what they hold.

A table is encoded only when it changed since its file was written: one of 20,000 topics takes
0.2 s, which the reactor does not have for a file that would come out the same.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ledgermq.broker.state_files import StateFile
from ledgermq.broker.state_log import BrokerState


class StateTables:
    """Files and tables.

    Invariant: a file that is durable and whose table is not marked as unsaved holds the table. So
    nothing is written here while the content of `take_unsaved` is on its way to the disk.
    """

    def __init__(self, folder: Path, state: BrokerState) -> None:
        """Reads and writes nothing yet.

        Args:
            folder: of the files.
            state: the tables; it marks those that changed.
        """
        self._state = state
        self._topics = StateFile(folder / "topics.json")
        self._groups = StateFile(folder / "subscriptionGroup.json")
        self._plain_offsets = StateFile(folder / "consumerOffset.json")
        self._offsets = self._plain_offsets
        if state.offsets.knows_light_queues:
            self._offsets = StateFile(folder / "lmqConsumerOffset.json")
        self._delays = StateFile(folder / "delayOffset.json")
        # Not one of upstream's.
        self._locks = StateFile(folder / "queueLocks.json")

    def load(self) -> None:
        """Fills the tables from the files; a file that is missing leaves its table as it is.

        Raises:
            StateFileError: a file cannot be read.
        """
        state = self._state
        loads: tuple[tuple[StateFile, Callable[[Mapping[str, Any]], None]], ...] = (
            (self._topics, state.topics.load_json),
            (self._groups, state.groups.load_json),
            (self._offsets, state.offsets.load_json),
            (self._delays, state.progress.load_json),
            (self._locks, state.locks.load_json),
        )
        for file, load in loads:
            value = file.load()
            if value is None and file is self._offsets:
                # What there was before light queues were turned on.
                value = self._plain_offsets.load()
            if value is not None:
                load(value)

    def save(self) -> None:
        """Makes all files durable, which blocks."""
        for file, content in self.take_unsaved():
            file.write(content, is_durable=True)

    def save_topics_and_groups(self) -> None:
        """Replaces the two files if their tables changed; they are not durable yet."""
        state = self._state
        if state.are_topics_unsaved:
            self._topics.save(state.topics.to_json(), is_durable=False)
            state.are_topics_unsaved = False
        if state.are_groups_unsaved:
            self._groups.save(state.groups.to_json(), is_durable=False)
            state.are_groups_unsaved = False

    def save_offsets(self) -> None:
        """Replaces the file of offsets if they changed; it is not durable yet."""
        if self._state.are_offsets_unsaved:
            self._offsets.save(self._state.offsets.to_json(), is_durable=False)
            self._state.are_offsets_unsaved = False

    def take_unsaved(self) -> list[tuple[StateFile, bytes]]:
        """Returns the files that a power cut would leave older than their tables, with the content
        that the caller must make durable; if it cannot, the files are not to be trusted any more.
        """
        state = self._state
        # What a leader was told but has not written to the ledger yet is marked later.
        are_offsets_unsaved = state.are_offsets_unsaved or state.offsets.has_changes
        tables = (
            (self._topics, state.topics.to_json, state.are_topics_unsaved),
            (self._groups, state.groups.to_json, state.are_groups_unsaved),
            (self._offsets, state.offsets.to_json, are_offsets_unsaved),
            (self._locks, state.locks.to_json, state.are_locks_unsaved),
            # A few numbers, which change with every delivery.
            (self._delays, state.progress.to_json, True),
        )
        unsaved = [
            (file, file.encode(to_json()))
            for file, to_json, is_unsaved in tables
            if is_unsaved or not file.is_durable
        ]
        state.are_topics_unsaved = state.are_groups_unsaved = False
        state.are_offsets_unsaved = state.are_locks_unsaved = False
        return unsaved
