"""FrameDecoder against streams cut in every way, and against lengths that lie."""

import random
import struct

import pytest

from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.framing import FRAME_BYTES_MAX, FrameDecoder


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


PAYLOADS = [b"abcd", b"12345", b"\x00" * 7, b"\x00\x00\x00\x04wxyz"]


def test_whole_frames_in_one_chunk_come_out_in_order() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(framed(*PAYLOADS)) == PAYLOADS
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("cut", range(len(framed(*PAYLOADS)) + 1))
def test_stream_cut_at_any_byte_gives_the_same_frames(cut: int) -> None:
    stream = framed(*PAYLOADS)
    decoder = FrameDecoder()
    assert decoder.feed(stream[:cut]) + decoder.feed(stream[cut:]) == PAYLOADS
    assert decoder.buffered_bytes == 0


def test_stream_of_single_bytes_gives_the_same_frames() -> None:
    decoder = FrameDecoder()
    frames = [frame for byte in framed(*PAYLOADS) for frame in decoder.feed(bytes([byte]))]
    assert frames == PAYLOADS


def test_nothing_fed_gives_nothing() -> None:
    assert FrameDecoder().feed(b"") == []


def test_buffered_bytes_counts_the_unfinished_frame_alone() -> None:
    decoder = FrameDecoder()
    decoder.feed(framed(b"abcd") + b"\x00\x00")
    assert decoder.buffered_bytes == 2
    decoder.feed(b"\x00\x08abc")
    assert decoder.buffered_bytes == 7


def test_frame_of_the_limit_passes_and_one_byte_more_does_not() -> None:
    limit = 64
    assert FrameDecoder(limit).feed(framed(b"x" * 60)) == [b"x" * 60]
    with pytest.raises(RemoteProtocolError) as raised:
        FrameDecoder(limit).feed(framed(b"x" * 61))
    assert (raised.value.field, raised.value.value) == ("frame length", 61)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, FRAME_BYTES_MAX - 3, 2**31 - 1])
@pytest.mark.parametrize("cut", range(5))
def test_bad_length_is_refused_as_soon_as_it_is_whole(length: int, cut: int) -> None:
    stream = struct.pack(">i", length)
    decoder = FrameDecoder()
    with pytest.raises(RemoteProtocolError):
        assert decoder.feed(stream[:cut]) == []
        decoder.feed(stream[cut:])


def test_decoder_stays_dead_and_keeps_nothing() -> None:
    decoder = FrameDecoder()
    with pytest.raises(RemoteProtocolError):
        decoder.feed(framed(b"good") + b"\xff" * 100)
    for chunk in (b"", framed(b"good")):
        with pytest.raises(RemoteProtocolError):
            decoder.feed(chunk)
    assert decoder.buffered_bytes == 0


def test_largest_frame_in_small_chunks_is_put_together() -> None:
    payload = random.Random(7).randbytes(FRAME_BYTES_MAX - 4)
    stream = framed(payload, b"next")
    decoder = FrameDecoder()
    frames = []
    for start in range(0, len(stream), 65_536):
        frames += decoder.feed(stream[start : start + 65_536])
    assert frames == [payload, b"next"]
