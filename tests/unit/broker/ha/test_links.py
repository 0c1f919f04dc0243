"""The two ends of replication without I/O: what is sent, taken, and refused, and when."""

import pytest

from ledgermq.broker.ha.errors import OffsetsDisagreeError, ReplicationError
from ledgermq.broker.ha.frames import (
    BODY_BYTES_MAX,
    Frame,
    FrameReader,
    ReportReader,
    encode_frame,
    encode_report,
)
from ledgermq.broker.ha.master_link import MasterLink
from ledgermq.broker.ha.slave_link import SlaveLink
from ledgermq.dledger.store.errors import UnreadableError
from tests.unit.broker.ha.memory_log import MemoryLog


def master_of(log: MemoryLog, batch_bytes_max: int = 16) -> MasterLink:
    return MasterLink(
        log, batch_bytes_max=batch_bytes_max, heart_beat_ms=5000, silence_ms_max=20_000, now_ms=0
    )


def slave_of(log: MemoryLog) -> SlaveLink:
    return SlaveLink(log, heart_beat_ms=5000, silence_ms_max=20_000, now_ms=0)


def frames_of(link: MasterLink, now_ms: float = 0) -> list[bytes]:
    frames = []
    while (frame := link.take_frame(now_ms)) is not None:
        frames.append(frame)
    return frames


# Bytes, compared with what was written by hand.


def test_a_report_is_an_offset_of_eight_bytes() -> None:
    assert encode_report(0x0102030405) == bytes.fromhex("0000000102030405")


def test_a_frame_is_an_offset_a_size_and_bytes() -> None:
    assert encode_frame(0x0102, b"ab") == bytes.fromhex("0000000000000102 00000002 6162")


def test_of_many_reports_the_last_complete_one_counts() -> None:
    reader = ReportReader()
    assert reader.feed(encode_report(5) + encode_report(9) + encode_report(12)[:3]) == 9
    assert reader.feed(encode_report(12)[3:7]) is None
    assert reader.feed(encode_report(12)[7:]) == 12


def test_a_torn_frame_waits_for_its_rest() -> None:
    reader = FrameReader()
    frame = encode_frame(7, b"body")
    assert reader.feed(frame[:-1]) == []
    assert reader.buffered_bytes == len(frame) - 1
    assert reader.feed(frame[-1:]) == [Frame(7, b"body")]
    assert reader.buffered_bytes == 0


@pytest.mark.parametrize(
    "head",
    [
        "ffffffffffffffff 00000000",
        "0000000000000000 ffffffff",
        f"0000000000000000 {BODY_BYTES_MAX + 1:08x}",
    ],
)
def test_a_head_that_cannot_be_right_is_refused_before_its_body_comes(head: str) -> None:
    with pytest.raises(ReplicationError):
        FrameReader().feed(bytes.fromhex(head))


def test_a_negative_report_is_refused() -> None:
    with pytest.raises(ReplicationError):
        ReportReader().feed(b"\xff" * 8)


# The master.


def test_nothing_is_sent_before_the_first_report() -> None:
    link = master_of(MemoryLog(data=b"x" * 10))
    assert link.take_frame(100_000) is None


def test_frames_end_at_the_batch_size_and_at_the_end_of_a_file() -> None:
    log = MemoryLog(segment_bytes=64, data=bytes(range(100)))
    link = master_of(log, batch_bytes_max=40)
    link.receive(encode_report(10), 0)
    reader = FrameReader()
    frames = reader.feed(b"".join(frames_of(link)))
    assert [(frame.physical_offset, len(frame.body)) for frame in frames if frame.body] == [
        (10, 40),
        (50, 14),
        (64, 36),
    ]
    assert b"".join(frame.body for frame in frames) == log.data[10:]


@pytest.mark.parametrize(("end", "begin"), [(0, 0), (63, 0), (64, 64), (200, 192)])
def test_an_empty_slave_begins_with_the_last_file(end: int, begin: int) -> None:
    link = master_of(MemoryLog(segment_bytes=64, data=b"x" * end))
    link.receive(encode_report(0), 0)
    assert link.next_offset == begin


def test_a_heart_beat_is_sent_at_once_and_after_silence() -> None:
    log = MemoryLog(data=b"x" * 10)
    link = master_of(log)
    link.receive(encode_report(10), 0)
    assert frames_of(link, 0) == [encode_frame(10, b"")]
    assert frames_of(link, 4999) == []
    assert frames_of(link, 5000) == [encode_frame(10, b"")]
    log.append(b"yz")
    assert frames_of(link, 9000) == [encode_frame(10, b"yz")]
    assert frames_of(link, 13_999) == []
    assert frames_of(link, 14_000) == [encode_frame(12, b"")]


def test_later_reports_acknowledge_and_do_not_move_what_is_sent() -> None:
    link = master_of(MemoryLog(data=b"x" * 30))
    assert link.receive(encode_report(8), 0)
    frames_of(link)
    assert not link.receive(encode_report(20)[:5], 1)
    assert link.acknowledged_offset == 8
    assert link.receive(encode_report(20)[5:], 1)
    assert (link.acknowledged_offset, link.next_offset) == (20, 30)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_slave_that_is_ahead_is_refused(is_first: bool) -> None:
    link = master_of(MemoryLog(data=b"x" * 30))
    if not is_first:
        link.receive(encode_report(30), 0)
    with pytest.raises(OffsetsDisagreeError, match="ends at 31, behind the end .* at 30") as caught:
        link.receive(encode_report(31), 0)
    assert (caught.value.own_offset, caught.value.peer_offset) == (30, 31)
    assert link.acknowledged_offset == (None if is_first else 30)


