"""Memory is given back when a good deal more of it is free than after the last time."""

import ctypes
import os

import pytest

from ledgermq.broker.watching import spare_memory
from ledgermq.broker.watching.spare_memory import SPARE_BYTES, SpareMemory, find_spare_memory

BASE, FLOOD = 40 << 20, 60 << 20


class Process:
    """What was freed and given back is free as before: only its pages are gone."""

    def __init__(self) -> None:
        self.used = self.free = self.given_back = 0
        self.trim_count = self.count_count = 0
        self.memory = SpareMemory(lambda: self.resident, self.count_free, self.trim)

    @property
    def resident(self) -> int:
        return BASE + self.used + self.free - self.given_back

    def count_free(self) -> int:
        self.count_count += 1
        return self.free

    def use(self, count: int) -> None:
        self.used += count
        self.free -= min(count, self.free)
        self.given_back = min(self.given_back, self.free)

    def drop(self, count: int) -> None:
        self.used -= count
        self.free += count

    def trim(self) -> None:
        self.trim_count += 1
        self.given_back = self.free


@pytest.fixture
def process() -> Process:
    return Process()


def test_what_a_flood_left_is_given_back_once(process: Process) -> None:
    process.memory.look()
    assert process.trim_count == 0
    for number in (1, 2):
        process.use(FLOOD)
        process.drop(FLOOD)
        process.memory.look()
        assert (process.trim_count, process.resident) == (number, BASE)
    # To count takes time, and a process that is as small as ever need not.
    count = process.count_count
    process.memory.look()
    assert (process.trim_count, process.count_count) == (2, count)


def test_what_is_freed_after_a_look_is_given_back_too(process: Process) -> None:
    for _ in range(2):
        process.use(FLOOD)
        process.memory.look()
        process.memory.look()
        process.drop(FLOOD)
        process.memory.look()
        assert process.resident == BASE


def test_little_is_left_alone_and_what_is_used_is_looked_at_once(process: Process) -> None:
    process.use(SPARE_BYTES)
    process.drop(SPARE_BYTES)
    process.memory.look()
    assert process.trim_count == 0
    process.use(100 << 20)
    for _ in range(5):
        process.memory.look()
    assert process.trim_count == 1


@pytest.mark.parametrize(
    ("name", "number"), [("mallinfo2", ctypes.c_size_t), ("mallinfo", ctypes.c_int)]
)
def test_the_c_library_tells_what_it_keeps(name: str, number: object) -> None:
    if os.name != "posix":
        pytest.skip("another system")
    free_bytes = spare_memory._free_bytes(ctypes.CDLL(None), name, number)
    if free_bytes is None:
        pytest.skip(f"the C library has no {name}")
    blocks = [ctypes.create_string_buffer(20_000) for _ in range(1_000)]
    before = free_bytes()
    # Every second one: what is beside a block that is used cannot go back to the system.
    del blocks[::2]
    assert 5_000_000 < free_bytes() - before < 50_000_000


def test_that_of_this_process_can_be_looked_at() -> None:
    memory = find_spare_memory()
    if memory is not None:
        memory.look()
