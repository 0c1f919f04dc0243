"""The mark of dispatch on disk."""

from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.commitlog.checkpoint import (
    Checkpoints,
    DispatchMark,
    StateMark,
    decode_mark,
    encode_mark,
)
from ledgermq.commitlog.index_file import IndexHeader
from ledgermq.commitlog.key_index import IndexMark
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.checksum import crc32c

MARK = DispatchMark(
    index=41,
    term=3,
    end_position=99_999,
    timestamp=1_700_000_000_000,
    is_clean=True,
    queues=[("A", 0, 0, 5), ("A", 1, 3, 3), ("B%|-_", 7, 1, 2)],
    key_index=IndexMark(["20231114221320000"], IndexHeader(1, 2, 3, 4, 5, 6)),
    index_timestamp=17,
    state_index=33,
)
EMPTY = DispatchMark(index=-1, term=-1, end_position=0, timestamp=0, is_clean=False)


SEALED = replace(
    EMPTY, state=StateMark(store_id="9f", files={"topics.json": 7}, logged_from=3, doubt="why")
)


@pytest.mark.parametrize("mark", [MARK, EMPTY, SEALED])
def test_mark_is_read_back(tmp_path, mark):
    assert decode_mark(encode_mark(mark)) == mark
    checkpoints = Checkpoints(RealFileSystem(), str(tmp_path))
    assert checkpoints.read() is None
    checkpoints.write(mark)
    assert checkpoints.read() == mark


def test_upstream_checkpoint_holds_the_times(tmp_path):
    Checkpoints(RealFileSystem(), str(tmp_path)).write(MARK)
    data = (tmp_path / "checkpoint").read_bytes()
    assert len(data) == 4096
    assert data.rstrip(b"\0").hex() == "0000018bcfe56800" * 2 + "0000000000000011"


class _FullFileSystem(RealFileSystem):
    """Finds room for so many files, and then for none."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def replace(self, path: str, data: bytes) -> None:
        if self._room == 0:
            raise DiskFullError(path, len(data))
        self._room -= 1
        super().replace(path, data)


@pytest.mark.parametrize("room", [0, 1])
def test_a_mark_that_finds_no_room_leaves_the_former_one(tmp_path, room):
    """Its flush is done once more, and makes files anew that the mark would name."""
    Checkpoints(RealFileSystem(), str(tmp_path)).write(EMPTY)
    checkpoints = Checkpoints(_FullFileSystem(room), str(tmp_path))
    with pytest.raises(DiskFullError):
        checkpoints.write(MARK)
    assert checkpoints.read() == EMPTY


def test_damaged_mark_is_not_trusted():
    data = encode_mark(MARK)
    for i in range(len(data)):
        flipped = data[:i] + bytes((data[i] ^ 1,)) + data[i + 1 :]
        assert decode_mark(flipped) is None
        assert decode_mark(data[:i]) is None


def test_mark_of_another_version_is_not_trusted():
    text = encode_mark(MARK).split(b"\n", 1)[1].replace(b'"version":2', b'"version":3')
    assert decode_mark(b"%08x\n%b" % (crc32c(text), text)) is None
    for text in (b"[]", b"{}", b"null", b"x"):
        assert decode_mark(b"%08x\n%b" % (crc32c(text), text)) is None


def test_checkpoint_that_java_wrote_is_known(tmp_path: Path) -> None:
    checkpoints = Checkpoints(RealFileSystem(), str(tmp_path))
    checkpoints.write(MARK)
    assert not checkpoints.was_used_by_java(MARK)
    path = tmp_path / "checkpoint"
    path.write_bytes((MARK.timestamp + 1).to_bytes(8, "big") + path.read_bytes()[8:])
    assert checkpoints.was_used_by_java(MARK)
