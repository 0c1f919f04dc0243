"""The file store on real files: the bytes upstream writes, refusals, reads, marks."""

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from ledgermq.dledger.entry import INDEX_UNIT_BYTES, EntryCodec, EntryId, EntrySlice, place
from ledgermq.dledger.errors import CompactedError, LedgerPositionError, OutOfRangeError
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.errors import (
    CorruptStoreError,
    DiskFullError,
    StoreFailedError,
    StoreFormatError,
)
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import File, FileSystem, RealFileSystem
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore
from tests.fault.lossy_disk import new_disk

SEGMENT_BYTES = 1024
INDEX_SEGMENT_BYTES = 32 * 8
# "hello" and "world" as a DLedger 0.3.1.2 member writes them: no checksums.
JAVA_ENTRIES = bytes.fromhex(
    "00000001 00000035 0000000000000000 0000000000000001 0000000000000000"
    "00000000 00000000 00000000 00000005 68656c6c6f"
    "00000001 00000035 0000000000000001 0000000000000001 0000000000000035"
    "00000000 00000000 00000000 00000005 776f726c64"
)
JAVA_UNITS = bytes.fromhex(
    "00000001 0000000000000000 00000035 0000000000000000 0000000000000001"
    "00000001 0000000000000035 00000035 0000000000000001 0000000000000001"
)


def make_store(directory: Path, disk: FileSystem | None = None) -> DLedgerMmapFileStore:
    return DLedgerMmapFileStore(
        disk or RealFileSystem(),
        str(directory / "dledger-n0"),
        SEGMENT_BYTES,
        INDEX_SEGMENT_BYTES,
        EntryCodec(crc32c),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DLedgerMmapFileStore]:
    store = make_store(tmp_path)
    store.open()
    yield store
    store.close()


def next_entries(store: LedgerStore, bodies: list[bytes], term: int = 1) -> EntrySlice:
    return EntryCodec(crc32c).encode(
        bodies,
        first_index=store.last_index + 1,
        term=term,
        position=place(store.end_position, len(bodies[0]) + 48, store.segment_bytes),
        previous_chain_crc=store.last_chain_crc,
    )


def fill(store: LedgerStore, count: int, body_bytes: int = 100, term: int = 1) -> None:
    for _ in range(count):
        store.append(next_entries(store, [bytes(body_bytes)], term))


def refuse_files(path: str, size_bytes: int) -> File:
    raise OSError(errno.EMFILE, "Too many open files", path)


def test_both_stores_are_ledger_stores(tmp_path: Path) -> None:
    stores: list[LedgerStore] = [DLedgerMemoryStore(SEGMENT_BYTES), make_store(tmp_path)]
    assert len(stores) == 2


def test_an_empty_store_leaves_nothing_in_data(tmp_path: Path, store: DLedgerMmapFileStore) -> None:
    assert (store.first_index, store.last_index, store.last_term) == (0, -1, -1)
    assert (store.end_position, store.last_chain_crc, store.read_checkpoint()) == (0, 0, -1)
    assert not (tmp_path / "dledger-n0/data").exists()


def test_bytes_on_disk_are_those_of_upstream(tmp_path: Path, store: DLedgerMmapFileStore) -> None:
    entries = EntryCodec(crc32c).parse(
        JAVA_ENTRIES, position=0, previous=None, previous_chain_crc=0
    )
    store.append(entries)
    data = (tmp_path / "dledger-n0/data/00000000000000000000").read_bytes()
    index = (tmp_path / "dledger-n0/index/00000000000000000000").read_bytes()
    assert data == JAVA_ENTRIES.ljust(SEGMENT_BYTES, b"\0")
    assert index == JAVA_UNITS.ljust(INDEX_SEGMENT_BYTES, b"\0")


def test_a_blank_closes_a_full_segment(tmp_path: Path, store: DLedgerMmapFileStore) -> None:
    store.append(next_entries(store, [bytes(SEGMENT_BYTES - 48 - 40)]))
    store.append(next_entries(store, [b"next"]))
    data = tmp_path / "dledger-n0/data"
    assert sorted(path.name for path in data.iterdir())[:2] == [f"{0:020d}", f"{1024:020d}"]
    assert (data / f"{0:020d}").read_bytes()[-40:] == bytes.fromhex("ffffffff 00000028") + bytes(32)
    assert store.position_at(1) == 1024
    assert (data / f"{1024:020d}").read_bytes()[48:52] == b"next"


