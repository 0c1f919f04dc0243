"""Entries as bytes: heads written by hand, runs, checks of what comes from elsewhere."""

import random
import struct

import crcmod.predefined
import pytest
from crc32c import crc32c

from ledgermq.dledger.entry import (
    BLANK,
    HEAD,
    INDEX_UNIT,
    EntryCodec,
    EntryHead,
    EntryId,
    EntrySlice,
    check_fits,
    count_in_segment,
    place,
    read_head,
)
from ledgermq.dledger.errors import CorruptEntryError, EntryTooLargeError


def make_codec(stamp_offset: int | None = None) -> EntryCodec:
    return EntryCodec(crc32c, stamp_offset)


def encode(bodies: list[bytes], index: int = 0, term: int = 1, position: int = 0) -> EntrySlice:
    return make_codec().encode(
        bodies, first_index=index, term=term, position=position, previous_chain_crc=0
    )


def parse(data: bytes, previous: EntryId | None = None, chain: int = 0, at: int = 0) -> EntrySlice:
    return make_codec().parse(data, position=at, previous=previous, previous_chain_crc=chain)


# As seen on disk of a DLedger 0.3.1.2 member: "hello" as the first entry of term 1.
HELLO = bytes.fromhex(
    "00000001 00000035 0000000000000000 0000000000000001 0000000000000000"
    "00000000 00000000 00000000 00000005 68656c6c6f"
)


def test_the_entry_of_a_java_member_is_read() -> None:
    entries = parse(HELLO)
    assert entries.head_at(0) == EntryHead(1, 53, 0, 1, 0, 0, 0, 0, 5)
    assert [bytes(body) for body in entries.bodies()] == [b"hello"]
    assert (entries.last_chain_crc, entries.end_position) == (0, 53)


def test_our_entry_differs_from_javas_in_the_checksums_only() -> None:
    ours = encode([b"hello"])
    assert ours.data[:36] == HELLO[:36]
    assert ours.data[44:] == HELLO[44:]
    assert ours.same_as(parse(HELLO))
    assert parse(HELLO).same_as(ours)
    assert ours != parse(HELLO)


def test_head_of_a_known_record_is_as_java_writes_it() -> None:
    head = HEAD.pack(1, 197, 7, 3, 1000, 0, 0, 0, 149)
    assert head == bytes.fromhex(
        "00000001 000000c5 0000000000000007 0000000000000003 00000000000003e8"
        "00000000 00000000 00000000 00000095"
    )


def test_index_unit_and_blank_are_as_java_writes_them() -> None:
    assert INDEX_UNIT.pack(1, 1000, 197, 7, 3) == bytes.fromhex(
        "00000001 00000000000003e8 000000c5 0000000000000007 0000000000000003"
    )
    assert BLANK.pack(-1, 40) == bytes.fromhex("ffffffff 00000028")


def test_checksums_are_crc32c_of_body_and_of_the_chain() -> None:
    oracle = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
    data = bytes(encode([b"first", b"second"]).data)
    first, second = data[:53], data[53:]
    body_crc = struct.pack(">I", oracle(b"first"))
    assert first[40:44] == body_crc
    assert first[36:40] == struct.pack(">I", oracle(bytes(4) + first[:36] + body_crc))
    chained = first[36:40] + second[:36] + struct.pack(">I", oracle(b"second"))
    assert second[36:40] == struct.pack(">I", oracle(chained))


def test_the_stamp_is_the_position_of_the_body() -> None:
    codec = make_codec(stamp_offset=28)
    bodies = [bytes(40), bytes(36), b"short"]
    entries = codec.encode(bodies, first_index=0, term=1, position=1000, previous_chain_crc=0)
    first, second, third = (bytes(body) for body in entries.bodies())
    assert first == bytes(28) + struct.pack(">q", 1048) + bytes(4)
    assert second == bytes(28) + struct.pack(">q", 1000 + 88 + 48)
    assert third == b"short"
    assert parse(bytes(entries.data), at=1000) == entries


