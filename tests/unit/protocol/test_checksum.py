"""Checksums against published values and against crcmod."""

import random
import subprocess
import sys
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


def without(*packages: str, then: str) -> str:
    """What a process prints that has the checksums and does not have these packages."""
    blocked = "".join(f"sys.modules[{name!r}] = None; " for name in packages)
    program = f"import sys; {blocked}from ledgermq.protocol import checksum; {then}"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_crcmod_takes_the_place_of_crc32c():
    then = "print(hex(checksum.crc32c(b'123456789')))"
    assert without("crc32c", then=then) == "0xe3069283"


def test_records_are_summed_without_either_and_crc32c_says_what_it_needs():
    then = """print(checksum.crc32_masked(b'a') == 0x68B7BE43)
try:
    checksum.crc32c(b'a')
except ImportError as error:
    print(error)"""
    said = without("crc32c", "crcmod", then=then).splitlines()
    assert said == ["True", "CRC-32C needs the package crc32c, or crcmod in its place"]
