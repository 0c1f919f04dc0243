"""The loop that enters keys writes what `hashes_of` and `IndexFile.add` write, into any file."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.commitlog.index_file import IndexFile, IndexHeader, KeyRow
from ledgermq.commitlog.key_index import hashes_of, positive_hash
from ledgermq.commitlog.layout import INDEX_HEADER_BYTES, index_file_bytes
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


def _filled(junk: bytes) -> bytearray:
    """A file whose slots and entries may hold anything."""
    size = index_file_bytes(SLOTS, ENTRIES)
    return bytearray((bytes(INDEX_HEADER_BYTES) + junk * size)[:size].ljust(size, b"\0"))


@pytest.mark.parametrize("loops", FORMS, ids=_id)
@given(_rows, st.integers(1, ENTRIES), _times, st.one_of(st.just(b""), st.binary(max_size=9)))
def test_same_bytes_and_header(
    loops: ModuleType, rows: list[KeyRow], number: int, begin: int, junk: bytes
) -> None:
    rows = rows[: ENTRIES - number]
    if not rows:
        return
    header = IndexHeader(begin, begin, 3, 3, 2, number)
    plain, looped = (IndexFile("n", header, SLOTS, ENTRIES) for _ in range(2))
    expected, found = _filled(junk), _filled(junk)
    hashes = map(positive_hash, hashes_of(rows))
    entries = [(value, row[2], row[3]) for value, row in zip(hashes, rows, strict=True)]
    plain.add(memoryview(expected), entries)
    looped.add_keys(memoryview(found), rows, loops.enter_keys)
    assert found == expected
    assert looped.header == plain.header


@pytest.mark.parametrize("loops", FORMS, ids=_id)
@pytest.mark.parametrize(
    ("slots", "number", "missing"), [(0, 1, 0), (-1, 1, 0), (SLOTS, 0, 0), (SLOTS, -5, 0),
    (SLOTS, ENTRIES, 0), (SLOTS, ENTRIES - 1, 1), (SLOTS, 2**40, 0), (2**40, 1, 0)],
)  # fmt: skip
def test_a_file_that_is_too_short_is_left_alone(
    loops: ModuleType, slots: int, number: int, missing: int
) -> None:
    data = _filled(b"")
    del data[len(data) - missing :]
    before = bytes(data)
    with pytest.raises(ValueError, match="entry"):
        loops.enter_keys(memoryview(data), [(0, b"key", 1, 1)], slots, number, 0, 0)
    assert data == before