def test_a_run_is_parsed_as_it_was_encoded() -> None:
    rng = random.Random(7)
    bodies = [rng.randbytes(rng.randrange(300)) for _ in range(200)]
    entries = make_codec().encode(
        bodies, first_index=41, term=9, position=4096, previous_chain_crc=77
    )
    parsed = parse(bytes(entries.data), EntryId(9, 40), 77, 4096)
    assert parsed == entries
    assert parsed.starts == entries.starts
    assert parsed.last_chain_crc == entries.last_chain_crc
    assert [bytes(body) for body in parsed.bodies()] == bodies
    assert (parsed.first_index, parsed.last_id) == (41, EntryId(9, 240))


def two_terms() -> EntrySlice:
    codec = make_codec()
    old = encode([b"a", b"bb"], index=5, term=2, position=100)
    new = codec.encode(
        [b"ccc"],
        first_index=7,
        term=4,
        position=old.end_position,
        previous_chain_crc=old.last_chain_crc,
    )
    return parse(bytes(old.data) + bytes(new.data), None, 0, 100)


def test_a_run_may_hold_several_terms() -> None:
    entries = two_terms()
    assert (entries.first_term, entries.last_term) == (2, 4)
    assert [entries.term_at(index) for index in (5, 6, 7)] == [2, 2, 4]
    assert entries.entry_id(1) == EntryId(2, 6)


@pytest.mark.parametrize("index", [5, 6, 7])
def test_a_part_is_the_run_that_its_bytes_give(index: int) -> None:
    entries = two_terms()
    tail = entries.slice_from(index)
    assert tail == parse(bytes(tail.data), at=tail.position)
    assert (tail.first_index, tail.last_index) == (index, 7)
    assert tail.position == entries.head_at(index).position
    assert tail.last_chain_crc == entries.last_chain_crc
    assert tail.first_term == entries.term_at(index)


def test_take_keeps_to_both_limits_but_gives_one_entry() -> None:
    entries = two_terms()
    assert entries.take(2, 10_000).last_id == EntryId(2, 6)
    assert entries.take(9, 49 + 50).count == 2
    assert entries.take(9, 49 + 49).count == 1
    assert entries.take(0, 0).count == 1
    assert entries.take(3, len(entries.data)) is entries
    assert entries.take(2, 10_000).last_chain_crc == entries.head_at(6).chain_crc


def test_ids_are_ordered_by_term_and_then_by_index() -> None:
    assert EntryId(2, 1) > EntryId(1, 900)
    assert EntryId(2, 5) < EntryId(2, 6)


@pytest.mark.parametrize(
    ("position", "entry_bytes", "expected"),
    [
        (0, 1016, 0),  # exactly 8 bytes stay free
        (0, 1017, 1024),
        (900, 116, 900),
        (900, 117, 1024),
        (1016, 49, 1024),  # only the smallest blank fits
        (1024, 49, 1024),
        (5 * 1024 + 1000, 49, 6 * 1024),
    ],
)
def test_an_entry_leaves_room_for_a_blank(position: int, entry_bytes: int, expected: int) -> None:
    assert place(position, entry_bytes, 1024) == expected


def test_count_in_segment_agrees_with_placing_one_by_one() -> None:
    rng = random.Random(3)
    for _ in range(500):
        bodies = [bytes(rng.randrange(1, 400)) for _ in range(rng.randrange(1, 8))]
        start = rng.randrange(1017)
        position, count = start, 0
        for body in bodies:
            if place(position, len(body) + 48, 1024) != position:
                break
            position += len(body) + 48
            count += 1
        assert count_in_segment(bodies, start, 1024) == count


