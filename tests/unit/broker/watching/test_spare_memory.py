"""Memory is given back when there is a good deal more of it than after the last time."""

from ledgermq.broker.watching.spare_memory import GROWTH_BYTES, SpareMemory, find_spare_memory


class Process:
    def __init__(self) -> None:
        self.used_bytes, self.spare_bytes, self.trim_count = 40 << 20, 0, 0

    def resident_bytes(self) -> int:
        return self.used_bytes + self.spare_bytes

    def trim(self) -> None:
        self.trim_count += 1
        self.spare_bytes = 0


def test_what_a_flood_left_is_given_back_once() -> None:
    process = Process()
    memory = SpareMemory(process.resident_bytes, process.trim)
    memory.look()
    assert process.trim_count == 0
    process.spare_bytes = 60 << 20
    memory.look()
    assert (process.trim_count, process.spare_bytes) == (1, 0)
    memory.look()
    assert process.trim_count == 1


def test_little_more_and_what_is_used_are_left_alone() -> None:
    process = Process()
    memory = SpareMemory(process.resident_bytes, process.trim)
    process.spare_bytes = GROWTH_BYTES
    memory.look()
    assert process.trim_count == 0
    process.used_bytes += 100 << 20
    for _ in range(5):
        memory.look()
    assert process.trim_count == 1


def test_that_of_this_process_can_be_looked_at() -> None:
    memory = find_spare_memory()
    if memory is not None:
        memory.look()
