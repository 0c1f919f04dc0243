"""FrameDecoder: however a stream is cut, the frames are the same, and memory stays bounded."""

import random
import struct

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder

LIMIT = 64

payloads = st.binary(min_size=4, max_size=LIMIT - 4)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@given(st.lists(payloads, max_size=12), st.data())
def test_any_cuts_give_the_same_frames(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(framed(frame) for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    decoder = FrameDecoder(LIMIT)
    out: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        out += decoder.feed(stream[start:end])
    assert out == frames
    assert decoder.buffered_bytes == 0


def obvious_frames(stream: bytes) -> tuple[list[bytes], bool]:
    """The frames of a whole stream, and whether it is bad after them."""
    frames: list[bytes] = []
    while len(stream) >= 4:
        (length,) = struct.unpack_from(">i", stream)
        if not 4 <= length <= LIMIT - 4:
            return frames, True
        if len(stream) < 4 + length:
            break
        frames.append(stream[4 : 4 + length])
        stream = stream[4 + length :]
    return frames, False


class Session(RuleBasedStateMachine):
    """A stream of good frames, noise and pieces of both, against the obvious function."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = FrameDecoder(LIMIT)
        self.stream = b""
        self.out: list[bytes] = []
        self.is_dead = False

    def feed(self, chunk: bytes) -> None:
        self.stream += chunk
        expected, is_bad = obvious_frames(self.stream)
        try:
            self.out += self.decoder.feed(chunk)
        except RemoteProtocolError:
            assert is_bad
            self.is_dead = True
        else:
            assert not is_bad
            assert self.out == expected

    @precondition(lambda self: not self.is_dead)
    @rule(payload=payloads)
    def feed_a_frame(self, payload: bytes) -> None:
        self.feed(framed(payload))

    @precondition(lambda self: not self.is_dead)
    @rule(payload=payloads, cut=st.integers(0, LIMIT))
    def feed_a_frame_in_two(self, payload: bytes, cut: int) -> None:
        self.feed(framed(payload)[:cut])
        if not self.is_dead:
            self.feed(framed(payload)[cut:])

    @precondition(lambda self: not self.is_dead)
    @rule(noise=st.binary(max_size=12))
    def feed_noise(self, noise: bytes) -> None:
        self.feed(noise)

    @precondition(lambda self: self.is_dead)
    @rule(chunk=st.binary(max_size=12))
    def stay_dead(self, chunk: bytes) -> None:
        try:
            self.decoder.feed(chunk)
        except RemoteProtocolError:
            return
        raise AssertionError("a dead decoder took a chunk")

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.decoder.buffered_bytes < LIMIT


TestSession = Session.TestCase


def test_random_bytes_give_frames_or_a_protocol_error() -> None:
    rng = random.Random(20)
    for _ in range(2_000):
        decoder = FrameDecoder(LIMIT)
        try:
            for _ in range(rng.randrange(1, 6)):
                decoder.feed(rng.randbytes(rng.randrange(40)))
        except RemoteProtocolError:
            pass
