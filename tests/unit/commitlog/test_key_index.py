"""The key index: Java's places for keys, chains, full files, and the way back after a crash."""

import os
import random
import struct
from pathlib import Path

import pytest

from ledgermq.commitlog import index_file, key_index
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.errors import KeyChainTooLongError
from ledgermq.commitlog.index_file import IndexFile
from ledgermq.commitlog.key_index import (
    IndexMark,
    KeyIndex,
    file_name,
    hashes_of,
    positive_hash,
    topic_hash,
)
from ledgermq.commitlog.layout import index_file_bytes
from ledgermq.commitlog.look_up import run_to_end
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.java_hash import java_string_hash
from tests.unit.commitlog.flushed import flush

NOW_MS = 1_700_000_000_000
FOREVER = 1 << 60


def opened(path, *, slots=50, entries=100) -> KeyIndex:
    return KeyIndex(RealFileSystem(), str(path), DerivedFiles(RealFileSystem(), 9), slots, entries)


def rows(keys, *, topic=b"T", first=0, at=NOW_MS):
    return [
        (topic_hash(topic), key.encode(), 1000 * (first + n), at + n) for n, key in enumerate(keys)
    ]


def found(index, key, count=10, begin=0, end=FOREVER, topic="T"):
    return run_to_end(index.lookup(topic, key, count, begin, end))


def content(index) -> list[bytes]:
    """The files as they are when a store is closed."""
    index.settle()
    flush(index._files)
    path = Path(index._directory)
    return [(path / name).read_bytes() for name in sorted(os.listdir(path))]


@pytest.mark.parametrize(
    ("key", "key_hash", "slot_at"),
    [("K0", 2745031, 10980164), ("AC1400010001", 1634629815, 18519300)],
)
def test_key_has_the_hash_and_slot_of_java(key, key_hash, slot_at):
    (unsigned,) = hashes_of([(topic_hash(b"TopicTest"), key.encode(), 0, 0)])
    assert positive_hash(unsigned) == key_hash
    assert 40 + 4 * (key_hash % 5_000_000) == slot_at


def test_the_one_hash_without_a_positive_twin_is_zero():
    assert positive_hash(java_string_hash("polygenelubricants") & 0xFFFFFFFF) == 0


def test_keys_are_hashed_alike_together_and_alone():
    rng = random.Random(3)
    keys = ["".join(rng.choices("0123456789ABCDEF", k=32)) for _ in range(40)]
    mixed = [*keys, "K", "中文", "x" * 31, "é" * 16]
    for some in (keys, mixed, ["K"]):
        expected = [java_string_hash(f"TopicTest#{key}") & 0xFFFFFFFF for key in some]
        assert hashes_of(rows(some, topic=b"TopicTest")) == expected


def test_file_has_the_bytes_that_java_writes(tmp_path):
    index = opened(tmp_path / "i", slots=10, entries=5)
    index.add([(topic_hash(b"TopicTest"), b"K0", 1048, NOW_MS)], NOW_MS)
    index.add([(topic_hash(b"TopicTest"), b"K0", 2000, NOW_MS + 2500)], NOW_MS)
    slot = 2745031 % 10
    expected = struct.pack(">qqqqii", NOW_MS, NOW_MS + 2500, 1048, 2000, 1, 3)
    expected += struct.pack(">10i", *[2 if n == slot else 0 for n in range(10)])
    expected += bytes(20)
    expected += struct.pack(">iqii", 2745031, 1048, 0, 0)
    expected += struct.pack(">iqii", 2745031, 2000, 2, 1)
    expected += bytes(40)
    assert content(index) == [expected]
    assert len(expected) == index_file_bytes(10, 5)


def test_name_is_the_local_time():
    assert file_name(NOW_MS + 7)[14:] == "007"
    assert len(file_name(NOW_MS)) == 17


def test_lookup_returns_the_newest_first_and_at_most_so_many(tmp_path):
    index = opened(tmp_path / "i")
    index.add(rows(["a", "b", "a", "c", "a"]), NOW_MS)
    assert found(index, "a") == [4000, 2000, 0]
    assert found(index, "a", count=2) == [4000, 2000]
    assert found(index, "b") == [1000]
    assert found(index, "missing") == []
    assert found(index, "a", topic="Other") == []