def test_a_store_that_java_wrote_is_opened_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "dledger-n0"
    for name, content, size in (
        ("data", JAVA_ENTRIES, SEGMENT_BYTES),
        ("index", JAVA_UNITS, INDEX_SEGMENT_BYTES),
    ):
        (root / name).mkdir(parents=True)
        (root / name / f"{0:020d}").write_bytes(content.ljust(size, b"\0"))
    (root / "checkpoint").write_bytes(b"committedIndex=1\nendIndex=1\n")
    before = {path: path.read_bytes() for path in root.rglob("0*")}
    store = make_store(tmp_path)
    report = store.open()
    assert (report.last_index, report.committed_index, report.unfilled_count) == (1, 1, 2)
    assert (report.cut_reason, report.rebuilt_units) == (None, 0)
    assert store.read(0, 1000).same_as(
        EntryCodec(crc32c).parse(JAVA_ENTRIES, position=0, previous=None, previous_chain_crc=0)
    )
    store.append(next_entries(store, [b"ours"]))
    store.close()
    after = {path: path.read_bytes() for path in before}
    assert all(after[path].startswith(before[path].rstrip(b"\0")) for path in before)


def test_files_have_their_full_size_at_once(tmp_path: Path, store: DLedgerMmapFileStore) -> None:
    fill(store, 1)
    sizes = {path.stat().st_size for path in (tmp_path / "dledger-n0/data").iterdir()}
    assert sizes == {SEGMENT_BYTES}


def test_checkpoint_has_upstreams_text(tmp_path: Path, store: DLedgerMmapFileStore) -> None:
    fill(store, 5)
    store.write_checkpoint(3)
    assert store.read_checkpoint() == 3
    store.sync()
    root = tmp_path / "dledger-n0"
    assert (root / "checkpoint").read_bytes() == b"committedIndex=3\nendIndex=4\n"
    fill(store, 1)
    store.write_checkpoint(5)
    store.sync()
    assert (root / "checkpoint.bak").read_bytes() == b"committedIndex=3\nendIndex=4\n"


def test_checkpoint_on_disk_never_passes_what_is_on_disk(
    tmp_path: Path, store: DLedgerMmapFileStore
) -> None:
    fill(store, 2)
    store.write_checkpoint(9)
    store.sync()
    assert (tmp_path / "dledger-n0/checkpoint").read_bytes() == b"committedIndex=1\nendIndex=1\n"


def test_nothing_but_segments_lies_in_data_and_index(
    tmp_path: Path, store: DLedgerMmapFileStore
) -> None:
    fill(store, 30)
    store.write_checkpoint(20)
    store.sync()
    store.truncate(5)
    store.close()
    root = tmp_path / "dledger-n0"
    names = [path.name for part in ("data", "index") for path in (root / part).iterdir()]
    assert all(len(name) == 20 and name.isdigit() for name in names)
    store.open()


@pytest.mark.parametrize("change", [{"first_index": 7}, {"position": 1}, {"position": 1024}])
def test_entries_that_do_not_continue_the_log_change_nothing(
    tmp_path: Path, store: DLedgerMmapFileStore, change: dict[str, int]
) -> None:
    fill(store, 2)
    path = tmp_path / "dledger-n0/data" / f"{0:020d}"
    before = path.read_bytes()
    place_in_log = {"first_index": 2, "position": store.end_position} | change
    entries = EntryCodec(crc32c).encode([b"x"], term=1, previous_chain_crc=0, **place_in_log)
    with pytest.raises(LedgerPositionError):
        store.append(entries)
    assert path.read_bytes() == before
    assert store.last_index == 1


def test_a_fallen_term_and_a_run_over_the_segment_end_are_refused(
    store: DLedgerMmapFileStore,
) -> None:
    fill(store, 1, term=3)
    with pytest.raises(LedgerPositionError):
        store.append(next_entries(store, [b"x"], term=2))
    with pytest.raises(LedgerPositionError):
        store.append(next_entries(store, [bytes(400), bytes(400)], term=3))


