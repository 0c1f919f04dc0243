"""Which of the small files beside a log are believed."""

from pathlib import Path

import pytest

from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.marks import Marks, Start


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


@pytest.mark.parametrize("first", ["checkpoint", "checkpoint.bak"])
@pytest.mark.parametrize("claims", [1, 2])
def test_a_damaged_file_is_mended_before_the_other_one_is_damaged(
    marks: Marks, tmp_path: Path, first: str, claims: int
) -> None:
    """With starts between two faults of the disk, both files were damaged at last, which looked as
    if Java had run here."""
    for _ in range(claims):
        marks.write_claim(0, 9, 8)
    for name in (first, "checkpoint", "checkpoint.bak", "checkpoint"):
        flip(tmp_path / name)
        assert marks.read_durable(None) == 9
        marks.mend_claim(None)
        assert marks.read_durable(None) == 9
        assert marks.read_trusted_committed(None) == 8


def test_what_cannot_be_read_is_damaged_and_not_of_another_program(
    marks: Marks, tmp_path: Path
) -> None:
    marks.write_claim(0, 9, 8)
    for name in ("checkpoint", "checkpoint.bak"):
        (tmp_path / name).write_bytes(b"\0" * 32)
    assert marks.read_durable(None) == 9


def test_only_the_claim_in_force_is_mended(marks: Marks, tmp_path: Path) -> None:
    marks.write_claim(0, 9, 8)
    marks.write_start(Start(first_index=0, first_position=0, generation=1, durable_index=4))
    flip(tmp_path / "checkpoint")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    marks.mend_claim(marks.read_start())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_same_claim_twice_still_tells_java_from_damage(marks: Marks, tmp_path: Path) -> None:
    """Java's copy of our checkpoint was taken for our own."""
    marks.write_claim(0, 7, 5)
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "checkpoint.bak"
    copy.write_bytes(checkpoint.read_bytes())
    checkpoint.write_text("committedIndex=4\nendIndex=6\n")
    assert marks.read_durable(None) is None
