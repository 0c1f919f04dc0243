"""How much is read at a time: little at first and in a crowd, much of who sends much."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ledgermq.protocol.transport.read_size import BYTES_MAX, CROWD, FIRST_BYTES, ReadSize


class Reads:
    """A connection that is read; the line has as many places taken as the test says."""

    def __init__(self) -> None:
        self.line: list[None] = []
        self.transport = SimpleNamespace(bufferSize=65_536)
        self.size = ReadSize(self.line)
        self.size.apply(self.transport)

    def read(self, share: float = 1.0) -> int:
        """Brings such a part of what may come; returns what may come next."""
        self.size.count(int(self.transport.bufferSize * share), self.transport)
        return int(self.transport.bufferSize)


def test_who_fills_its_reads_has_larger_ones() -> None:
    reads = Reads()
    assert reads.transport.bufferSize == FIRST_BYTES
    sizes = [reads.read() for _ in range(5)]
    assert sizes == sorted(sizes) and sizes[0] > FIRST_BYTES and sizes[-1] == BYTES_MAX


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_who_sends_little_keeps_small_ones(share: float) -> None:
    reads = Reads()
    assert {reads.read(share) for _ in range(50)} == {FIRST_BYTES}
    reads.read()
    assert reads.read(share) > FIRST_BYTES


def test_in_a_crowd_all_are_small_again_until_it_has_gone() -> None:
    reads = Reads()
    for _ in range(5):
        reads.read()
    reads.line += [None] * (CROWD - 1)
    assert reads.read() == BYTES_MAX
    reads.line.append(None)
    assert reads.read() == reads.read() == FIRST_BYTES
    reads.line.clear()
    assert reads.read() > FIRST_BYTES


def test_without_a_line_all_are_large() -> None:
    transport = SimpleNamespace(bufferSize=65_536)
    size = ReadSize(None)
    size.apply(transport)
    size.count(0, transport)
    assert transport.bufferSize == BYTES_MAX
