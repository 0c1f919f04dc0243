"""Defects that tests plant in stores, and what an audit says of each."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ledgermq.dledger.entry import EntryCodec, read_head
from ledgermq.protocol.checksum import crc32c
from tests.spark.log_files import flip, make_record, write_ledger

COUNT = 100
RECORDS = [make_record("Orders", n) for n in range(COUNT)]


class InThisProcess:
    """What the job needs of a session, without one: its tasks run here, one after the other."""

    master = "local"

    def __init__(self, items: Sequence[Any] = ()) -> None:
        self._items = items

    @property
    def sparkContext(self) -> "InThisProcess":
        return self

    def parallelize(self, items: Sequence[Any], _slices: int) -> "InThisProcess":
        return type(self)(items)

    def map(self, function: Callable[[Any], Any]) -> "InThisProcess":
        return type(self)([function(item) for item in self._items])

    def collect(self) -> list[Any]:
        return list(self._items)


def wipe(path: Path, start: int, end: int) -> None:
    data = bytearray(path.read_bytes())
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def break_chain(files: list[Path]) -> None:
    """Another body with checksums of its own, which the entry after it does not follow."""
    data = bytearray(files[1].read_bytes())
    head = read_head(bytes(data))
    body = bytearray(data[48 : head.size])
    body[90] ^= 1
    run = EntryCodec(crc32c).encode(
        [bytes(body)],
        first_index=head.index,
        term=head.term,
        position=head.position,
        previous_chain_crc=0,
    )
    data[: head.size] = run.data
    files[1].write_bytes(data)


def diverge(files: list[Path], make: Callable[[int], bytes] | None = None) -> None:
    """The whole log is good in itself, but it is another one."""
    directory = files[0].parent.parent
    other = [
        make_record("Orders", n, body_bytes=51) if n == 40 else (make or RECORDS.__getitem__)(n)
        for n in range(COUNT)
    ]
    shutil.rmtree(directory)
    write_ledger(directory, other, committed_index=COUNT - 1)


def queue_file(files: list[Path], number: int) -> Path:
    queue = files[0].parent.parent.parent / "consumequeue" / "Orders" / "1"
    return sorted(queue.iterdir())[number]


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


DEFECTS: dict[str, tuple[Callable[[list[Path]], object], str]] = {
    "flipped bit in a body": (lambda files: flip(files[2], 300), "crc"),
    "flipped bit in a head": (lambda files: flip(files[2], 17), "entry"),
    "flipped bit in a term": (lambda files: flip(files[1], 23), "chain_crc|term"),
    "missing segment": (lambda files: files[2].unlink(), "must follow"),
    "missing last segment": (lambda files: files[-1].unlink(), "next file is missing"),
    "short segment": (lambda files: files[1].write_bytes(b"x" * 100), "must follow"),
    "zeroed part": (lambda files: wipe(files[1], 512, 1024), "entry"),
    "segments swapped": (lambda files: swap(files[1], files[2]), "entry"),
    "broken chain": (break_chain, "chain_crc"),
    "diverged replica": (diverge, "differs from"),
    "hole in a queue": (lambda files: wipe(queue_file(files, 0), 40, 60), "hole at offset 2"),
    "wrong unit": (lambda files: flip(queue_file(files, 0), 47), "offset 2 says .* the log says"),
    "queue file missing": (lambda files: queue_file(files, 0).unlink(), "hole at offset 0"),
}
