"""Stores made with the library, and small damage to their files: for tests of the commands."""

from __future__ import annotations

from pathlib import Path

from ledgermq.dledger.entry import read_head
from tests.unit.commitlog.single_member import Broker, message

SEGMENT_BYTES = 1 << 16
QUEUE_SEGMENT_BYTES = 2000


def make_store(root: Path, count: int = 60, *, body_bytes: int = 300) -> Path:
    """A store of one member: `count` messages on two queues of one topic, all committed."""
    broker = Broker(root, segment_bytes=SEGMENT_BYTES, queue_segment_bytes=QUEUE_SEGMENT_BYTES)
    broker.lead()
    for number in range(count):
        body = b"%d:" % number + b"b" * body_bytes
        broker.send(message(body, "Orders", number % 2, b"TAGS\x01red\x02KEYS\x01k%d" % number))
    broker.close()
    return root


def ledger(root: Path) -> Path:
    return root / "dledger-n0"


def data_files(root: Path) -> list[Path]:
    return sorted((ledger(root) / "data").iterdir())


def position_of(root: Path, index: int) -> tuple[Path, int]:
    """File and offset of an entry's head, found by walking over the heads."""
    for path in data_files(root):
        data, offset = path.read_bytes(), 0
        while offset + 48 <= len(data):
            head = read_head(data, offset)
            if head.magic != 1:
                break
            if head.index == index:
                return path, offset
            offset += head.size
    raise AssertionError(f"entry {index} is not in {root}")


def flip(path: Path, offset: int, bits: int = 1) -> None:
    """Changes one byte of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= bits
    path.write_bytes(data)


def overwrite(path: Path, offset: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[offset : offset + len(new)] = new
    path.write_bytes(data)


def without_checksums(root: Path) -> None:
    """Clears chainCrc and bodyCrc of every entry, as a Java leader leaves them."""
    for path in data_files(root):
        data, offset = bytearray(path.read_bytes()), 0
        while offset + 48 <= len(data):
            head = read_head(bytes(data[offset : offset + 48]))
            if head.magic != 1:
                break
            data[offset + 36 : offset + 44] = bytes(8)
            offset += head.size
        path.write_bytes(data)
