"""Recollection: what is noted when a store gave bad bytes."""

import errno
from pathlib import Path

import pytest

from ledgermq.dledger.replica.recollection import Recollection
from ledgermq.dledger.storage import HardState
from ledgermq.dledger.store import RealFileSystem, VoteFile
from ledgermq.dledger.store.errors import CorruptStoreError, DiskFullError, VoteStateLostError
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore
from ledgermq.dledger.store.repair_mark import Repair, RepairMark

DAMAGE = CorruptStoreError("data", 0, "head", 1, 2, 5)


def test_bad_bytes_are_noted(tmp_path: Path) -> None:
    files = RealFileSystem()
    mark = RepairMark(files, str(tmp_path))
    Recollection("n0", VoteFile(files, str(tmp_path), "n0"), mark, ["n1"]).note_failure(DAMAGE)
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
    Recollection("n0", VoteFile(files, str(tmp_path), "n0"), mark, ["n1"]).note_failure(DAMAGE)
    assert mark.read() is None


def votes_in(folder: Path, *members: str) -> VoteFile:
    return VoteFile(RealFileSystem(), str(folder), "n0", members=members)


@pytest.mark.parametrize("damage", [b"", b"noise", b"currTerm=9\nvoteLeader=n0\n"])
def test_vote_of_a_group_of_one_is_known_from_one_file(tmp_path: Path, damage: bytes) -> None:
    """It served no more: nobody was there from whom it could have learned its votes."""
    votes_in(tmp_path, "n0").save(HardState(7, "n0"))
    (tmp_path / "currterm").write_bytes(damage)
    if b"currTerm" not in damage:
        with pytest.raises(VoteStateLostError, match="currterm"):
            votes_in(tmp_path, "n0", "n1", "n2").load()
    state = votes_in(tmp_path, "n0").load()
    assert state is not None and state.term >= 7


def test_group_of_one_without_identity_does_not_start(tmp_path: Path) -> None:
    """It cannot know that its group never had others."""
    votes_in(tmp_path, "n0").save(HardState(7, "n0"))
    (tmp_path / "identity").write_bytes(b"noise")
    mark = RepairMark(RealFileSystem(), str(tmp_path))
    store = DLedgerMemoryStore(1 << 20)
    alone = Recollection("n0", votes_in(tmp_path, "n0"), mark, [])
    with pytest.raises(VoteStateLostError, match="identity: .*no peers to recover from"):
        alone.load(store, is_recovering=False)
    # It is not noted as one that recovers, or the cure would be none.
    assert mark.read() is None
    member = Recollection("n0", votes_in(tmp_path, "n0", "n1", "n2"), mark, ["n1", "n2"])
    assert member.load(store, is_recovering=False).is_recovering
