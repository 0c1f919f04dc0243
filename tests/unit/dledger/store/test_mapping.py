"""What is mapped is mapped to be read: no page without room can end the process."""

import os
from pathlib import Path

import pytest

from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.segment import Segment

SIZE = 1 << 16


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment(RealFileSystem(), str(tmp_path / f"{0:020d}"), SIZE)


def test_nobody_can_store_into_a_mapping(segment: Segment) -> None:
    segment.write(100, b"abc")
    assert segment.read(99, 5) == b"\0abc\0"
    with pytest.raises(TypeError, match="read-only"):
        segment.buffer[100] = 0
    segment.close()


def test_no_file_of_a_store_is_mapped_for_writing(tmp_path: Path) -> None:
    path = str(tmp_path / "made")
    made = RealFileSystem().create(path, SIZE)
    found = RealFileSystem().map(path)
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    assert [line[1] for line in lines if line[-1] == path] == ["r--s", "r--s"]
    made.close()
    found.close()


def test_bytes_are_written_anew_where_a_store_would_end_the_process(segment: Segment) -> None:
    """The file was cut off under the mapping: a page of it is as good as one without room."""
    segment.write(0, b"a" * SIZE)
    found = os.path.getsize(segment.path)
    segment.rewrite(5000, 9000)
    segment.zero(SIZE - 100, SIZE)
    assert segment.read(0, SIZE) == b"a" * (SIZE - 100) + bytes(100)
    assert os.path.getsize(segment.path) == found
    os.truncate(segment.path, 4096)
    segment.write(8192, b"b")
    segment.zero(12_288, 16_384)
    assert segment.read(8192, 1) == b"b"
    segment.close()
