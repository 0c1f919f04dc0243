"""The loops over entries write and accept what `EntryCodec` does without them, byte by byte."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.dledger import entry
from ledgermq.dledger.entry import HEAD, EntryCodec, EntryId, EntrySlice
from ledgermq.dledger.errors import CorruptEntryError
from ledgermq.protocol.checksum import crc32c
from tests.kernel_forms import forms_of

FORMS = forms_of("ledgermq.dledger.entry_loops")

_bodies = st.lists(st.binary(max_size=50), min_size=1, max_size=5)
_numbers = st.one_of(st.integers(0, 9), st.sampled_from([2**40, 2**62, 2**63 - 6]))
_flips = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=2)


def _id(form: ModuleType) -> str:
    return "C" if form.COMPILED else "source"


def _both(loops: ModuleType, call: Callable[[], Any]) -> tuple[Any, Any]:
    """What a call gives without the loops, and with them."""
    outcomes = []
    for is_looped in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(entry.entry_loops, "COMPILED", is_looped)
            patch.setattr(entry.entry_loops, "fill_heads", loops.fill_heads)
            patch.setattr(entry.entry_loops, "walk_entries", loops.walk_entries)
            try:
                outcomes.append(call())
            except CorruptEntryError as error:
                outcomes.append(str(error))
    return outcomes[0], outcomes[1]


def _values(entries: EntrySlice) -> list[Any]:
    return [
        type(entries.data), bytes(entries.data), entries.starts, entries.first_index,
        entries.last_index, entries.first_term, entries.last_term, entries.position,
        entries.last_chain_crc,
    ]  # fmt: skip


def _encode(bodies: list[bytes], index: int, position: int, stamp: int | None) -> EntrySlice:
    return EntryCodec(crc32c, stamp).encode(
        bodies, first_index=index, term=3, position=position, previous_chain_crc=77
    )


@pytest.mark.parametrize("loops", FORMS, ids=_id)
@given(_bodies, st.integers(0, 2**40), st.integers(0, 2**40), st.sampled_from([None, 0, 28]))
def test_same_entries_are_made(
    loops: ModuleType, bodies: list[bytes], index: int, position: int, stamp: int | None
) -> None:
    plain, looped = _both(loops, lambda: _values(_encode(bodies, index, position, stamp)))
    assert looped == plain


@pytest.mark.parametrize("loops", FORMS, ids=_id)
@settings(max_examples=300)
@given(
    _bodies,
    _numbers,
    _numbers,
    st.one_of(st.none(), st.integers(-1, 1)),
    st.lists(st.sampled_from(["unfilled", "term"]), max_size=1),
    _flips,
    st.integers(0, 60),
    st.booleans(),
)
def test_same_bytes_are_accepted(
    loops: ModuleType,
    bodies: list[bytes],
    index: int,
    position: int,
    gap: int | None,
    changes: list[str],
    flips: list[tuple[int, int]],
    cut: int,
    verify: bool,
) -> None:
    # Heads are written here, as those of a peer may have any numbers.
    data, at, chain = bytearray(), position, 77
    for i, body in enumerate(bodies):
        term = 3 + i if "term" in changes else 3
        fields = (1, 48 + len(body), min(index + i, 2**63 - 1), term, min(at, 2**63 - 1), 0)
        body_crc = crc32c(body)
        head = HEAD.pack(*fields, 0, body_crc, len(body))
        chain = crc32c(chain.to_bytes(4, "big") + head[:36] + body_crc.to_bytes(4, "big"))
        if "unfilled" in changes:
            chain = body_crc = 0
        data += HEAD.pack(*fields, chain, body_crc, len(body)) + body
        at += 48 + len(body)
    for place, value in flips:
        data[place % len(data)] = value
    kept = len(data) - cut if cut <= 50 else len(data)
    view = memoryview(b"frame" + bytes(data[: max(0, kept)]))[5:]
    previous = None if gap is None else EntryId(3, index - 1 + gap)

    def parse() -> Any:
        codec = EntryCodec(crc32c)
        entries = codec.parse(
            view, position=position, previous=previous, previous_chain_crc=77, verify=verify
        )
        return _values(entries), codec.unfilled_count

    plain, looped = _both(loops, parse)
    assert looped == plain


@pytest.mark.parametrize("loops", FORMS, ids=_id)
def test_bodies_that_do_not_fit_are_refused(loops: ModuleType) -> None:
    with pytest.raises(ValueError, match="ends at 60 of 59"):
        loops.fill_heads(bytearray(59), [b"twelve bytes"], 0, 0, 0, 0, -1, crc32c)
