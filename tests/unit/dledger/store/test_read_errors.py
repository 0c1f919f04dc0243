"""Bytes that the disk does not give are damage; no read ends the process by a signal."""

import errno
import os
from pathlib import Path

import pytest

from ledgermq.dledger.errors import ColdDataError
from ledgermq.dledger.store.errors import UnreadableError
from ledgermq.dledger.store.filesystem import UNREADABLE, RealFileSystem
from ledgermq.dledger.store.segment import ReadMode, Segment
from ledgermq.dledger.store.segments import Segments

SIZE = 1 << 16
PAGE = 4096


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment(RealFileSystem(), str(tmp_path / f"{0:020d}"), SIZE)


def fail_page(monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """Has reads end before a page, as the kernel does, and fail at it."""
    bad, pread = page * PAGE, os.pread

    def read(number: int, size_bytes: int, offset: int) -> bytes:
        if bad <= offset < bad + PAGE:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        limit = bad - offset if offset < bad else size_bytes
        return pread(number, min(size_bytes, limit), offset)

    monkeypatch.setattr(os, "pread", read)


def test_only_what_was_written_lately_is_read_in_place(segment: Segment) -> None:
    """A page that comes from the disk, and cannot be read, would end the process."""
    segment.write(PAGE, b"abc")
    assert segment.view(0, 3) is None
    view = segment.view(PAGE, 3)
    assert view == b"abc" and view.readonly
    segment.close()
    again = Segment(RealFileSystem(), segment.path, SIZE)
    assert again.read(PAGE, 3) == b"abc"
    assert again.view(PAGE, 3) is None


def test_a_full_segment_is_mapped_no_more(tmp_path: Path) -> None:
    segments = Segments(RealFileSystem(), str(tmp_path), SIZE)
    segments.append(b"x" * 100)
    first = segments.segment_at(0)
    assert first.view(0, 10) == b"x" * 10
    segments.append(b"x" * SIZE)
    assert first.view(0, 10) is None and segments.read(0, 10) == b"x" * 10
    assert first.path not in Path("/proc/self/maps").read_text()
    segments.close()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_a_read_over_an_unreadable_page_is_damage(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_page(monkeypatch, 2)
    assert segment.read(0, 2 * PAGE) == bytes(2 * PAGE)
    with pytest.raises(UnreadableError) as caught:
        segment.read(PAGE, 2 * PAGE)
    assert (caught.value.path, caught.value.offset) == (segment.path, PAGE)
    assert "Input/output error (8192 bytes at offset 4096)" in str(caught.value)


def test_a_file_that_ends_early_is_damage(segment: Segment) -> None:
    os.truncate(segment.path, PAGE)
    assert segment.read(0, PAGE) == bytes(PAGE)
    with pytest.raises(UnreadableError, match="the file ends after 96 of them"):
        segment.read(4000, 200)


def test_damage_is_reported_before_the_read_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode, found = ReadMode(), list[UnreadableError]()
    mode.on_unreadable = found.append
    segment = Segment(RealFileSystem(), str(tmp_path / f"{0:020d}"), SIZE, mode=mode)
    fail_page(monkeypatch, 0)
    with pytest.raises(UnreadableError):
        segment.read(10, 10)
    assert [error.offset for error in found] == [10]


def test_unreadable_pages_are_written_over(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment.write(0, b"a" * SIZE)
    fail_page(monkeypatch, 1)
    assert list(segment.written_ranges(PAGE)) == [(PAGE, SIZE)]
    segment.zero(PAGE, SIZE)
    monkeypatch.undo()
    assert segment.read(0, SIZE) == b"a" * PAGE + bytes(SIZE - PAGE)


def test_readable_pages_are_saved_from_damage(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment.write(0, b"a" * SIZE)
    fail_page(monkeypatch, 1)
    found = segment.read_readable(100, 3 * PAGE)
    assert found == b"a" * (PAGE - 100) + bytes(PAGE) + b"a" * (PAGE + 100)


def test_bytes_are_written_again_as_they_are(segment: Segment) -> None:
    segment.write(0, b"a" * SIZE)
    found = os.path.getsize(segment.path)
    segment.rewrite(5000, 9000)
    segment.zero(SIZE - 100, SIZE)
    assert segment.read(0, SIZE) == b"a" * (SIZE - 100) + bytes(100)
    assert os.path.getsize(segment.path) == found
    segment.close()


def test_a_small_file_that_cannot_be_read_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "durable"
    path.write_bytes(b"content")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("builtins.open", refuse)
    assert RealFileSystem().read(str(path)) == UNREADABLE


def test_a_read_that_must_not_wait_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = ReadMode()
    segment = Segment(RealFileSystem(), str(tmp_path / f"{0:020d}"), SIZE, mode=mode)

    def refuse(*_: object) -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "preadv", refuse)
    assert segment.read(0, 3) == bytes(3)
    mode.may_wait = False
    with pytest.raises(ColdDataError) as caught:
        segment.read(0, 3)
    assert caught.value.parts == [(segment, 0, 3)]


def test_recent_bytes_count_as_cached_if_nothing_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system without cached reads (tmpfs, some network file systems)."""
    mode = ReadMode()
    segment = Segment(RealFileSystem(), str(tmp_path / f"{0:020d}"), SIZE, mode=mode)
    segment.write(PAGE, b"abc")

    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "preadv", refuse)
    mode.may_wait = False
    assert segment.read(PAGE, 5) == b"abc\0\0"
    with pytest.raises(ColdDataError):
        segment.read(0, 3)


def test_what_was_just_written_is_read_from_memory(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise AssertionError("the file was read")

    for at in range(0, 2000, 100):
        segment.write(at, bytes([at // 100]) * 100)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", refuse)
        assert segment.read(1950, 50) == bytes([19]) * 50
        assert segment.read(1210, 20) == bytes([12]) * 20
        with pytest.raises(AssertionError):
            segment.read(0, 10)
        with pytest.raises(AssertionError):
            segment.read(1890, 20)
    # What is cut and written again is not what it was.
    segment.zero(1800, 2000)
    assert segment.read(1850, 150) == bytes(150)
    segment.write(1800, b"new")
    segment.write(1800, b"NEW")
    assert segment.read(1800, 3) == b"NEW"
