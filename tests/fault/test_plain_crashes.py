"""Power cuts of a plain commit log: what was synced is there, and what is there is a prefix."""

import random

import pytest

from ledgermq.commitlog import PlainCommitLog
from ledgermq.protocol.record import decode_record, encode_record
from tests.fault.recording_disk import RecordedFile, RecordingDisk

SEGMENT_BYTES = 4096
HOST = (b"\x7f\x00\x00\x01", 10911)
STEPS = 25
STATES = 6


def opened(disk: RecordingDisk, durable_offset: int) -> PlainCommitLog:
    log = PlainCommitLog(disk, "/store/commitlog", SEGMENT_BYTES)
    log.open(durable_offset=durable_offset)
    return log


def numbers(log: PlainCommitLog) -> list[int]:
    found, offset = [], log.min_offset
    while offset < log.confirmed_offset:
        data, walk = log.records(offset, 1 << 20)
        found += [int(decode_record(data, start - offset).body.split()[0]) for start in walk.starts]
        assert walk.next_offset > offset
        offset = walk.next_offset
    return found


class Explorer:
    """One log that is written, and cut off at each point of its way."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = RecordingDisk()
        self.log = opened(self.disk, 0)
        self.sent = 0
        # As the checkpoint of dispatch tells them: what was on the disk when a sync had ended.
        self.durable_offset = self.durable_count = 0
        self.cut_count = 0

    def run(self) -> None:
        self.disk.on_point = lambda kind: self.look()
        for _ in range(STEPS):
            count = self.rng.randrange(1, 5)
            sizes = [self.rng.choice((10, 600, 1500)) for _ in range(count)]
            self.log.append([self.record(self.sent + i, size) for i, size in enumerate(sizes)])
            self.sent += count
            self.look()
            if self.rng.random() < 0.3:
                self.log.sync()
                self.durable_offset, self.durable_count = self.log.flushed_offset, self.sent

    @staticmethod
    def record(number: int, size: int) -> bytes:
        body = b"%d " % number + b"b" * size
        return encode_record(b"T", 0, 0, number, 0, 0, 1, HOST, 1, HOST, 0, 0, body, b"")

    def look(self) -> None:
        self.disk.note()
        for state in self.disk.states(STATES, self.rng):
            self.cut_count += 1
            log = opened(RecordingDisk(state), self.durable_offset)
            found = numbers(log)
            assert found == list(range(len(found)))
            assert len(found) >= self.durable_count
            [offset] = log.append([self.record(len(found), 10)])
            log.confirm(log.max_offset)
            assert numbers(log) == list(range(len(found) + 1)) and offset < log.max_offset


@pytest.mark.parametrize("seed", range(2))
def test_every_state_that_a_power_cut_may_leave_is_recovered(seed: int) -> None:
    explorer = Explorer(seed)
    explorer.run()
    assert explorer.cut_count > 200 and explorer.durable_count > 20


def test_a_log_that_does_not_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordedFile, "sync", lambda self: None)
    with pytest.raises(Exception, match=r"damaged|assert|expected"):
        Explorer(1).run()
