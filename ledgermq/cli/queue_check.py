"""Consume queues checked against the log: the units that committed entries must have, one by one.

A unit is 8 physical_offset, 4 size_bytes, 8 tags_code: the hash of the message's tags. Only in
SCHEDULE_TOPIC_XXXX, for a message with a delay level, it is the time at which the message is
delivered: its store time and the delay that the level had then, which nothing in the store tells.
So that time has to be possible; where the delays of a queue differ, that is told.

Queue files are made from the log, so one that is missing or ends early is told and is no defect; a
wrong unit, a hole before later units, and a unit that the log does not know are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from ledgermq.cli.segment_files import SegmentFiles, segment_paths
from ledgermq.commitlog import (
    LIGHT_QUEUE_ID,
    SCHEDULE_TOPIC,
    delay_level,
    light_places,
    may_be_delivery_time,
)
from ledgermq.commitlog.queues import is_queue_name
from ledgermq.protocol.java_hash import java_string_hash
from ledgermq.protocol.properties import TAGS, find_property
from ledgermq.protocol.record import RecordHead
from ledgermq.protocol.sysflag import is_queued

QUEUE_UNIT: Final = struct.Struct(">qiq")
_UNIT_BYTES: Final = QUEUE_UNIT.size
_EMPTY: Final = bytes(_UNIT_BYTES)
_TAGS: Final = TAGS.encode()
# A hash of tags is an int of 32 bits; a time in ms is larger.
_HASH_MAX: Final = 2**31 - 1
# Different delays of one queue that are told.
_DELAYS_TOLD_MAX: Final = 8
# Units compared at once.
_PIECE_BYTES: Final = 10_000 * _UNIT_BYTES

Tell = Callable[[str], None]


class _Queue:
    """The units of one queue as the log has them; its offsets have no gap."""

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        # With the store time in the place of a time of delivery.
        self.units = bytearray()

    @property
    def end_offset(self) -> int:
        return self.first_offset + len(self.units) // _UNIT_BYTES

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yields position in the queue's files and units, piece by piece."""
        start = self.first_offset * _UNIT_BYTES
        for i in range(0, len(self.units), _PIECE_BYTES):
            yield start + i, bytes(self.units[i : i + _PIECE_BYTES])


