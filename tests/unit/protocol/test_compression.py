"""Compressed bodies: what each client writes is read, and nothing grows beyond its limit."""

import random
import zlib

import lz4.frame
import pytest
import zstandard

from ledgermq.protocol import sysflag
from ledgermq.protocol.compression import compress, decompress
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError

KINDS = [sysflag.COMPRESSION_ZLIB, sysflag.COMPRESSION_LZ4, sysflag.COMPRESSION_ZSTD]
BODY = b'{"id": 17, "name": "some text"}' * 200


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"", b"a", BODY])
def test_compressed_body_is_read_back(kind, body):
    packed = compress(body, kind)
    assert decompress(packed, sysflag.COMPRESSED | kind, len(body)) == body


def test_body_of_a_client_without_type_bits_is_zlib():
    assert decompress(zlib.compress(BODY), sysflag.COMPRESSED, len(BODY)) == BODY


def test_body_without_the_compressed_bit_is_left_alone():
    assert decompress(b"anything", sysflag.COMPRESSION_LZ4, 0) == b"anything"


def test_lz4_is_the_frame_format():
    assert compress(BODY, sysflag.COMPRESSION_LZ4)[:4] == bytes.fromhex("04224d18")
    assert lz4.frame.decompress(compress(BODY, sysflag.COMPRESSION_LZ4)) == BODY


def test_body_is_one_frame():
    for pack, sys_flag in ((zstandard.compress, 0x201), (lz4.frame.compress, 0x101)):
        with pytest.raises(RemoteProtocolError, match="bytes behind it"):
            decompress(pack(b"one") + pack(b"two"), sys_flag, 100)
    with pytest.raises(RemoteProtocolError, match="without an end"):
        decompress(b"", 0x201, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_result_beyond_the_limit_is_refused(kind):
    packed = compress(bytes(50_000_000), kind)
    with pytest.raises(RemoteProtocolError, match="more than 1000"):
        decompress(packed, sysflag.COMPRESSED | kind, 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_cut_body_is_refused(kind):
    packed = compress(random.Random(1).randbytes(3000), kind)
    for size in (0, 1, 4, len(packed) // 2, len(packed) - 1):
        with pytest.raises(RemoteProtocolError):
            decompress(packed[:size], sysflag.COMPRESSED | kind, 10_000)


@pytest.mark.parametrize("kind", [*KINDS, 0])
def test_random_bytes_are_refused_as_remote(kind):
    rng = random.Random(kind)
    for _ in range(300):
        data = rng.randbytes(rng.randrange(1, 60))
        if rng.random() < 0.5:
            data = compress(b"x", kind or KINDS[0])[: rng.randrange(9)] + data
        try:
            decompress(data, sysflag.COMPRESSED | kind, 1000)
        except RemoteProtocolError:
            pass


def test_unknown_codec_is_refused_on_both_sides():
    with pytest.raises(RemoteProtocolError, match="compression type"):
        decompress(b"", 0x701, 10)
    with pytest.raises(LocalProtocolError):
        compress(b"", 0)
    with pytest.raises(LocalProtocolError):
        compress(b"", sysflag.COMPRESSION_ZLIB, 99)
