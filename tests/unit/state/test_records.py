"""Tables cut into records: together they say what the table says, and each name once."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.state import records
from ledgermq.state.records import cut, encoded


def joined(texts: list[str]) -> dict[str, Any]:
    """What a reader makes of the entries of several records."""
    put: dict[str, Any] = {}
    for text in texts:
        pairs = json.loads(f"{{{text}}}", object_pairs_hook=list)
        names = [name for name, _ in pairs]
        assert len(set(names)) == len(names), "a record has a name twice"
        for name, value in json.loads(f"{{{text}}}").items():
            known = put.setdefault(name, {} if isinstance(value, dict) else [])
            put[name] = known | value if isinstance(value, dict) else known + value
    return put


def as_read(put: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(put)))


def test_pieces_of_one_entry_stand_in_records_of_their_own() -> None:
    # The first half has more bytes than a record takes, the second one fits beside a part of it.
    offsets = {queue_id: 2**62 if queue_id < 50 else 7 for queue_id in range(100)}
    size = len(json.dumps(dict(list(offsets.items())[:50]), separators=(",", ":")))
    put = {"Wide@g": offsets}
    assert joined(cut(put, size)) == as_read(put)


@given(
    st.dictionaries(
        st.text("ab", min_size=1, max_size=40),
        st.dictionaries(st.integers(0, 300), st.sampled_from([0, 10**6, 2**63 - 1]), max_size=90)
        | st.lists(st.sampled_from(["", "x" * 60]), max_size=60),
        max_size=8,
    ),
    st.integers(64, 2000),
)
def test_records_say_together_what_the_table_says(put: dict[str, Any], bytes_max: int) -> None:
    assert joined(cut(put, bytes_max)) == as_read(put)


def test_a_wide_entry_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    items = 0
    encode = records._encode

    def counted(value: Any) -> str:
        nonlocal items
        items += len(value) if isinstance(value, dict) else 0
        return encode(value)

    monkeypatch.setattr(records, "_encode", counted)
    offsets = dict.fromkeys(range(65_536), 2**62)
    pieces = list(encoded("Wide@g", offsets, 64 << 10, is_divisible=True))
    assert len(pieces) > 1 and items == len(offsets)