class QueueCheck:
    """Gathers the units of all queues on one walk over the log, then looks at the files."""

    def __init__(self, defect: Tell, note: Tell) -> None:
        self._defect = defect
        self._note = note
        self._queues: dict[tuple[str, int], _Queue] = {}
        self.unit_count = 0

    @property
    def queue_count(self) -> int:
        return len(self._queues)

    def add(self, head: RecordHead) -> None:
        """Takes the record of a committed entry; tells when its queue offset does not follow."""
        if not is_queued(head.sys_flag):
            return
        topic = head.topic.decode(errors="replace")
        tags = find_property(head.properties, _TAGS).decode(errors="replace")
        code = java_string_hash(tags) if tags else 0
        if topic == SCHEDULE_TOPIC and delay_level(head.properties) > 0:
            code = head.store_timestamp
        unit = QUEUE_UNIT.pack(head.physical_offset, head.size_bytes, code)
        self._add_own((topic, head.queue_id), head, unit)
        for name, offset in light_places(topic, head.queue_id, head.properties):
            light = self._queues.setdefault((name, LIGHT_QUEUE_ID), _Queue(offset))
            # What does not follow is in no queue: see light_queues.py.
            if offset == light.end_offset:
                light.units += unit
                self.unit_count += 1

    def _add_own(self, key: tuple[str, int], head: RecordHead, unit: bytes) -> None:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(head.queue_offset)
        elif head.queue_offset != queue.end_offset:
            self._defect(
                f"queue {key[0]}-{key[1]}: offset {head.queue_offset} follows "
                f"{queue.end_offset - 1} in the log, at {head.physical_offset}"
            )
            # Goes on from here, so that each gap is told once.
            queue.first_offset, queue.units = head.queue_offset, bytearray()
        queue.units += unit
        self.unit_count += 1

    def check_files(self, root: Path, end_position: int) -> None:
        """Compares the queue files below a store's root.

        Args:
            root: storePathRootDir.
            end_position: end of what is known to be committed; units for records behind it may
                have come meanwhile.
        """
        for (topic, queue_id), queue in sorted(self._queues.items()):
            name = f"queue {topic}-{queue_id}"
            if not is_queue_name(topic, queue_id):
                # It would be a path to somewhere else.
                self._defect(f"a record names the queue {queue_id} of {topic!r}: there is none")
                continue
            paths = segment_paths(root / "consumequeue" / topic / str(queue_id))
            if not paths:
                self._note(f"{name} has no files (they are made from the log)")
                continue
            with SegmentFiles(paths) as files:
                for path in paths:
                    if path.stat().st_size % _UNIT_BYTES:
                        self._defect(f"{path} has {path.stat().st_size} bytes, no whole units")
                self._check_units(name, queue, files)
                self._check_end(name, queue, files, end_position)

    def _check_units(self, name: str, queue: _Queue, files: SegmentFiles) -> None:
        # Delays that occur, each with the first offset.
        delays: dict[int, int] = {}
        self._compare_units(name, queue, files, delays)
        if len(delays) > 1:
            shown = ", ".join(
                f"{delay} ms from offset {offset} on"
                for delay, offset in islice(delays.items(), _DELAYS_TOLD_MAX)
            )
            self._note(
                f"{name} has {len(delays)} delays: {shown}"
                " (messageDelayLevel was changed, or units are wrong)"
            )

    def _compare_units(
        self, name: str, queue: _Queue, files: SegmentFiles, delays: dict[int, int]
    ) -> None:
        for start, expected in queue.pieces():
            if start + len(expected) <= files.start or (
                files.read(start, len(expected)) == expected
            ):
                continue
            for i in range(0, len(expected), _UNIT_BYTES):
                position, unit = start + i, expected[i : i + _UNIT_BYTES]
                if position < files.start:
                    continue
                found = files.read(position, _UNIT_BYTES)
                offset = position // _UNIT_BYTES
                delay = _delay_of(found, unit)
                if delay is not None:
                    delays.setdefault(delay, offset)
                    continue
                if found == unit:
                    continue
                if found not in (b"", _EMPTY):
                    self._tell_wrong(name, files, position, found, unit)
                elif self._goes_on(files, position + _UNIT_BYTES):
                    kind = "no file" if not found else "no unit"
                    self._defect(
                        f"{name} has {kind} for offset {offset}, but units behind it: "
                        f"{files.place(position)}"
                    )
                    return
                else:
                    last = queue.end_offset - 1
                    self._note(f"{name} ends before offset {offset}, the log at {last}")
                    return

    @staticmethod
    def _goes_on(files: SegmentFiles, position: int) -> bool:
        """Whether there is a unit at or behind a position."""
        while position < files.end:
            piece = files.read(position, _PIECE_BYTES)
            if piece.strip(b"\0"):
                return True
            if not piece:
                # A missing file: look into the one after it.
                position = files.next_start(position)
            position += len(piece)
        return False

    def _check_end(self, name: str, queue: _Queue, files: SegmentFiles, end_position: int) -> None:
        position = queue.end_offset * _UNIT_BYTES
        found = files.read(position, _UNIT_BYTES)
        if len(found) == _UNIT_BYTES and found != _EMPTY:
            physical_offset = QUEUE_UNIT.unpack(found)[0]
            if physical_offset < end_position:
                self._tell_wrong(name, files, position, found, _EMPTY)

    def _tell_wrong(
        self, name: str, files: SegmentFiles, position: int, found: bytes, unit: bytes
    ) -> None:
        expected = "has no such message" if unit == _EMPTY else f"says {_shown(unit)}"
        self._defect(
            f"{name} offset {position // _UNIT_BYTES}: {files.place(position)} says "
            f"{_shown(found)}, the log {expected}"
        )


def _delay_of(found: bytes, unit: bytes) -> int | None:
    """The delay of a unit in ms; None for one that is not that of its record, or of a message that
    does not wait.

    Args:
        found: as it stands in the queue.
        unit: as the log has it, with the store time in the place of the time of delivery.
    """
    *expected, store_time = QUEUE_UNIT.unpack(unit)
    if store_time <= _HASH_MAX or len(found) < _UNIT_BYTES:
        return None
    *place, delivery_time = QUEUE_UNIT.unpack(found)
    is_right = place == expected and may_be_delivery_time(delivery_time, store_time)
    return delivery_time - store_time if is_right else None


def _shown(unit: bytes) -> str:
    if len(unit) < _UNIT_BYTES:
        return f"only {len(unit)} bytes"
    physical_offset, size, tags_code = QUEUE_UNIT.unpack(unit)
    kind = "tags code" if tags_code <= _HASH_MAX else "a delivery at"
    return f"{size} bytes at {physical_offset}, {kind} {tags_code}"