def test_lookup_keeps_to_the_span_of_time(tmp_path):
    index = opened(tmp_path / "i")
    for n in range(5):
        index.add(rows(["a"], first=n, at=NOW_MS + 10_000 * n), NOW_MS)
    assert found(index, "a", begin=NOW_MS + 10_000, end=NOW_MS + 30_000) == [3000, 2000, 1000]


def test_chains_through_shared_slots_find_each_key(tmp_path):
    index = opened(tmp_path / "i", slots=3)
    keys = [f"key{n}" for n in range(60)]
    index.add(rows(keys), NOW_MS)
    for n, key in enumerate(keys):
        assert found(index, key) == [1000 * n]


def test_full_file_is_followed_by_another(tmp_path):
    index = opened(tmp_path / "i", entries=10)
    index.add(rows(["a"] * 25), NOW_MS)
    places = [1000 * n for n in reversed(range(25))]
    assert found(index, "a", count=100) == places
    assert index.full_timestamp == NOW_MS + 17
    assert len(content(index)) == 3
    assert found(index, "a", count=100) == places
    second = content(index)[1]
    # Times of its first entry count from the end of the file before.
    assert struct.unpack(">qq", second[:16]) == (NOW_MS + 9, NOW_MS + 17)


def test_record_that_is_entered_already_is_skipped(tmp_path):
    index = opened(tmp_path / "i")
    index.add(rows(["a", "b"]), NOW_MS)
    before = content(index)
    index.add(rows(["a", "b"]), NOW_MS)
    assert content(index) == before
    index.add(rows(["a", "b", "c"]), NOW_MS)
    assert found(index, "c") == [2000]
    assert found(index, "a") == [0]


class SmallDisk(RealFileSystem):
    """Has no room while it is told so."""

    is_full = False

    def reserve(self, path, size_bytes):
        if self.is_full:
            raise DiskFullError(path, size_bytes)
        return super().reserve(path, size_bytes)


@pytest.mark.parametrize("known_count", [1, 3, 4, 5])
def test_keys_of_a_record_that_found_no_room_for_a_file_are_entered_once(tmp_path, known_count):
    """The end of a file may split a record's keys, and the next file be long in coming."""
    disk = SmallDisk()
    files = DerivedFiles(disk, 9)
    files.held_max = 5
    index = KeyIndex(disk, str(tmp_path), files, 50, 6)
    index.add(rows(f"a{i}" for i in range(known_count)), NOW_MS)
    place = 9_000
    keys = [(topic_hash(b"T"), b"k%d" % i, place, NOW_MS) for i in range(7)]
    behind = (topic_hash(b"T"), b"behind", place + 1, NOW_MS)
    disk.is_full = True
    with pytest.raises(DiskFullError):
        index.add([*keys, behind], NOW_MS)
    assert files.is_behind
    disk.is_full = False
    index.add([*keys, behind], NOW_MS)
    assert index.find_missing([*keys, behind]) is None
    for _ in range(2):
        assert [found(index, f"k{i}") for i in range(7)] == [[place]] * 7
        assert found(index, "behind") == [place + 1]
        flush(files)


def test_restore_after_a_crash_makes_the_slots_again(tmp_path):
    index = opened(tmp_path / "i")
    index.add(rows([f"k{n % 7}" for n in range(30)]), NOW_MS)
    mark, before = index.mark(), content(index)
    index.add(rows(["k1"] * 20, first=30), NOW_MS)
    flush(index._files)
    again = opened(tmp_path / "i")
    assert again.restore(mark, is_clean=False)
    assert content(again)[0][:240] == before[0][:240]
    assert found(again, "k1") == [29_000, 22_000, 15_000, 8_000, 1_000]
    again.add(rows(["k1"] * 20, first=30), NOW_MS)
    assert again.end_physical_offset == 49_000
    assert found(again, "k1", count=99)[:20] == [1000 * n for n in reversed(range(30, 50))]
    assert content(again)[0][240:860] == before[0][240:860]


