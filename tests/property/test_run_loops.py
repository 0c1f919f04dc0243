"""The loops over the records of one answer: both forms give the same for any bytes, and what they
give is proven.
"""

from struct import Struct

from hypothesis import given
from hypothesis import strategies as st

from ledgermq.protocol.checksum import crc32c
from tests.kernel_forms import forms_of

FORMS = forms_of("ledgermq.commitlog.run_loops")
UNIT = Struct(">qiq")
BEGIN = 1 << 40
QUEUE_ID, QUEUE_OFFSET = 3, 1 << 33
HEAD = b"head"

_sizes = st.lists(st.integers(36, 80), min_size=1, max_size=6)


def log_of(sizes: list[int], *, is_filled: bool = True) -> tuple[bytearray, list[bytes]]:
    """A segment with records of these sizes, each in an entry, and their units."""
    log, units = bytearray(), []
    for n, size in enumerate(sizes):
        head, record = bytearray(48), bytearray(n + at & 255 for at in range(size))
        place = BEGIN + len(log) + 48
        record[12:16] = QUEUE_ID.to_bytes(4, "big")
        record[20:28] = (QUEUE_OFFSET + n).to_bytes(8, "big")
        record[28:36] = place.to_bytes(8, "big")
        if is_filled:
            head[36:40] = b"\x01\x02\x03\x04"
            head[40:44] = crc32c(record).to_bytes(4, "big")
        log += head + record
        units.append(UNIT.pack(place, size, 0))
    return log, units


def measured(*arguments: object) -> tuple[int, int, int]:
    results = [form.measure_run(*arguments) for form in FORMS]
    assert all(result == results[0] for result in results)
    return results[0]


def read(units: bytes, count: int, log: bytearray) -> bytes | None:
    run = (count, 0, 0, units, QUEUE_ID, QUEUE_OFFSET, memoryview(log), BEGIN)
    results = [form.read_run(HEAD, run) for form in FORMS]
    assert all(result == results[0] for result in results)
    assert results[0] is None or type(results[0]) is bytes
    return results[0]


@given(_sizes, st.integers(1, 8), st.integers(30, 500))
def test_answer_holds_as_many_records_as_it_may(
    sizes: list[int], count_max: int, bytes_max: int
) -> None:
    log, units = log_of(sizes)
    wanted, total = 0, 0
    while wanted < min(count_max, len(sizes)) and (
        not wanted or total + sizes[wanted] <= bytes_max
    ):
        total += sizes[wanted]
        wanted += 1
    looked_at = UNIT.unpack(units[min(wanted, len(units) - 1)])[0]
    end = BEGIN + len(log)
    found = measured(b"".join(units), BEGIN, end, 0, bytes_max, count_max)
    assert found == (wanted, total, looked_at)
    answer = read(b"".join(units), wanted, log)
    records = b"".join(
        log[place - BEGIN : place - BEGIN + size]
        for place, size, _ in map(UNIT.unpack, units[:wanted])
    )
    assert answer == HEAD + records


@given(_sizes, st.integers(0, 1000), st.integers(0, 7))
def test_flipped_bit_is_seen(sizes: list[int], at: int, bit: int) -> None:
    log, units = log_of(sizes)
    at %= len(log)
    log[at] ^= 1 << bit
    start = 0
    for size in sizes:
        if at < start + 48 + size:
            break
        start += 48 + size
    # Of an entry's head this is for the checksum of its record alone.
    is_covered = at - start >= 40 and not 44 <= at - start < 48
    assert (read(b"".join(units), len(sizes), log) is None) == is_covered


@given(_sizes)
def test_entry_without_checksums_has_nothing_to_compare(sizes: list[int]) -> None:
    log, units = log_of(sizes, is_filled=False)
    log[-1] ^= 1
    if sizes[-1] > 36:
        assert read(b"".join(units), len(sizes), log) is not None
    log[36] = 1
    assert read(b"".join(units), len(sizes), log) is None


_numbers = st.one_of(st.integers(BEGIN - 60, BEGIN + 500), st.integers(-(2**63), 2**63 - 1))
_any_units = st.lists(
    st.builds(
        UNIT.pack, _numbers, st.one_of(st.integers(-3, 200), st.integers(-(2**31), 2**31 - 1)),
        st.just(0),
    ),
    max_size=5,
)  # fmt: skip


@given(_any_units, st.integers(0, 19), _numbers, st.integers(-9, 600), st.integers(1, 6))
def test_any_units_are_looked_at_alike(
    units: list[bytes], cut: int, lowest: int, bytes_max: int, count_max: int
) -> None:
    log = bytearray(range(200))
    data = b"".join(units)
    data = data[: len(data) - cut]
    count, _, _ = measured(data, BEGIN, BEGIN + len(log), lowest, bytes_max, count_max)
    assert 0 <= count <= max(1, count_max)
    for wanted in (-1, 0, count, len(units), 1 << 40):
        read(data, wanted, log)
