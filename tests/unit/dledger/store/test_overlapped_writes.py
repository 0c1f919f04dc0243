"""A write that a sync meets in its midst: the next sync covers it, whatever the files are."""

from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from ledgermq.commitlog import PlainCommitLog
from ledgermq.dledger.entry import EntryCodec, place
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.protocol.record import encode_record
from ledgermq.testing.simulation.disk import SimDisk, SimFile
from tests.fault.lossy_disk import new_disk

_HOST = (b"\x7f\x00\x00\x01", 10911)


def with_sync_inside(monkeypatch: pytest.MonkeyPatch, sync: Callable[[], object]) -> list[str]:
    """Has each write run a whole sync after a third of its bytes, as another thread may.

    Returns:
        The paths of the files that were written so.
    """
    original = SimFile.write
    met: list[str] = []

    def write(self: SimFile, offset: int, data: Any) -> None:
        part = len(data) // 3
        original(self, offset, data[:part])
        met.append(self.path)
        sync()
        original(self, offset + part, data[part:])

    monkeypatch.setattr(SimFile, "write", write)
    return met


def not_on_platter(disk: SimDisk) -> list[str]:
    """Returns the files whose bytes a power cut could take."""
    return [path for path, file in disk.files.items() if bytes(file.content) != file.durable]


def test_a_sync_in_the_midst_of_an_append_does_not_count_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = new_disk()
    store = DLedgerMmapFileStore(disk, "/store", 4096, 32 * 64, EntryCodec(crc32c))
    store.open()
    met = with_sync_inside(monkeypatch, store.sync)
    codec = EntryCodec(crc32c)
    for number in range(30):
        body = b"%03d" % number * 100
        run = codec.encode(
            [body],
            first_index=store.last_index + 1,
            term=1,
            position=place(store.end_position, 48 + len(body), 4096),
            previous_chain_crc=store.last_chain_crc,
        )
        store.append(run)
        store.sync()
        data = [path for path in not_on_platter(disk) if "/data/" in path]
        assert not data, f"after the sync of entry {number}: {data}"
    # Entries, and the blank that closes a segment.
    assert len(met) > 30


def test_a_sync_in_the_midst_of_a_plain_append_does_not_count_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = new_disk()
    log = PlainCommitLog(disk, "/log", 4096)
    log.open()
    met = with_sync_inside(monkeypatch, log.sync)
    for number in range(30):
        body = b"%03d" % number * 100
        log.append([encode_record(b"T", 0, 0, number, 0, 0, 1, _HOST, 1, _HOST, 0, 0, body, b"")])
        end = log.max_offset
        log.sync()
        assert log.flushed_offset == end
        assert not not_on_platter(disk), f"after the sync of record {number}"
    assert len(met) >= 30