def test_restore_removes_files_made_after_the_checkpoint(tmp_path):
    index = opened(tmp_path / "i", entries=10)
    index.add(rows(["a"] * 5), NOW_MS)
    mark = index.mark()
    index.add(rows(["a"] * 20, first=5), NOW_MS)
    assert len(content(index)) == 3
    again = opened(tmp_path / "i", entries=10)
    assert again.restore(mark, is_clean=False)
    assert len(content(again)) == 1
    assert found(again, "a") == [4000, 3000, 2000, 1000, 0]


def test_other_files_than_the_checkpoint_names_are_not_trusted(tmp_path):
    index = opened(tmp_path / "i")
    index.add(rows(["a"] * 5), NOW_MS)
    mark = index.mark()
    shifted = IndexMark(mark.names, mark.header.__class__(1, 2, 3, 99, 5, 6))
    content(index)
    again = opened(tmp_path / "i")
    assert not again.restore(shifted, is_clean=False)
    assert content(again) == []
    assert not opened(tmp_path / "i").restore(mark, is_clean=True)
    assert opened(tmp_path / "i").restore(None, is_clean=True)


def test_first_file_may_be_gone_by_retention(tmp_path):
    index = opened(tmp_path / "i", entries=10)
    index.add(rows(["a"] * 25), NOW_MS)
    mark = index.mark()
    assert index.drop_before(10_000) == 1
    assert index.drop_before(1 << 40) == 1
    content(index)
    again = opened(tmp_path / "i", entries=10)
    assert again.restore(mark, is_clean=True, log_start=20_000)
    assert found(again, "a", count=99) == [1000 * n for n in reversed(range(18, 25))]


def test_a_missing_first_file_that_the_log_still_needs_is_noticed(tmp_path):
    index = opened(tmp_path / "i", entries=10)
    index.add(rows(["a"] * 25), NOW_MS)
    mark = index.mark()
    content(index)
    os.remove(tmp_path / "i" / mark.names[0])
    assert not opened(tmp_path / "i", entries=10).restore(mark, is_clean=True, log_start=500)


def test_cut_drops_entries_of_records_that_the_log_lost(tmp_path):
    index = opened(tmp_path / "i")
    index.add(rows(["a", "b"] * 10), NOW_MS)
    flush(index._files)
    assert index.cut_at(15_000)
    assert found(index, "b")[0] == 13_000
    assert index.end_physical_offset == 14_000
    assert index.cut_at(1 << 40)
    assert not index.cut_at(0)


def test_no_key_is_missed_where_the_clock_was_set_back(tmp_path):
    """The scrub would take it for damage, on every member, round after round."""
    index = opened(tmp_path, slots=3, entries=12)
    entered = []
    for step, at in enumerate((NOW_MS, NOW_MS + 60_000, NOW_MS - 86_400_000, NOW_MS + 5_000)):
        part = rows([f"K{step}-{n}" for n in range(7)], first=10 * step, at=at)
        index.add(part, NOW_MS)
        entered += part
    assert index.find_missing(entered) is None
    strange = rows(["other"], first=3)
    assert index.find_missing(strange) == strange[0]
    moved = [(*entered[2][:2], entered[2][2] + 1, entered[2][3])]
    assert index.find_missing(moved) == moved[0]


def test_index_that_was_cut_and_filled_again_is_the_one_that_never_was(tmp_path):
    entered = rows([f"K{n}" for n in range(20)])
    cut, straight = tmp_path / "cut", tmp_path / "straight"
    cut.mkdir()
    straight.mkdir()
    index = opened(cut)
    index.add(entered, NOW_MS)
    flush(index._files)
    assert index.cut_at(entered[8][2])
    index.add(entered, NOW_MS)
    other = opened(straight)
    other.add(entered, NOW_MS)
    assert content(index) == content(other)