def test_terms_positions_and_heads_by_index(store: DLedgerMmapFileStore) -> None:
    for term in (1, 1, 4, 4, 4, 9):
        fill(store, 3, term=term)
    assert [store.term_at(index) for index in range(0, 18, 3)] == [1, 1, 4, 4, 4, 9]
    assert store.last_term == 9
    assert store.position_at(0) == 0
    assert store.head_at(17).index == 17
    with pytest.raises(OutOfRangeError):
        store.term_at(18)


def test_reads_stay_in_one_segment_and_give_one_entry_at_least(
    store: DLedgerMmapFileStore,
) -> None:
    fill(store, 20)
    assert store.read(0, 0).count == 1
    assert store.read(0, 300).count == 2
    # 6 entries of 148 bytes fill a segment; index segments hold 8 units.
    assert store.read(0, 10_000).count == 6
    assert store.read(6, 10_000).count == 2
    assert store.read(3, 10_000).last_id == EntryId(1, 5)
    assert isinstance(store.read(0, 10).data, bytes)


def test_truncate_wipes_the_cut_and_the_log_goes_on(
    tmp_path: Path, store: DLedgerMmapFileStore
) -> None:
    fill(store, 20)
    store.truncate(8)
    assert (store.last_index, store.end_position) == (7, 1024 + 2 * 148)
    root = tmp_path / "dledger-n0"
    assert not any((root / "data" / f"{1024:020d}").read_bytes()[2 * 148 :])
    assert not (root / "data" / f"{2048:020d}").exists()
    fill(store, 3, term=2)
    assert [store.term_at(index) for index in (7, 8, 10)] == [1, 2, 2]


def test_truncate_to_nothing(store: DLedgerMmapFileStore) -> None:
    fill(store, 3)
    store.truncate(0)
    assert (store.last_index, store.last_term, store.end_position) == (-1, -1, 0)
    fill(store, 1)
    assert store.position_at(0) == 0


def test_room_behind_a_cut_blank_is_used_again(store: DLedgerMmapFileStore) -> None:
    fill(store, 1, body_bytes=800)
    fill(store, 1, body_bytes=300)
    assert store.position_at(1) == 1024
    store.truncate(1)
    assert store.end_position == 848
    fill(store, 1, body_bytes=10)
    assert store.position_at(1) == 848


def test_blank_before_a_torn_entry_is_no_part_of_the_log(
    tmp_path: Path, store: DLedgerMmapFileStore
) -> None:
    """All members whose log ends at one entry place the next one alike, whatever a cut left."""
    fill(store, 1, body_bytes=800)
    store.sync()
    fill(store, 1, body_bytes=300)
    assert store.position_at(1) == 1024
    # As after a power cut: the blank is on disk, and not all of the entry behind it.
    store.data.segment_at(1024).write(20, bytes(1004))
    store.abandon()
    again = make_store(tmp_path)
    report = again.open()
    assert (report.last_index, report.end_position) == (0, 848)
    fill(again, 1, body_bytes=10)
    assert again.position_at(1) == 848
    again.close()


def test_drop_before_removes_whole_segments(tmp_path: Path, store: DLedgerMmapFileStore) -> None:
    fill(store, 20)
    assert store.drop_before(1023) == 0
    assert store.drop_before(2 * 1024 + 5) == 12
    assert store.first_position == 2048
    with pytest.raises(CompactedError):
        store.term_at(11)
    names = sorted(path.name for path in (tmp_path / "dledger-n0/index").iterdir())
    assert names[0] == f"{256:020d}"
    assert store.drop_before(1 << 40) == 18
    store.close()
    again = make_store(tmp_path)
    assert again.open().first_index == 18
    again.close()


def test_a_log_may_begin_inside_a_segment(tmp_path: Path, store: DLedgerMmapFileStore) -> None:
    fill(store, 5)
    store.reset(100, 5000)
    assert (store.first_index, store.last_index, store.end_position) == (100, 99, 5000)
    fill(store, 3, body_bytes=10, term=7)
    store.close()
    again = make_store(tmp_path)
    report = again.open()
    assert (report.first_index, report.last_index, report.first_position) == (100, 102, 5000)
    assert again.term_at(101) == 7
    again.close()


