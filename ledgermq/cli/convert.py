"""A conversion of a store: every record into a new log, everything else from it, then the proof.

    1. records   the source's, in order, appended to the target, where an earlier attempt stopped
    2. derived   queues and key index are made from the target's log, as a broker's start would
    3. config    topics, groups and offsets are copied: queue offsets stay what they are
    4. proof     both logs are read again, side by side, and each message by its queue offset
    5. done      the target gets its name

The source is only read. Until the last step all lies in `<target>.converting`, so a store that is
not proven never stands where a broker looks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from ledgermq.broker.storage.acceptance import FILE_NAME as ACCEPTANCE
from ledgermq.broker.storage.state_files import StateFile
from ledgermq.cli.convert_source import (
    QUEUE_UNIT_BYTES,
    ConvertError,
    SourceRecord,
    StoreSource,
    queue_files,
)
from ledgermq.cli.convert_target import Target
from ledgermq.commitlog import GetMessageStatus
from ledgermq.dledger.store.filesystem import FILE_MODE
from ledgermq.dledger.store.outside_files import regular_size
from ledgermq.protocol.file_seal import without_seal
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET, SYS_FLAG_OFFSET, decode_record_head
from ledgermq.protocol.sysflag import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    is_queued,
)
from ledgermq.state.names import HALF_TOPIC

_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")
_HALF_TOPIC: Final = HALF_TOPIC.encode()
# Of a record with two IPv4 hosts; 12 bytes more for each IPv6 host.
_PREPARED_OFFSET_OFFSET: Final = 76
_BATCH_RECORDS: Final = 1000
_BATCH_BYTES: Final = 4 << 20
# What a broker's start reads of each, and a backup of it.
_CONFIG_BYTES_MAX: Final = 1 << 30


@dataclass(slots=True)
class ConvertReport:
    """What a conversion did."""

    # Records of the log, those of them that stand in queues, and the bytes of all.
    records: int = 0
    messages: int = 0
    size_bytes: int = 0
    # Records that an earlier attempt had written.
    found_records: int = 0
    queues: int = 0
    notes: list[str] = field(default_factory=list)


class Conversion:
    """One source into one target."""

    def __init__(
        self,
        source: StoreSource,
        target: Target,
        work: Path,
        tell: Callable[[int, int], None],
    ) -> None:
        """Binds the two.

        Args:
            source: locked.
            target: writes below `work`, not opened.
            work: the directory of this conversion.
            tell: told of records that were copied, and their bytes.
        """
        self._source = source
        self._target = target
        self._work = work
        self._tell = tell
        # Place of each half message in the source -> in the target: what commits it names it.
        self._half_places: dict[int, int] = {}
        # When the last record of each file was stored: upstream's retention and its search by time
        # go by the time of the file.
        self._times_ms: dict[Path, int] = {}
        self.report = ConvertReport()

    def run(self) -> None:
        """Does steps 1 to 4.

        Raises:
            ConvertError: the source is damaged, or the target is not what it must be.
            LedgerError, CommitLogError, OSError: of the stores.
        """
        target = self._target
        target.open()
        try:
            self._copy_records()
            target.finish()
            # Queues whose messages are all gone go on with their numbers.
            target.messages.adopt_queue_ends(self._source.queue_ends())
            self._copy_config()
            self._prove()
            self._note_queue_times()
        finally:
            target.close()
        for path, time_ms in self._times_ms.items():
            os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))
        self.report.notes += self._source.notes

    # 1

    def _copy_records(self) -> None:
        written = self._target.records()
        batch: list[bytes] = []
        places: list[int] = []
        size = 0
        is_behind = False
        for record in self._source.records():
            if not is_behind:
                found = next(written, None)
                if found is not None:
                    self._compare(record, found)
                    self._note_half(record, found.physical_offset)
                    self.report.found_records += 1
                    continue
                is_behind = True
            if batch and (
                len(batch) >= _BATCH_RECORDS or size > _BATCH_BYTES or self._needs(record, places)
            ):
                self._append(batch, places)
                batch, places, size = [], [], 0
            batch.append(self._translated(record.data, 0))
            places.append(record.physical_offset)
            size += len(record.data)
        if not is_behind and next(written, None) is not None:
            raise ConvertError(f"{self._work} has more records than {self._source.root}: remove it")
        if batch:
            self._append(batch, places)

    def _append(self, batch: list[bytes], places: list[int]) -> None:
        offsets = self._target.append(batch)
        for data, place, offset in zip(batch, places, offsets, strict=True):
            self._note_half(SourceRecord(place, data), offset)
        self._tell(len(batch), sum(map(len, batch)))

    def _note_half(self, record: SourceRecord, place: int) -> None:
        if _HALF_TOPIC in record.data and decode_record_head(record.data).topic == _HALF_TOPIC:
            self._half_places[record.physical_offset] = place

    def _needs(self, record: SourceRecord, places: list[int]) -> bool:
        """Whether a record names one that stands in the batch, so that its place is not known."""
        prepared = _prepared_offset(record.data)
        return prepared is not None and prepared not in self._half_places and prepared in places

    def _translated(self, data: bytes, place: int) -> bytes:
        """Returns a record as it is to stand at `place` of the target."""
        made = bytearray(data)
        _INT64.pack_into(made, PHYSICAL_OFFSET_OFFSET, place)
        prepared = _prepared_offset(data)
        if prepared is not None and prepared in self._half_places:
            _INT64.pack_into(made, _prepared_at(data), self._half_places[prepared])
        return bytes(made)

    def _compare(self, record: SourceRecord, found: SourceRecord) -> None:
        if self._translated(record.data, found.physical_offset) != found.data:
            raise ConvertError(
                f"the record at {record.physical_offset} of {self._source.root} is another one"
                f" than that at {found.physical_offset} of {self._work}: remove the latter"
            )

    # 3

    def _copy_config(self) -> None:
        """Copies the files of topics, groups and offsets, as they are."""
        folder = self._source.root / "config"
        target = self._work / "config"
        target.mkdir(exist_ok=True)
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
            if path.name == ACCEPTANCE:
                continue
            regular_size(path, _CONFIG_BYTES_MAX)
            content = StateFile(path).load()
            if content is not None and path.name == "delayOffset.json" and "plan" in content:
                raise ConvertError(
                    f"{path} tells of deliveries under way: start and stop the broker once"
                )
            # A seal names an index of the source's log.
            (target / path.name).write_bytes(without_seal(path.read_bytes()))
            (target / path.name).chmod(FILE_MODE)

    # 4

    def _prove(self) -> None:
        """Reads everything again, from both logs and through the queues."""
        report, messages = self.report, self._target.messages
        report.records = report.messages = report.size_bytes = 0
        self._half_places.clear()
        ends: dict[tuple[str, int], int] = {}
        written = self._target.records()
        for record in self._source.records():
            found = next(written, None)
            if found is None:
                raise ConvertError(f"the record at {record.physical_offset} is not in the target")
            self._compare(record, found)
            self._note_half(record, found.physical_offset)
            report.records += 1
            report.size_bytes += len(record.data)
            head = decode_record_head(found.data)
            segment = found.physical_offset - found.physical_offset % self._target.segment_bytes
            self._times_ms[self._target.log_folder / f"{segment:020d}"] = head.store_timestamp
            if is_queued(head.sys_flag):
                report.messages += 1
                key = (head.topic.decode(errors="replace"), head.queue_id)
                ends[key] = head.queue_offset + 1
                units = messages.queue_units(*key, head.queue_offset, 1)
                if not units or units[0][:2] != (found.physical_offset, head.size_bytes):
                    raise ConvertError(
                        f"message {head.queue_offset} of {key[0]}-{key[1]} is not found by its"
                        f" queue offset: {units}"
                    )
        report.queues = len(ends)
        for (topic, queue_id), end in ends.items():
            self._read_ends(topic, queue_id, end)

    def _read_ends(self, topic: str, queue_id: int, end: int) -> None:
        """Reads the first and the last message of a queue as a consumer does."""
        messages = self._target.messages
        found_end = messages.max_offset(topic, queue_id)
        if found_end != end:
            raise ConvertError(f"queue {topic}-{queue_id} ends at {found_end}, its log at {end}")
        for offset in (messages.min_offset(topic, queue_id), end - 1):
            result = messages.get_message(topic, queue_id, offset, 1, None)
            if result.status is not GetMessageStatus.FOUND:
                raise ConvertError(f"message {offset} of {topic}-{queue_id}: {result.status.value}")

    def _note_queue_times(self) -> None:
        messages = self._target.messages
        for path in queue_files(self._work):
            topic, queue_id = path.parts[-3], int(path.parts[-2])
            behind = (int(path.name) + path.stat().st_size) // QUEUE_UNIT_BYTES
            last = min(behind, messages.max_offset(topic, queue_id)) - 1
            time_ms = messages.store_time(topic, queue_id, last)
            if time_ms is not None:
                self._times_ms[path] = time_ms


def _prepared_offset(data: bytes) -> int | None:
    """Returns the place of the half message that a record commits, None for any other record."""
    if _INT32.unpack_from(data, SYS_FLAG_OFFSET)[0] & TRANSACTION_MASK != TRANSACTION_COMMIT:
        return None
    place: int = _INT64.unpack_from(data, _prepared_at(data))[0]
    return place


def _prepared_at(data: bytes) -> int:
    sys_flag = _INT32.unpack_from(data, SYS_FLAG_OFFSET)[0]
    at = _PREPARED_OFFSET_OFFSET
    at += 12 if sys_flag & BORN_HOST_V6 else 0
    return at + (12 if sys_flag & STORE_HOST_V6 else 0)


def work_directory(target: Path) -> Path:
    """Returns where a conversion lies until it is proven."""
    return target.with_name(target.name + ".converting")