@pytest.mark.parametrize(
    ("offset", "value", "field"),
    [
        (0, struct.pack(">i", 2), "magic"),
        (0, struct.pack(">i", -1), "magic"),
        (4, struct.pack(">i", 54), "body_bytes"),
        (4, struct.pack(">i", 0), "body_bytes"),
        (8, struct.pack(">q", 6), "index"),
        (16, struct.pack(">q", 2), "term"),
        (24, struct.pack(">q", 99), "position"),
        (32, struct.pack(">i", 1), "channel"),
        (36, b"\0\0\0\0", "chain_crc"),
        (40, b"\0\0\0\0", "body_crc"),
        (44, struct.pack(">i", -48), "body_bytes"),
        (48, b"j", "body_crc"),
    ],
)
def test_each_wrong_field_is_named(offset: int, value: bytes, field: str) -> None:
    codec = make_codec()
    entries = codec.encode(
        [b"hello", b"you"], first_index=5, term=3, position=100, previous_chain_crc=8
    )
    data = bytearray(entries.data)
    data[offset : offset + len(value)] = value
    with pytest.raises(CorruptEntryError) as caught:
        parse(bytes(data), EntryId(3, 4), 8, 100)
    assert caught.value.field == field
    assert (caught.value.index, caught.value.position) == (5, 100)
    assert caught.value.expected != caught.value.found


def test_a_negative_size_ends_the_walk() -> None:
    data = HEAD.pack(1, -2, 0, 1, 0, 0, 0, 0, -50) + bytes(50)
    with pytest.raises(CorruptEntryError) as caught:
        parse(data)
    assert caught.value.field == "size"


@pytest.mark.parametrize("size", [0, 1, 47, 48, 52, 54, 100])
def test_a_cut_run_is_refused(size: int) -> None:
    data = bytes(encode([b"hello", b"you"]).data)
    if size != 53:
        with pytest.raises(CorruptEntryError):
            parse(data[:size])


def test_flipped_bits_never_pass() -> None:
    entries = encode([b"hello", b"you"], index=5, term=3, position=100)
    rng = random.Random(11)
    for _ in range(300):
        data = bytearray(entries.data)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(CorruptEntryError):
            parse(bytes(data), EntryId(3, 4), 0, 100)


def test_a_gap_or_a_fallen_term_is_refused() -> None:
    data = bytes(encode([b"x"], index=5, term=3).data)
    for previous in (EntryId(3, 3), EntryId(3, 5), EntryId(4, 4)):
        with pytest.raises(CorruptEntryError):
            parse(data, previous)


def test_another_predecessor_breaks_the_chain() -> None:
    data = bytes(encode([b"x"], index=5, term=3).data)
    with pytest.raises(CorruptEntryError) as caught:
        parse(data, EntryId(3, 4), 1)
    assert caught.value.field == "chain_crc"


def test_the_chain_of_the_first_entry_is_unknown_behind_a_reset() -> None:
    codec = make_codec()
    data = codec.encode([b"x"], first_index=5, term=3, position=0, previous_chain_crc=99).data
    assert parse(bytes(data)).first_index == 5


def test_unfilled_checksums_are_counted_and_chained_as_zero() -> None:
    codec = make_codec()
    follower = codec.encode([b"x"], first_index=1, term=1, position=53, previous_chain_crc=0)
    data = HELLO + bytes(follower.data)
    codec.parse(data, position=0, previous=None, previous_chain_crc=0)
    assert codec.unfilled_count == 1


def test_checksums_may_be_left_unread() -> None:
    data = bytearray(encode([b"hello"]).data)
    data[50] ^= 1
    entries = make_codec().parse(
        bytes(data), position=0, previous=None, previous_chain_crc=0, verify=False
    )
    assert entries.count == 1


def test_a_too_large_entry_is_told_with_both_numbers() -> None:
    check_fits(52, 100)
    with pytest.raises(EntryTooLargeError) as caught:
        check_fits(53, 100)
    assert (caught.value.entry_bytes, caught.value.bytes_max) == (101, 100)


def test_read_head_reads_at_an_offset() -> None:
    assert read_head(b"abc" + HELLO, 3).body_bytes == 5
