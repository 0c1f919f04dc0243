"""The loops that make columns of records: both forms give the same for any bytes, what they find
is what the decoder of single records finds, and they refuse all else.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.protocol import sysflag
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.properties import parse_properties
from ledgermq.protocol.record import RECORD_MAGIC_V2, decode_record, encode_record
from tests.kernel_forms import forms_of

FORMS = forms_of("ledgermq.protocol.column_loops")
NAMED = FORMS[0].NAMED
PAIRS_MAX = 32

_blocks = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"T", b"a", b"\x01", b"\x02", b"v"]))
    .map(b"".join),
    st.lists(
        st.tuples(
            st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "KEYSX", "ab", "ac"]),
            st.text("vwé", max_size=3),
        )
    ).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()),
)  # fmt: skip
_flags = st.sampled_from([0, 0, sysflag.BORN_HOST_V6, sysflag.STORE_HOST_V6, sysflag.HOST_V6_MASK])


def longs(numbers: list[int]) -> array[int]:
    return array("q", numbers)


def asked(ask: Callable[[Any], Any]) -> Any:
    """What each form answers, which is the same."""
    results = [ask(form) for form in FORMS]
    assert all(result == results[0] for result in results)
    return results[0]


def fields_of(data: bytes | memoryview, starts: list[int]) -> list[list[int]] | None:
    """The columns, or None."""
    count = len(starts)

    def ask(form: Any) -> Any:
        wide = longs([0] * (form.WIDE_COUNT * count))
        narrow = array("i", [0] * (form.NARROW_COUNT * count))
        is_good = bool(form.read_fields(data, longs(starts), wide, narrow))
        if not is_good:
            return None
        rows = [narrow[k * count : (k + 1) * count] for k in range(form.NARROW_COUNT)]
        rows += [wide[k * count : (k + 1) * count] for k in range(form.WIDE_COUNT)]
        return [list(row) for row in rows]

    return asked(ask)  # type: ignore[no-any-return]


def starts_of(data: bytes, room: int) -> tuple[list[int], int]:
    def ask(form: Any) -> Any:
        places = longs([-7] * room)
        count, end = form.find_records(data, places)
        assert list(places[count:]) == [-7] * (room - count)
        return list(places[:count]), end

    found, end = asked(ask)
    return found, end


def named_of(blocks: list[bytes]) -> list[dict[str, bytes]]:
    """The named properties of each block."""
    data, begins, ends = joined(blocks)
    count = len(blocks)

    def ask(form: Any) -> Any:
        places = longs([0] * (2 * len(NAMED) * count))
        assert form.find_named(data, longs(begins), longs(ends), places)
        return tuple(list(places[k * count : (k + 1) * count]) for k in range(2 * len(NAMED)))

    columns = asked(ask)
    return [
        {
            name: data[columns[2 * k][row] : columns[2 * k + 1][row]]
            for k, name in enumerate(NAMED)
            if columns[2 * k][row] >= 0
        }
        for row in range(count)
    ]


def pairs_of(blocks: list[bytes], room: int) -> list[list[tuple[bytes, bytes]]] | None:
    """All properties of each block, or None."""
    data, begins, ends = joined(blocks)

    def ask(form: Any) -> Any:
        borders, places = array("i", [0] * (len(blocks) + 1)), longs([0] * (4 * room))
        count = form.find_pairs(data, longs(begins), longs(ends), borders, places)
        if count < 0:
            return None
        columns = [places[k * room : k * room + count] for k in range(4)]
        found = [
            (data[at:equals], data[value:end])
            for at, equals, value, end in zip(*columns, strict=True)
        ]
        assert borders[-1] == count
        return [found[a:b] for a, b in zip(borders, borders[1:], strict=False)]

    return asked(ask)  # type: ignore[no-any-return]


def joined(blocks: list[bytes]) -> tuple[bytes, list[int], list[int]]:
    """Blocks with other bytes around them, and where each begins and ends."""
    data, begins, ends = b"", [], []
    for block in blocks:
        data += b"TAGS\x01other\x02"
        begins.append(len(data))
        data += block
        ends.append(len(data))
    return data + b"KEYS\x01", begins, ends


def record_of(number: int, flag: int, body: bytes, block: bytes, *, is_long: bool) -> bytes:
    born, store = (
        (bytes(16) if flag & bit else b"\x7f\0\0\1", 1)
        for bit in (sysflag.BORN_HOST_V6, sysflag.STORE_HOST_V6)
    )
    record = encode_record(
        b"Topic", number - 2, 0, number * 10**12, -number, flag, -number, born, 10**15, store,
        number, 0, body, block,
    )  # fmt: skip
    if not is_long:
        return record
    at = len(record) - 2 - len(block) - 6
    topic = b"L" * 300
    data = bytearray(record[:at] + len(topic).to_bytes(2, "big") + topic + record[at + 6 :])
    data[:8] = len(data).to_bytes(4, "big") + RECORD_MAGIC_V2.to_bytes(4, "big")
    return bytes(data)


_records = st.lists(
    st.builds(
        record_of, st.integers(0, 5), _flags, st.binary(max_size=9), _blocks, is_long=st.booleans()
    ),
    max_size=5,
)


@given(_records)
def test_fields_are_those_of_the_decoder(records: list[bytes]) -> None:
    data = b"".join(records)
    starts = [sum(map(len, records[:k])) for k in range(len(records))]
    assert starts_of(data, len(records) + 1) == (starts, len(data))
    columns = fields_of(memoryview(data), starts)
    assert columns is not None
    rows = zip(*columns, strict=True)
    for start, record, row in zip(starts, records, rows, strict=True):
        found = decode_record(record)
        queue, flags, again, offset, born, store, body, body_end, topic, topic_end, at, end = row
        assert (queue, flags, again) == (found.queue_id, found.sys_flag, found.reconsume_times)
        times = found.born_timestamp, found.store_timestamp
        assert (offset, born, store) == (found.queue_offset, *times)
        assert (data[body:body_end], data[at:end]) == (found.body, found.properties)
        assert data[topic:topic_end].decode() == found.topic
        assert end == start + len(record)


@given(st.lists(_blocks, max_size=4))
def test_named_properties_are_those_of_the_decoder(blocks: list[bytes]) -> None:
    for found, block in zip(named_of(blocks), blocks, strict=True):
        # What is no UTF-8 is for the caller.
        texts = {name: value.decode("utf-8", "replace") for name, value in found.items()}
        expected = parse_properties(block.decode("utf-8", "replace"))
        assert texts == {name: expected[name] for name in NAMED if name in expected}


@given(st.lists(_blocks, max_size=4), st.integers(0, 9))
def test_pairs_are_all_that_the_decoder_finds_or_are_refused(
    blocks: list[bytes], room: int
) -> None:
    found = pairs_of(blocks, room)
    if found is None:
        return
    for pairs, block in zip(found, blocks, strict=True):
        texts = [
            (name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
            for name, value in pairs
        ]
        assert dict(texts) == parse_properties(block.decode("utf-8", "replace"))
        assert len({name for name, _ in pairs}) == len(pairs)
        closed = block if not block or block.endswith(b"\x02") else block + b"\x02"
        assert b"".join(b"%b\x01%b\x02" % pair for pair in pairs) == closed


def test_usual_pairs_are_found_and_odd_ones_refused() -> None:
    usual = [b"", b"a\x01b\x02", b"a\x01b\x02bc\x01d\x01e"]
    expected = [[], [(b"a", b"b")], [(b"a", b"b"), (b"bc", b"d\x01e")]]
    assert pairs_of(usual, 3) == expected
    assert pairs_of(usual, 2) is None
    for odd in (b"\x02", b"a", b"a\x02", b"\x01b", b"a\x01\x02", b"a\x01b\x02a\x01c"):
        assert pairs_of([*usual, odd, usual[1]], 50) is None
    many = [b"".join(b"%d\x01v\x02" % number for number in range(count)) for count in (32, 33)]
    assert pairs_of(many[:1], 50) is not None
    assert pairs_of(many[1:], 50) is None


@given(st.lists(st.tuples(st.integers(-2, 12), st.integers(-2, 12)), max_size=5))
def test_parts_are_copied_or_refused(parts: list[tuple[int, int]]) -> None:
    data = b"0123456789"
    begins, ends = [begin for begin, _ in parts], [end for _, end in parts]

    def ask(form: Any) -> Any:
        borders = array("i", [0] * (len(parts) + 1))
        found = form.copy_parts(memoryview(data), longs(begins), longs(ends), borders)
        return (found, list(borders)) if found is not None else (None, None)

    found, borders = asked(ask)
    if any(begin != -1 and not 0 <= begin <= end <= len(data) for begin, end in parts):
        assert found is None
        return
    wanted = [b"" if begin < 0 else data[begin:end] for begin, end in parts]
    assert found == b"".join(wanted)
    assert [found[a:b] for a, b in zip(borders, borders[1:], strict=False)] == wanted


@pytest.mark.parametrize("seed", range(3))
def test_cut_and_flipped_records_are_read_as_the_decoder_does_or_refused(seed: int) -> None:
    draws = random.Random(seed)
    good = [
        record_of(k, flag, b"body", b"TAGS\x01A\x02KEYS\x01k", is_long=k % 2 == 1)
        for k, flag in enumerate((0, sysflag.BORN_HOST_V6, sysflag.STORE_HOST_V6, 0))
    ]
    starts = [sum(map(len, good[:k])) for k in range(len(good))]
    refused = 0
    for _ in range(3_000):
        data = bytearray(b"".join(good))
        for _ in range(draws.randint(1, 3)):
            # Lengths are worth most of it.
            record = draws.choice(starts)
            at = record + draws.choice(
                [0, 1, 2, 3, 39, 84, 85, 86, 87, 96, 99, draws.randrange(95)]
            )
            data[min(at, len(data) - 1)] = draws.choice([0, 1, 127, 128, 255, draws.randrange(256)])
        cut = bytes(data[: draws.choice([len(data), draws.randrange(len(data))])])
        assert starts_of(cut, 9)[1] <= len(cut)
        if fields_of(cut, starts) is None:
            refused += 1
            with pytest.raises(RemoteProtocolError):
                for start in starts:
                    decode_record(cut, start)
    assert 500 < refused < 2_990
    assert fields_of(b"".join(good), [-1]) is None
    assert fields_of(b"".join(good), [2**62]) is None


def test_arrays_without_room_are_refused() -> None:
    """No number is written behind an array's end, whoever asks."""
    record = record_of(1, 0, b"body", b"TAGS\x01A", is_long=False)
    one, none = longs([0]), longs([])
    for form in FORMS:
        with pytest.raises(ValueError, match="room"):
            form.read_fields(record, one, longs([0] * 8), array("i", [0] * 3))
        with pytest.raises(ValueError, match="room"):
            form.read_fields(record, one, longs([0] * 9), array("i", [0] * 2))
        with pytest.raises(ValueError, match="room"):
            form.find_named(record, one, one, longs([0] * 5))
        with pytest.raises(ValueError, match="room"):
            form.find_named(record, one, none, longs([0] * 6))
        with pytest.raises(ValueError, match="room"):
            form.find_pairs(record, one, one, array("i", [0]), longs([0] * 8))
        with pytest.raises(ValueError, match="room"):
            form.copy_parts(record, one, one, array("i", [0]))
        assert form.find_records(record, none) == (0, 0)
