"""Which of the small files beside a log are believed."""

from pathlib import Path

import pytest

from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.marks import Marks


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    marks = Marks(RealFileSystem(), str(tmp_path))
    marks.write_claim(0, 7, 5)
    return marks


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"=") + 1] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("claims", [0, 1, 3])
def test_a_flipped_checkpoint_does_not_void_the_claim(
    marks: Marks, tmp_path: Path, claims: int
) -> None:
    """With the claim went the knowledge that the log's end was once on disk: a damaged end was cut
    as a torn one, and its member voted without it."""
    for i in range(claims):
        marks.write_claim(0, 8 + i, 6 + i)
    flip(tmp_path / "checkpoint")
    assert marks.read_durable(None) == 7 + claims


def test_a_flipped_copy_of_the_checkpoint_is_nothing(marks: Marks, tmp_path: Path) -> None:
    marks.write_claim(0, 9, 8)
    flip(tmp_path / "checkpoint.bak")
    assert marks.read_durable(None) == 9


@pytest.mark.parametrize("writes", [1, 2])
def test_a_checkpoint_that_java_wrote_voids_the_claim(
    marks: Marks, tmp_path: Path, writes: int
) -> None:
    """It may have cut the log, and knows no claims; it keeps the file before as a copy."""
    marks.write_claim(0, 9, 8)
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "checkpoint.bak"
    for i in range(writes):
        copy.write_bytes(checkpoint.read_bytes())
        checkpoint.write_text(f"committedIndex={4 + i}\nendIndex=6\n")
    assert marks.read_durable(None) is None
