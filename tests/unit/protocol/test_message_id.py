"""Offset message ids and the unique ids that clients make."""

import datetime

import pytest

from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.message_id import (
    OffsetMessageId,
    UniqueIds,
    created_ms,
    decode_offset_id,
    encode_offset_id,
    month_around,
)

ADDRESS = bytes((192, 0, 2, 10))
NOW_MS = int(datetime.datetime(2023, 11, 14, 22, 13, 20).timestamp() * 1000)
MONTH_MS = int(datetime.datetime(2023, 11, 1).timestamp() * 1000)


def test_offset_id_has_the_digits_that_java_writes():
    assert encode_offset_id(ADDRESS, 10911, 1048) == "C000020A00002A9F0000000000000418"
    assert encode_offset_id(bytes((10, 0, 0, 1)), 10911, 0) == "0A00000100002A9F0000000000000000"


@pytest.mark.parametrize("address", [ADDRESS, bytes(range(16))])
def test_offset_id_is_read_back(address):
    text = encode_offset_id(address, 10911, 1 << 40)
    assert decode_offset_id(text) == OffsetMessageId(address, 10911, 1 << 40)
    assert decode_offset_id(text.lower()) == OffsetMessageId(address, 10911, 1 << 40)


@pytest.mark.parametrize(
    "text",
    ["", "C0", "Z" * 32, "0" * 31, "0" * 33, "  " * 16, "中" * 32, "00 " * 4 + "0" * 20],
)
def test_text_that_is_no_offset_id_is_refused(text):
    with pytest.raises(RemoteProtocolError):
        decode_offset_id(text)


def test_unique_id_holds_its_parts_in_order():
    ids = UniqueIds(bytes((172, 20, 0, 1)), 0x12345, 0xABCDEF01)
    first, second = ids.create(NOW_MS), ids.create(NOW_MS)
    assert first == f"AC1400012345ABCDEF01{NOW_MS - MONTH_MS:08X}0000"
    assert second == first[:-4] + "0001"


def test_unique_id_of_an_ipv6_client_has_56_digits():
    assert len(UniqueIds(bytes(16), 1, 1).create(NOW_MS)) == 56


def test_time_within_the_id_starts_anew_each_month():
    ids = UniqueIds(ADDRESS, 1, 1)
    _, next_month_ms = month_around(NOW_MS)
    assert ids.create(next_month_ms - 1)[20:28] == f"{next_month_ms - 1 - MONTH_MS:08X}"
    assert ids.create(next_month_ms)[20:28] == "00000000"


def test_counter_of_unique_ids_wraps():
    ids = UniqueIds(ADDRESS, 1, 1)
    made = {ids.create(NOW_MS) for _ in range(65536)}
    assert len(made) == 65536
    assert ids.create(NOW_MS).endswith("0000")


def test_time_of_a_unique_id_is_the_latest_that_fits():
    text = UniqueIds(ADDRESS, 1, 1).create(NOW_MS)
    assert created_ms(text, NOW_MS + 5) == NOW_MS
    assert created_ms(text, NOW_MS - 5) < MONTH_MS
    assert created_ms("not an id", NOW_MS) is None
    assert created_ms("Z" * 32, NOW_MS) is None
