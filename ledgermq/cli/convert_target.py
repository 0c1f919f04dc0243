"""The store that a conversion writes: its log, and what derives from it, as a broker would."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.storage.storage import store_config
from ledgermq.cli.convert_source import ConvertError, SourceRecord
from ledgermq.commitlog import (
    RECORD_BYTES_MAX,
    TERM_TOPIC,
    MessageStore,
    PlainCommitLog,
    PlainMessageStore,
)
from ledgermq.dledger.entry import HEAD_BYTES, EntryCodec, count_in_segment, place
from ledgermq.dledger.store import DLedgerMmapFileStore, RealFileSystem
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET, decode_record_head

_READ_BYTES: Final = 4 << 20


class Target(Protocol):
    """One of the two kinds."""

    messages: MessageStore
    # Where the files of the log are, and their size.
    log_folder: Path
    segment_bytes: int

    def open(self) -> None:
        """Opens the log; what an earlier attempt has written stays."""

    def append(self, records: Sequence[bytes]) -> list[int]:
        """Appends records; returns the physical offset of each."""

    def records(self) -> Iterator[SourceRecord]:
        """Yields what is in the log, oldest first."""

    def finish(self) -> None:
        """Makes the log durable, and makes queues and key index from it."""

    def close(self) -> None:
        """Closes everything; the store is as after a clean stop."""


class LedgerTarget:
    """A ledger of one member; copied, it is that of each member of a group."""

    def __init__(self, config: BrokerConfig) -> None:
        """Opens nothing yet.

        Args:
            config: of the broker that will run on it; its root is where this writes.
        """
        files = RealFileSystem()
        self._folder = config.store_root / f"dledger-{config.ledger_self_id}"
        self.log_folder = self._folder / "data"
        self.segment_bytes = config.segment_bytes
        self._codec = EntryCodec(crc32c, PHYSICAL_OFFSET_OFFSET)
        self._store = DLedgerMmapFileStore(
            files,
            str(self._folder),
            config.segment_bytes,
            config.index_segment_bytes,
            self._codec,
        )
        self.messages = MessageStore(
            store_config(config),
            self._store,
            files,
            _wall_clock_ms,
            self._store.data.read,
            segment_at=self._store.data.segment_at,
            mode=self._store.mode,
        )

    def open(self) -> None:
        self._store.open()

    def append(self, records: Sequence[bytes]) -> list[int]:
        for record in records:
            if len(record) > RECORD_BYTES_MAX:
                raise ConvertError(
                    f"a record has {len(record)} bytes, an entry of a ledger holds"
                    f" {RECORD_BYTES_MAX}"
                )
        offsets: list[int] = []
        term = max(self._store.last_term, 1)
        start = 0
        for at, record in enumerate(records):
            # Each start of a plain broker is a term: what belongs together keeps doing so.
            if _opens_term(record) and (at or self._store.last_index >= 0):
                offsets += self._append_run(records[start:at], term)
                start, term = at, term + 1
        return offsets + self._append_run(records[start:], term)

    def _append_run(self, records: Sequence[bytes], term: int) -> list[int]:
        offsets: list[int] = []
        store = self._store
        while records:
            size = len(records[0]) + HEAD_BYTES
            position = place(store.end_position, size, store.segment_bytes)
            count = count_in_segment(records, position, store.segment_bytes)
            if not count:
                raise ConvertError(f"a record of {len(records[0])} bytes fits in no segment")
            entries = self._codec.encode(
                records[:count],
                first_index=store.last_index + 1,
                term=term,
                position=position,
                previous_chain_crc=store.last_chain_crc,
            )
            store.append(entries)
            offsets += [position + start + HEAD_BYTES for start in entries.starts]
            records = records[count:]
        return offsets

    def records(self) -> Iterator[SourceRecord]:
        index = self._store.first_index
        while index <= self._store.last_index:
            entries = self._store.read_verified(index, _READ_BYTES)
            for start, body in zip(entries.starts, entries.bodies(), strict=True):
                yield SourceRecord(entries.position + start + HEAD_BYTES, bytes(body))
            index = entries.last_index + 1

    def finish(self) -> None:
        store = self._store
        store.sync()
        store.write_checkpoint(store.last_index)
        store.sync()
        text = f"voteLeader=\ncurrTerm={max(store.last_term, 1)}\n"
        RealFileSystem().replace(str(self._folder / "currterm"), text.encode())
        self.messages.open()

    def close(self) -> None:
        self.messages.close()
        self._store.close()


class PlainTarget:
    """A plain commit log."""

    def __init__(self, config: BrokerConfig) -> None:
        """Opens nothing yet; see LedgerTarget."""
        files = RealFileSystem()
        self.log_folder = config.store_root / "commitlog"
        self.segment_bytes = config.segment_bytes
        self._log = PlainCommitLog(files, str(self.log_folder), config.segment_bytes)
        self._messages = PlainMessageStore(store_config(config), self._log, files, _wall_clock_ms)
        self.messages: MessageStore = self._messages

    def open(self) -> None:
        self._log.open(durable_offset=self._messages.durable_offset)

    def append(self, records: Sequence[bytes]) -> list[int]:
        offsets = self._log.append(records) if records else []
        self._log.confirm(self._log.whole_offset)
        return offsets

    def records(self) -> Iterator[SourceRecord]:
        offset = self._log.min_offset
        while offset < self._log.confirmed_offset:
            data, walk = self._log.records(offset, _READ_BYTES)
            if walk.next_offset == offset:
                raise ConvertError(f"the target is damaged at {offset}: {walk.stopped_because}")
            for start, stop in zip(walk.starts, walk.stops, strict=True):
                yield SourceRecord(start, data[start - offset : stop - offset])
            offset = walk.next_offset

    def finish(self) -> None:
        self._log.sync()
        self.messages.open()

    def close(self) -> None:
        self.messages.close()
        self._log.close()


def _opens_term(record: bytes) -> bool:
    # Most records are told from it by their size alone.
    return len(record) < 200 and decode_record_head(record).topic == TERM_TOPIC.encode()


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
