"""The loop that enters keys makes what `hashes_of` and `IndexFile.add` make, whatever is there."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.index_file import IndexFile, IndexHeader, KeyRow
from ledgermq.commitlog.key_index import hashes_of, positive_hash
from ledgermq.commitlog.layout import INDEX_HEADER_BYTES, index_file_bytes
from ledgermq.dledger.store.filesystem import RealFileSystem
from tests.kernel_forms import forms_of

FORMS = forms_of("ledgermq.commitlog.index_loops")
SLOTS, ENTRIES = 5, 12

_keys = st.one_of(
    st.text("0123456789ABCDEF", min_size=32, max_size=32).map(str.encode),
    st.text(max_size=5).map(str.encode),
    st.binary(max_size=5),
)
_times = st.one_of(st.integers(0, 10_000), st.integers(-(2**63), 2**63 - 1))
_rows = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 2**32 - 1), st.just(2**31)),
        _keys,
        st.one_of(st.integers(0, 2**63 - 1), st.just(-(2**63))),
        _times,
    ),
    min_size=1,
    max_size=ENTRIES - 1,
)


def _id(form: ModuleType) -> str:
    return "C" if form.COMPILED else "source"


def _front(junk: bytes) -> bytearray:
    """Room for a header, and slots that may hold anything."""
    size = index_file_bytes(SLOTS, 0)
    return bytearray((bytes(INDEX_HEADER_BYTES) + junk * size)[:size].ljust(size, b"\0"))


def _file(header: IndexHeader, front: bytearray) -> IndexFile:
    files = DerivedFiles(RealFileSystem(), 1)
    file = IndexFile(files, "/nowhere", "n", SLOTS, ENTRIES, header)
    file._front = memoryview(front)
    return file


@pytest.mark.parametrize("loops", FORMS, ids=_id)
@given(_rows, st.integers(1, ENTRIES), _times, st.one_of(st.just(b""), st.binary(max_size=9)))
def test_same_bytes_and_header(
    loops: ModuleType, rows: list[KeyRow], number: int, begin: int, junk: bytes
) -> None:
    rows = rows[: ENTRIES - number]
    if not rows:
        return
    header = IndexHeader(begin, begin, 3, 3, 2, number)
    expected, found = _front(junk), _front(junk)
    plain, looped = _file(header, expected), _file(header, found)
    hashes = map(positive_hash, hashes_of(rows))
    entries = [(value, row[2], row[3]) for value, row in zip(hashes, rows, strict=True)]
    plain.add(entries)
    looped.add_keys(rows, loops.enter_keys)
    assert found == expected
    assert looped._tail == plain._tail
    assert looped.header == plain.header


@pytest.mark.parametrize("loops", FORMS, ids=_id)
@pytest.mark.parametrize(
    ("slots", "number", "missing", "room"), [(0, 1, 0, 20), (-1, 1, 0, 20), (SLOTS, 0, 0, 20),
    (SLOTS, -5, 0, 20), (SLOTS, 2**31, 0, 20), (SLOTS, 2**40, 0, 20), (2**40, 1, 0, 20),
    (SLOTS, 1, 1, 20), (SLOTS + 1, 1, 0, 20), (SLOTS, 1, 0, 19), (SLOTS, 1, 0, 21),
    (SLOTS, 1, 0, 0)],
)  # fmt: skip
def test_buffers_that_are_too_short_are_left_alone(
    loops: ModuleType, slots: int, number: int, missing: int, room: int
) -> None:
    data, entries = _front(b""), bytearray(room)
    del data[len(data) - missing :]
    before = bytes(data)
    keys = [(0, b"key", 1, 1)]
    with pytest.raises(ValueError, match="entry"):
        loops.enter_keys(memoryview(data), memoryview(entries), keys, slots, number, 0, 0)
    assert (data, entries) == (before, bytes(room))


@pytest.mark.parametrize("loops", FORMS, ids=_id)
def test_the_largest_number_fits(loops: ModuleType) -> None:
    data, entries = _front(b""), bytearray(20)
    keys = [(0, b"", 1, 1)]
    used = loops.enter_keys(memoryview(data), memoryview(entries), keys, SLOTS, 2**31 - 1, 0, 0)
    assert used == 1
    assert data[INDEX_HEADER_BYTES : INDEX_HEADER_BYTES + 4] == b"\x7f\xff\xff\xff"