def test_an_empty_log_behind_a_reset_is_remembered(
    tmp_path: Path, store: DLedgerMmapFileStore
) -> None:
    fill(store, 5)
    store.reset(100, 5000)
    store.close()
    again = make_store(tmp_path)
    again.open()
    assert (again.first_index, again.last_index, again.end_position) == (100, 99, 5000)
    again.close()


def test_a_full_disk_is_told_before_any_byte(tmp_path: Path) -> None:
    disk = new_disk()
    store = make_store(tmp_path, disk)
    store.open()
    fill(store, 4)
    disk.free_bytes = 100
    fill(store, 2)
    before = {path: bytes(file.content) for path, file in disk.files.items()}
    with pytest.raises(DiskFullError):
        fill(store, 1)
    assert {path: bytes(file.content) for path, file in disk.files.items()} == before
    store.sync()
    disk.free_bytes = None
    fill(store, 1)
    assert store.last_index == 6


def test_a_failed_write_is_final_and_what_it_left_is_no_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path)
    store.open()
    fill(store, 2)
    end = store.end_position
    write, writes = os.pwrite, []

    def fail(number: int, data: bytes, offset: int) -> int:
        writes.append(offset)
        if len(writes) > 2:
            raise OSError(errno.EIO, "Input/output error")
        return write(number, data[:60], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        with pytest.raises(StoreFailedError, match="Input/output error"):
            store.append(next_entries(store, [b"x" * 100]))
    with pytest.raises(StoreFailedError):
        fill(store, 1)
    assert (store.last_index, store.end_position) == (1, end)
    # The unit of the entry, and a part of the entry.
    assert writes == [2 * INDEX_UNIT_BYTES, end, end + 60]
    store.close()
    again = make_store(tmp_path)
    again.open()
    assert (again.last_index, again.end_position) == (1, end)
    fill(again, 1)
    assert again.last_index == 2
    again.close()


def test_a_failed_write_of_the_blank_at_the_end_of_a_segment_is_final(tmp_path: Path) -> None:
    disk = new_disk()
    store = make_store(tmp_path, disk)
    store.open()
    fill(store, 6)
    end = store.end_position
    disk.write_errors = 1
    for _ in range(2):
        with pytest.raises(StoreFailedError, match="Input/output error"):
            fill(store, 1)
    assert (store.last_index, store.end_position) == (5, end)
    store.close()
    again = make_store(tmp_path, disk)
    again.open()
    assert (again.last_index, again.end_position) == (5, end)
    fill(again, 1)
    assert again.position_at(6) == SEGMENT_BYTES
    again.close()


def test_an_index_segment_that_cannot_be_made_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = new_disk()
    store = make_store(tmp_path, disk)
    store.open()
    # As many units as a segment of the index holds.
    fill(store, INDEX_SEGMENT_BYTES // 32, 10)
    end = store.end_position
    with monkeypatch.context() as patch:
        patch.setattr(disk, "reserve", refuse_files)
        with pytest.raises(StoreFailedError, match="Too many open files"):
            fill(store, 1, 10)
    with pytest.raises(StoreFailedError):
        fill(store, 1, 10)
    assert store.end_position == end
    store.close()


def test_a_write_that_takes_a_part_goes_on_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    disk = RealFileSystem()
    file = disk.reserve(str(tmp_path / "0"), 100)
    monkeypatch.setattr(os, "pwrite", lambda number, data, at: write(number, data[:7], at))
    file.write(10, b"a" * 20)
    assert file.read(0, 100) == bytes(10) + b"a" * 20 + bytes(70)
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.write(0, b"late")


def test_a_failed_sync_is_final(tmp_path: Path) -> None:
    disk = new_disk()
    store = make_store(tmp_path, disk)
    store.open()
    fill(store, 2)
    disk.sync_errors = 1
    with pytest.raises(OSError):
        store.sync()
    for use in (store.sync, lambda: fill(store, 1), lambda: store.truncate(1)):
        with pytest.raises(StoreFailedError) as caught:
            use()
        assert "Input/output" in str(caught.value)
    store.close()


@pytest.mark.parametrize(
    ("name", "size", "field"),
    [
        ("data/notes.txt", 1024, "name"),
        ("data/" + "٠" * 20, 1024, "name"),
        ("data/00000000000000000007", 1024, "start"),
        ("data/00000000000000004096", 1024, "start"),
        ("index/notes.txt", 100, "name"),
    ],
)
def test_a_stray_file_is_named(
    tmp_path: Path, store: DLedgerMmapFileStore, name: str, size: int, field: str
) -> None:
    fill(store, 3)
    store.close()
    (tmp_path / "dledger-n0" / name).write_bytes(b"x" * size)
    with pytest.raises(StoreFormatError) as caught:
        make_store(tmp_path).open()
    assert caught.value.field == field
    assert caught.value.path.endswith(name)


@pytest.mark.parametrize("name", ["index/00000000000000000000", "index/00000000000000000256"])
def test_an_index_that_is_not_whole_is_made_anew(
    tmp_path: Path, store: DLedgerMmapFileStore, name: str
) -> None:
    fill(store, 30)
    store.close()
    index = sorted((tmp_path / "dledger-n0" / "index").iterdir())
    content = {path: path.read_bytes() for path in index}
    (tmp_path / "dledger-n0" / name).write_bytes(b"x" * 100)
    assert make_store(tmp_path).open().rebuilt_units == 30
    (tmp_path / "dledger-n0" / name).unlink()
    assert make_store(tmp_path).open().rebuilt_units == 30
    assert {path: path.read_bytes() for path in index} == content


def test_another_segment_size_is_refused(tmp_path: Path, store: DLedgerMmapFileStore) -> None:
    fill(store, 3)
    store.close()
    other = DLedgerMmapFileStore(
        RealFileSystem(), str(tmp_path / "dledger-n0"), 4096, 256, EntryCodec(crc32c)
    )
    with pytest.raises(StoreFormatError) as caught:
        other.open()
    assert (caught.value.expected, caught.value.found) == (4096, 1024)


def test_a_unit_that_disagrees_with_the_data_is_damage(
    tmp_path: Path, store: DLedgerMmapFileStore
) -> None:
    # The last writes of the last segment are read from memory.
    fill(store, 24)
    path = tmp_path / "dledger-n0/index" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(32 + 24)
        file.write(struct.pack(">q", 5))
    for read in (store.head_at, lambda index: store.read(index, 10)):
        with pytest.raises(CorruptStoreError):
            read(1)


@pytest.mark.parametrize("offset, bit", [(4, 0x00200000), (8, 0x40), (12, 0x80000000), (12, 0x40)])
def test_a_unit_that_points_outside_the_log_is_damage(
    tmp_path: Path, store: DLedgerMmapFileStore, offset: int, bit: int
) -> None:
    """A flipped bit of a position or a size is no failure of a kind that nobody repairs."""
    # The last writes of the last segment are read from memory.
    fill(store, 24)
    path = tmp_path / "dledger-n0/index" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(2 * 32 + offset)
        (word,) = struct.unpack(">I", file.read(4))
        file.seek(2 * 32 + offset)
        file.write(struct.pack(">I", word ^ bit))
    for read in (store.head_at, lambda index: store.read(index, 1 << 20)):
        with pytest.raises(CorruptStoreError):
            read(2)


def test_where_damage_is_found_all_before_it_is_verified(tmp_path: Path) -> None:
    """A flipped bit made the last entry that was kept one of a term far ahead, and its member
    raised the term of the whole group to that."""
    store = make_store(tmp_path)
    store.open()
    fill(store, 30)
    store.write_checkpoint(29)
    store.sync()
    store.close()
    path = tmp_path / "dledger-n0/data" / f"{3 * SEGMENT_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(5 * 148 + 16)
        assert file.read(8) == struct.pack(">q", 1)
        file.seek(5 * 148 + 16)
        file.write(struct.pack(">q", 1 | 1 << 50))
    again, found = make_store(tmp_path), []
    again.open(on_damage=found.append)
    assert len(found) == 1
    assert (again.last_index, again.last_term) == (22, 1)
    again.close()


def test_slices_of_several_terms_are_indexed_term_by_term(store: DLedgerMmapFileStore) -> None:
    source = DLedgerMemoryStore(SEGMENT_BYTES)
    for term in (1, 1, 2, 3):
        fill(source, 1, body_bytes=20, term=term)
    store.append(source.read(0, 10_000))
    assert [store.term_at(index) for index in range(4)] == [1, 1, 2, 3]
    store.truncate(3)
    assert (store.last_term, store.last_chain_crc) == (2, source.head_at(2).chain_crc)
