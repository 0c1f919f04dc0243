"""Recollection: what is noted when a store gave bad bytes."""

import errno
from pathlib import Path

import pytest

from ledgermq.dledger.replica.recollection import Recollection
from ledgermq.dledger.store import RealFileSystem, VoteFile
from ledgermq.dledger.store.errors import CorruptStoreError, DiskFullError
from ledgermq.dledger.store.repair_mark import Repair, RepairMark

DAMAGE = CorruptStoreError("data", 0, "head", 1, 2, 5)


def test_bad_bytes_are_noted(tmp_path: Path) -> None:
    files = RealFileSystem()
    mark = RepairMark(files, str(tmp_path))
    Recollection("n0", VoteFile(files, str(tmp_path), "n0"), mark).note_failure(DAMAGE)
    assert mark.read() == Repair(str(DAMAGE), is_recovering=False)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_takes_no_mark_keeps_no_member_from_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    files = RealFileSystem()
    mark = RepairMark(files, str(tmp_path))

    def replace(self: RealFileSystem, path: str, data: bytes) -> None:
        if number == errno.ENOSPC:
            raise DiskFullError(path, len(data))
        raise OSError(number, "refused", path)

    monkeypatch.setattr(RealFileSystem, "replace", replace)
    Recollection("n0", VoteFile(files, str(tmp_path), "n0"), mark).note_failure(DAMAGE)
    assert mark.read() is None