def test_a_slave_that_acknowledges_what_it_was_not_sent_is_refused() -> None:
    """Else it would have messages told as replicated that it does not have."""
    log = MemoryLog(data=b"x" * 30)
    link = master_of(log)
    link.receive(encode_report(10), 0)
    frames_of(link)
    log.append(b"y" * 20)
    with pytest.raises(OffsetsDisagreeError, match="ends at 31, and was sent nothing behind 30"):
        link.receive(encode_report(31), 0)
    assert link.acknowledged_offset == 10
    assert link.receive(encode_report(30), 0)


def test_a_slave_that_lacks_what_retention_removed_is_refused() -> None:
    log = MemoryLog(segment_bytes=64, start=128, data=b"x" * 10)
    link = master_of(log)
    with pytest.raises(OffsetsDisagreeError, match="retention"):
        link.receive(encode_report(127), 0)
    assert link.take_frame(0) is None


def test_retention_that_overtakes_a_slow_slave_is_told() -> None:
    log = MemoryLog(segment_bytes=64, data=b"x" * 200)
    link = master_of(log)
    link.receive(encode_report(1), 0)
    link.take_frame(0)
    log.drop_before(128)
    with pytest.raises(OffsetsDisagreeError, match="from 17 to 128"):
        link.take_frame(0)


def test_a_silent_slave_is_given_up() -> None:
    link = master_of(MemoryLog())
    assert not link.is_silent(20_000)
    assert link.is_silent(20_001)
    link.receive(b"\0", 20_001)
    assert not link.is_silent(40_001)


# The slave.


def test_a_report_is_due_at_once_then_with_each_advance_or_after_silence() -> None:
    log = MemoryLog(data=b"x" * 7)
    link = slave_of(log)
    assert link.take_report(0) == encode_report(7)
    assert link.take_report(4999) is None
    assert link.take_report(5000) == encode_report(7)
    link.receive(encode_frame(7, b"ab") + encode_frame(9, b"c"), 5001)
    assert link.take_report(5001) == encode_report(10)
    assert link.take_report(5001) is None


def test_frames_are_appended_in_order() -> None:
    log = MemoryLog(data=b"x")
    link = slave_of(log)
    link.receive(encode_frame(1, b"ab") + encode_frame(3, b"") + encode_frame(3, b"c"), 0)
    assert log.data == b"xabc"
    assert (link.frame_count, link.master_offset) == (3, 4)


def test_an_empty_slave_takes_the_masters_begin() -> None:
    log = MemoryLog(segment_bytes=64)
    slave_of(log).receive(encode_frame(128, b"abc"), 0)
    assert (log.min_offset, log.data) == (128, b"abc")


@pytest.mark.parametrize("offset", [0, 9, 11])
@pytest.mark.parametrize("body", [b"", b"abc"])
def test_a_frame_elsewhere_is_refused_and_nothing_is_truncated(offset: int, body: bytes) -> None:
    log = MemoryLog(data=b"x" * 10)
    link = slave_of(log)
    with pytest.raises(OffsetsDisagreeError, match=f"from {offset} on, .* ends at 10") as caught:
        link.receive(encode_frame(offset, body), 0)
    assert (caught.value.own_offset, caught.value.peer_offset) == (10, offset)
    assert log.data == b"x" * 10
    assert link.frame_count == 0


@pytest.mark.parametrize(("own", "offset", "size"), [(0, 32, 5), (60, 60, 5), (0, 0, 65)])
def test_files_of_another_size_are_refused(own: int, offset: int, size: int) -> None:
    log = MemoryLog(segment_bytes=64, data=b"x" * own)
    with pytest.raises(OffsetsDisagreeError, match="mappedFileSizeCommitLog"):
        slave_of(log).receive(encode_frame(offset, b"y" * size), 0)
    assert log.max_offset == own


def test_good_frames_before_a_wrong_one_stay() -> None:
    log = MemoryLog()
    with pytest.raises(OffsetsDisagreeError):
        slave_of(log).receive(encode_frame(0, b"ab") + encode_frame(5, b"c"), 0)
    assert log.data == b"ab"


def test_a_silent_master_is_given_up() -> None:
    link = slave_of(MemoryLog())
    assert not link.is_silent(20_000)
    assert link.is_silent(20_001)
    link.receive(encode_frame(0, b""), 20_001)
    assert not link.is_silent(40_001)


def test_a_frame_at_a_place_that_no_log_reaches_is_refused() -> None:
    """An empty slave begins where its master's first frame does, and would never get back."""
    assert FrameReader().feed(encode_frame(1 << 62, b"x")) == [Frame(1 << 62, b"x")]
    for offset in ((1 << 62) + 1, 2**63 - 1):
        with pytest.raises(ReplicationError, match=f"at offset {offset}"):
            FrameReader().feed(encode_frame(offset, b"x"))


def test_what_cannot_be_read_ends_the_connection_of_the_slave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = MemoryLog()
    log.append_raw(0, b"x" * 40)
    master = master_of(log)
    master.receive(encode_report(0), 0)

    def refuse(offset: int, bytes_max: int) -> memoryview:
        raise UnreadableError("commitlog/0", offset, bytes_max, "Input/output error")

    monkeypatch.setattr(log, "read", refuse)
    with pytest.raises(ReplicationError, match="cannot copy the log: cannot read commitlog/0"):
        master.take_frame(0)
