"""Segments: one file, and runs of them."""

import errno
import os
from pathlib import Path

import pytest

from ledgermq.dledger.disk_job import do_now
from ledgermq.dledger.store.errors import DiskFullError, StoreFormatError
from ledgermq.dledger.store.filesystem import FileSystem, RealFileSystem
from ledgermq.dledger.store.segment import Segment, segment_name
from ledgermq.dledger.store.segments import Segments
from tests.fault.lossy_disk import new_disk


def make_segments(directory: Path, disk: FileSystem | None = None) -> Segments:
    segments = Segments(disk or RealFileSystem(), str(directory / "log"), 100)
    segments.open()
    return segments


def test_names_are_offsets_in_20_digits() -> None:
    assert segment_name(1073741824) == "00000000001073741824"


def test_a_segment_is_full_of_zeros_from_the_start(tmp_path: Path) -> None:
    segment = Segment(RealFileSystem(), str(tmp_path / "log" / segment_name(300)), 100)
    assert segment.start_offset == 300
    assert (tmp_path / "log" / segment_name(300)).read_bytes() == bytes(100)
    segment.write(10, b"abc")
    assert segment.read(9, 5) == b"\0abc\0"
    assert segment.read(98, 50) == bytes(2)
    segment.close()
    again = Segment(RealFileSystem(), str(tmp_path / "log" / segment_name(300)), 100)
    assert again.read(10, 3) == b"abc"
    again.close()
    with pytest.raises(StoreFormatError):
        Segment(RealFileSystem(), str(tmp_path / "log" / segment_name(300)), 200)


def test_a_sync_of_a_closed_segment_does_nothing(tmp_path: Path) -> None:
    segment = Segment(RealFileSystem(), str(tmp_path / segment_name(0)), 100)
    segment.close()
    segment.sync()


def test_bytes_go_over_the_end_of_a_segment(tmp_path: Path) -> None:
    segments = make_segments(tmp_path)
    segments.append(b"a" * 70)
    segments.append(b"b" * 170)
    assert (segments.starts, segments.end_position) == ((0, 100, 200), 240)
    assert segments.read(60, 20) == b"a" * 10 + b"b" * 10
    assert segments.read(95, 20) == b"b" * 5
    segments.close()
    again = make_segments(tmp_path)
    assert (again.first_position, again.end_position) == (0, 300)
    assert again.read(200, 50) == b"b" * 40 + bytes(10)
    again.close()


def test_truncate_zeroes_and_removes(tmp_path: Path) -> None:
    segments = make_segments(tmp_path)
    segments.append(b"x" * 350)
    segments.truncate(130)
    assert (segments.starts, segments.end_position) == ((0, 100), 130)
    assert segments.read(100, 100) == b"x" * 30 + bytes(70)
    segments.append(b"y")
    assert segments.read(129, 3) == b"xy\0"
    segments.close()


def test_truncate_at_a_boundary_removes_the_file_behind_it(tmp_path: Path) -> None:
    segments = make_segments(tmp_path)
    segments.append(b"x" * 250)
    segments.truncate(200)
    assert segments.starts == (0, 100)
    segments.append(b"z")
    assert segments.read(200, 2) == b"z\0"
    segments.close()


def test_drop_keeps_the_last_file(tmp_path: Path) -> None:
    segments = make_segments(tmp_path)
    segments.append(b"x" * 250)
    assert segments.drop_before(199) == 100
    assert segments.drop_before(9999) == 200
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == [segment_name(200)]
    with pytest.raises(IndexError):
        segments.segment_at(150)
    segments.close()


def test_reset_begins_anywhere(tmp_path: Path) -> None:
    segments = make_segments(tmp_path)
    segments.append(b"x" * 250)
    segments.reset(720)
    segments.append(b"y")
    assert (segments.starts, segments.first_position) == ((700,), 720)
    segments.close()


def create_next(segments: Segments) -> None:
    start = segments.next_start()
    assert start is not None
    do_now(segments.begin_create([start]))


def test_a_file_made_ahead_is_used_or_removed(tmp_path: Path) -> None:
    segments = make_segments(tmp_path)
    segments.append(b"x" * 80)
    create_next(segments)
    assert (tmp_path / "log" / segment_name(100)).exists()
    assert segments.starts == (0,)
    segments.append(b"x" * 30)
    assert segments.starts == (0, 100)
    create_next(segments)
    segments.close()
    assert not (tmp_path / "log" / segment_name(200)).exists()


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = new_disk()
    segments = make_segments(tmp_path, disk)
    segments.append(b"x" * 80)
    disk.free_bytes = 0
    with pytest.raises(DiskFullError) as caught:
        segments.append(b"y" * 30)
    assert caught.value.needed_bytes == 100
    assert (segments.end_position, segments.read(80, 20)) == (80, bytes(20))


def test_a_file_that_was_being_made_is_removed(tmp_path: Path) -> None:
    segments = make_segments(tmp_path)
    segments.append(b"x" * 100)
    segments.close()
    (tmp_path / "log" / segment_name(100)).write_bytes(bytes(40))
    again = make_segments(tmp_path)
    assert again.starts == (0,)
    again.close()
    (tmp_path / "log" / segment_name(100)).write_bytes(b"x")
    with pytest.raises(StoreFormatError):
        make_segments(tmp_path)


def test_a_full_real_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealFileSystem()
    path = str(tmp_path / "a" / "b" / segment_name(0))
    disk.make_directory(str(tmp_path / "a" / "b"))

    def refuse(number: int, offset: int, size_bytes: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(DiskFullError) as caught:
        disk.reserve(path, 100)
    assert caught.value.path == path
    assert list((tmp_path / "a").rglob("*")) == [tmp_path / "a" / "b"]


def test_a_replaced_file_is_whole(tmp_path: Path) -> None:
    disk = RealFileSystem()
    path = str(tmp_path / "file")
    assert disk.read(path) is None
    disk.replace(path, b"one")
    disk.replace(path, b"two")
    assert disk.read(path) == b"two"
    assert disk.names(str(tmp_path)) == ["file"]
    assert disk.names(str(tmp_path / "none")) == []
    assert disk.modified_ms(path) > 0


def test_what_no_sync_covers_is_told_in_bytes(tmp_path: Path) -> None:
    segments = make_segments(tmp_path)
    segments.append(bytes(150))
    assert segments.unsynced_bytes == 150
    job = segments.begin_sync()
    assert job is not None
    segments.append(bytes(7))
    job.run()
    job.end()
    # What came after the sync was begun is not covered by it.
    assert segments.unsynced_bytes == 7
    segments.sync()
    assert segments.unsynced_bytes == 0
    # Two files took the first bytes.
    assert segments.write_seconds.count == 3
    segments.close()