def test_query_looks_at_a_bounded_number_of_entries(tmp_path, monkeypatch):
    """Keys can be made that share a slot: a query walked past all of them, while nobody else was
    served.
    """
    monkeypatch.setattr(key_index, "LOOKUP_LINKS_MAX", 50)
    index = opened(tmp_path, slots=1, entries=30)
    index.add(rows([f"K{n}" for n in range(100)]), NOW_MS)
    assert found(index, "K51") == [51_000]
    assert found(index, "K99", begin=NOW_MS) == [99_000]
    with pytest.raises(KeyChainTooLongError, match="newest 50 entries"):
        found(index, "K49")
    # Nothing more was asked for, or there is nothing more.
    assert found(index, "K49", count=0) == []
    assert found(index, "K3", begin=NOW_MS + 90_000) == []
    index.add(rows(["K0"] * 60, first=100), NOW_MS)
    assert len(found(index, "K0", count=99)) == 50


def test_a_long_chain_is_followed_in_pieces_while_the_files_change(tmp_path, monkeypatch):
    monkeypatch.setattr(index_file, "_LINKS_A_PIECE", 10)
    index = opened(tmp_path, slots=1, entries=100)
    index.add(rows([f"K{n}" for n in range(250)]), NOW_MS)
    pieces = index.lookup("T", "K5", 10, 0, FOREVER)
    for number in range(12):
        next(pieces)
        index.add(rows([f"L{number}"], first=300 + number), NOW_MS)
    assert run_to_end(pieces) == [5000]
    steps = sum(1 for _ in index.lookup("T", "K5", 10, 0, FOREVER))
    assert steps >= 20
    # Of files that retention removed meanwhile nothing is read any more.
    pieces = index.lookup("T", "K5", 10, 0, FOREVER)
    for _ in range(10):
        next(pieces)
    assert index.drop_before(240_000) == 2
    assert run_to_end(pieces) == []


def test_of_a_key_that_many_messages_bear_no_whole_chain_is_walked(tmp_path, monkeypatch):
    """The scrub asks for each of them: a walk each would be a million million links."""
    index = opened(tmp_path, slots=3, entries=2001)
    entered = rows(["hot"] * 2000)
    index.add(entered, NOW_MS)
    read_count = 0
    read_entry = IndexFile._entry

    def counted(file, number):
        nonlocal read_count
        read_count += 1
        return read_entry(file, number)

    monkeypatch.setattr(IndexFile, "_entry", counted)
    assert index.find_missing(entered) is None
    assert read_count < 100 * len(entered)
    for at in (0, 1000, 1999):
        moved = [(*entered[at][:2], entered[at][2] + 1, entered[at][3])]
        assert index.find_missing(moved) == (moved[0] if at < 1999 else None)


def test_what_is_looked_at_in_the_order_of_the_log_is_read_once(tmp_path, monkeypatch):
    """A read of the file for each link of each chain took a fifth of a broker's time."""
    index = opened(tmp_path, slots=8192, entries=20_001)
    entered = rows([f"K{n % 100}" for n in range(20_000)])
    index.add(entered, NOW_MS)
    flush(index._files)
    read_count = 0
    read = DerivedFiles.read

    def counted(files, path, offset, size_bytes):
        nonlocal read_count
        read_count += 1
        return read(files, path, offset, size_bytes)

    monkeypatch.setattr(DerivedFiles, "read", counted)
    for start in range(0, 20_000, 50):
        assert index.find_missing(entered[start : start + 50]) is None
    assert read_count < 4 * len(entered)


@pytest.mark.parametrize("slot", [0, 1, 7, 12, 20, 1 << 30, -1])
def test_key_whose_slot_leads_elsewhere_is_missing(tmp_path, slot):
    """Twelve keys, each in a slot of its own: its slot leads to nothing, or to another chain."""
    index = opened(tmp_path, slots=50_000, entries=13)
    entered = rows([f"K{n}" for n in range(12)])
    index.add(entered, NOW_MS)
    index.settle()
    flush(index._files)
    (name,) = os.listdir(tmp_path)
    (unsigned,) = hashes_of([entered[5]])
    with open(tmp_path / name, "r+b") as file:
        file.seek(40 + 4 * (positive_hash(unsigned) % 50_000))
        file.write(struct.pack(">i", slot))
    assert index.find_missing(entered) == entered[5]
