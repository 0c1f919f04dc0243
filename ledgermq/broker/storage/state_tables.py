"""The six state files of a broker, and which of them are older than what they hold.

What is larger than a start would read is not written: the old file stays, operators are told, and
no mark of the message store may say meanwhile that the files have what was dispatched.

A table is encoded only when it changed since its file was written: one of 20,000 topics takes
0.2 s, which the reactor does not have for a file that would come out the same.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ledgermq.broker.storage.state_files import FILE_BYTES_MAX, StateFile
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import StateFileTooLargeError
from ledgermq.state.refusals import Refusals

# Files, and what is to be written to each.
StateContents = list[tuple[StateFile, bytes]]


class StateTables:
    """Files and tables.

    Invariant: a file that is durable and whose table is not marked as unsaved holds the table. So
    nothing more is taken while something that was taken is on its way to the disk.
    """

    def __init__(
        self,
        folder: Path,
        state: BrokerState,
        clock_ms: Callable[[], float],
        *,
        bytes_max: int = FILE_BYTES_MAX,
    ) -> None:
        """Reads and writes nothing yet.

        Args:
            folder: of the files.
            state: the tables; it marks those that changed.
            clock_ms: monotonic time.
            bytes_max: of each file.
        """
        self._state = state
        self._refusals: dict[StateFile, Refusals] = {}

        def new_file(name: str) -> StateFile:
            file = StateFile(folder / name, bytes_max=bytes_max)
            self._refusals[file] = Refusals(name, clock_ms)
            return file

        self._topics = new_file("topics.json")
        self._groups = new_file("subscriptionGroup.json")
        self._plain_offsets = new_file("consumerOffset.json")
        self._offsets = self._plain_offsets
        if state.offsets.knows_light_queues:
            self._offsets = new_file("lmqConsumerOffset.json")
        self._delays = new_file("delayOffset.json")
        # Not ones of upstream's.
        self._locks = new_file("queueLocks.json")
        self._format = new_file("stateFormat.json")

    @property
    def alarm(self) -> str | None:
        """Which file cannot be written, for operators; None while all can."""
        alarms = (refusals.alarm for refusals in self._refusals.values())
        return next((alarm for alarm in alarms if alarm is not None), None)

    @property
    def is_waiting(self) -> bool:
        """True while it is too early to encode a table again whose file would be too large."""
        return any(refusals.is_waiting for refusals in self._refusals.values())

    def load(self) -> None:
        """Fills the tables from the files; a file that is missing leaves its table as it is.

        Raises:
            StateFileError: a file cannot be read.
            UnreadRecordError: a newer program wrote them.
        """
        state = self._state
        loads: tuple[tuple[StateFile, Callable[[Mapping[str, Any]], None]], ...] = (
            (self._format, state.formats.load_json),
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

    def save(self) -> bool:
        """Makes all files durable, which blocks; returns False when one would be too large."""
        unsaved = self.take_unsaved()
        for file, content in unsaved or ():
            file.write(content, is_durable=True)
        return unsaved is not None

    def take_topics_and_groups(self) -> StateContents:
        """Returns what of the two tables changed since it was last taken."""
        state, files = self._state, list[tuple[StateFile, bytes]]()
        if state.are_topics_unsaved and self._take(self._topics, state.topics.to_json, files):
            state.are_topics_unsaved = False
        if state.are_groups_unsaved and self._take(self._groups, state.groups.to_json, files):
            state.are_groups_unsaved = False
        return files

    def take_offsets(self) -> StateContents:
        """Returns the offsets if they changed since they were last taken."""
        state, files = self._state, list[tuple[StateFile, bytes]]()
        if state.are_offsets_unsaved and self._take(self._offsets, state.offsets.to_json, files):
            state.are_offsets_unsaved = False
        return files

    def take_back(self, files: StateContents) -> None:
        """Notes that these did not get to the disk: their tables are unsaved."""
        for file, _ in files:
            file.is_durable = False

    def _take(
        self, file: StateFile, to_json: Callable[[], Mapping[str, Any]], files: StateContents
    ) -> bool:
        """Adds what is to be written; returns False when it would be too large, or was a moment
        ago.
        """
        if self._refusals[file].is_waiting:
            return False
        content = file.encode(to_json())
        if not self._fits(file, content):
            return False
        files.append((file, content))
        return True

    def _fits(self, file: StateFile, content: bytes) -> bool:
        refusals = self._refusals[file]
        try:
            file.check(content)
        except StateFileTooLargeError as error:
            refusals.refused(error)
            return False
        refusals.stored()
        return True

    def take_unsaved(self) -> StateContents | None:
        """Returns the files that a power cut would leave older than their tables, with the content
        that the caller must make durable; if it cannot, `take_back` must follow.

        None when one of them would be too large: then all count as unsaved as before.
        """
        state = self._state
        tables = (
            (self._topics, state.topics.to_json, state.are_topics_unsaved),
            (self._groups, state.groups.to_json, state.are_groups_unsaved),
            (self._offsets, state.offsets.to_json, state.are_offsets_unsaved),
            (self._locks, state.locks.to_json, state.are_locks_unsaved),
            (self._format, state.formats.to_json, state.formats.is_unsaved),
            # A few numbers, which change with every delivery.
            (self._delays, state.progress.to_json, True),
        )
        unsaved = [
            (file, file.encode(to_json()))
            for file, to_json, is_unsaved in tables
            if is_unsaved or not file.is_durable
        ]
        if not all(self._fits(file, content) for file, content in unsaved):
            return None
        state.are_topics_unsaved = state.are_groups_unsaved = False
        state.are_offsets_unsaved = state.are_locks_unsaved = False
        state.formats.is_unsaved = False
        return unsaved
