"""Checksums against published values and against crcmod."""

import random
import zlib

import crcmod.predefined
import pytest

from ledgermq.protocol.checksum import crc32_masked, crc32c, crc32c_by_crcmod

_crcmod_crc32 = crcmod.predefined.mkPredefinedCrcFun("crc-32")


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0), (b"Hello 0", 0x6F55306D), (b"a", 0x68B7BE43)]
)
def test_record_crc_is_masked_as_in_java(data, expected):
    assert crc32_masked(data) == expected


def test_crc32c_gives_the_published_check_value():
    assert crc32c(b"123456789") == crc32c_by_crcmod(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


def test_both_checksums_agree_with_crcmod():
    rng = random.Random(20)
    for _ in range(100):
        data = rng.randbytes(rng.randrange(300))
        assert (
            crc32_masked(data) == _crcmod_crc32(data) & 0x7FFFFFFF == zlib.crc32(data) & 0x7FFFFFFF
        )
        assert crc32c(data) == crc32c_by_crcmod(data)


@pytest.mark.parametrize("checksum", [crc32c, crc32c_by_crcmod])
def test_crc32c_continues_from_a_former_value(checksum):
    assert checksum(b"6789", checksum(b"12345")) == 0xE3069283


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_any_buffer_is_summed(form):
    assert crc32_masked(form(b"a")) == 0x68B7BE43
    assert crc32c(form(b"123456789")) == crc32c_by_crcmod(form(b"123456789")) == 0xE3069283
