"""Replication: however the stream is cut and broken off, a slave's log is a prefix of its master's,
and becomes equal to it.
"""

import random
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.broker.ha.errors import ReplicationError
from ledgermq.broker.ha.frames import (
    BODY_BYTES_MAX,
    FRAME_HEAD,
    Frame,
    FrameReader,
    ReportReader,
    encode_frame,
    encode_report,
)
from ledgermq.broker.ha.master_link import MasterLink
from ledgermq.broker.ha.slave_link import SlaveLink
from ledgermq.dledger.bounds import POSITION_MAX
from tests.unit.broker.ha.memory_log import MemoryLog

frames = st.lists(
    st.builds(Frame, st.integers(0, POSITION_MAX), st.binary(max_size=40)), max_size=12
)


def pieces(stream: bytes, data: st.DataObject) -> list[bytes]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(frames, st.data())
def test_any_cuts_give_the_same_frames(expected: list[Frame], data: st.DataObject) -> None:
    reader = FrameReader()
    found: list[Frame] = []
    for piece in pieces(b"".join(encode_frame(*frame) for frame in expected), data):
        found += reader.feed(piece)
    assert found == expected
    assert reader.buffered_bytes == 0


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=12), st.data())
def test_any_cuts_end_in_the_last_report(offsets: list[int], data: st.DataObject) -> None:
    reader = ReportReader()
    stream = b"".join(map(encode_report, offsets))
    seen = 0
    for piece in pieces(stream, data):
        before, seen = seen // 8, (seen + len(piece))
        assert reader.feed(piece) == (offsets[seen // 8 - 1] if seen // 8 > before else None)


@given(st.binary(max_size=64), st.data())
def test_noise_is_read_as_frames_or_refused(noise: bytes, data: st.DataObject) -> None:
    reader = FrameReader()
    try:
        for piece in pieces(noise, data):
            reader.feed(piece)
            assert reader.buffered_bytes <= len(noise)
    except ReplicationError:
        offset, size = struct.unpack_from(">qi", noise)
        if len(noise) < 2 * FRAME_HEAD.size + max(size, 0):
            assert offset < 0 or not 0 <= size <= BODY_BYTES_MAX


class Pair:
    """A master's log that grows and a slave's that follows, over connections that break."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        segment_bytes = self.rng.choice([16, 64, 100])
        self.master_log = MemoryLog(segment_bytes)
        self.slave_log = MemoryLog(segment_bytes)
        self.batch_bytes = self.rng.choice([1, 7, 32, 1000])
        self.now_ms = 0.0
        self.connect()

    def connect(self) -> None:
        times = {"heart_beat_ms": 5000, "silence_ms_max": 20_000, "now_ms": self.now_ms}
        self.master = MasterLink(self.master_log, batch_bytes_max=self.batch_bytes, **times)
        self.slave = SlaveLink(self.slave_log, **times)
        self.to_slave = self.to_master = b""

    def step(self) -> None:
        """One of the things that may happen next."""
        rng = self.rng
        self.now_ms += rng.choice([0, 10, 3000])
        match rng.randrange(6):
            case 0:
                self.master_log.append(rng.randbytes(rng.randrange(80)))
            case 1:
                self.to_master += self.slave.take_report(self.now_ms) or b""
            case 2:
                self.to_slave += self.master.take_frame(self.now_ms) or b""
            case 3:
                size = rng.randrange(len(self.to_master) + 1)
                self.master.receive(self.to_master[:size], self.now_ms)
                self.to_master = self.to_master[size:]
            case 4:
                size = rng.randrange(len(self.to_slave) + 1)
                self.slave.receive(self.to_slave[:size], self.now_ms)
                self.to_slave = self.to_slave[size:]
            case 5 if rng.random() < 0.2:
                self.connect()

    def check(self) -> None:
        begin, end = self.slave_log.min_offset, self.slave_log.max_offset
        assert end <= self.master_log.max_offset
        assert self.slave_log.data == self.master_log.data[begin:end]
        if self.master.acknowledged_offset is not None:
            assert self.master.acknowledged_offset <= end

    def settle(self) -> None:
        """The connection holds: both exchange all that is due."""
        self.connect()
        for _ in range(2):
            self.master.receive(self.slave.take_report(self.now_ms) or b"", self.now_ms)
            while frame := self.master.take_frame(self.now_ms):
                self.slave.receive(frame, self.now_ms)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_a_slave_is_a_prefix_of_its_master_and_becomes_equal(seed: int) -> None:
    pair = Pair(seed)
    for _ in range(150):
        pair.step()
        pair.check()
    pair.settle()
    pair.check()
    assert pair.slave_log.max_offset == pair.master_log.max_offset
    assert pair.master.acknowledged_offset == pair.master_log.max_offset
