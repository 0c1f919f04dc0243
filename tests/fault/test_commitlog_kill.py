"""Real kills of a writing process: queues without holes, and nothing acknowledged is lost."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from ledgermq.protocol.record import decode_record
from tests.unit.commitlog.single_member import Broker
from tests.unit.commitlog.test_dispatch import files_of

SIZES = {
    "segment_bytes": 1 << 20,
    "queue_segment_bytes": 20_000,
    "index_slot_count": 1000,
    "index_entry_count": 5000,
}


def write_and_kill(root, seed: int, turns: int) -> int:
    """Let a process write some turns, kill it; returns how many messages it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fault.commitlog_writer", str(root), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
    )
    acknowledged = 0
    assert process.stdout is not None
    with process.stdout, process:
        for _ in range(turns):
            line = process.stdout.readline()
            if not line:
                raise AssertionError("the writer died by itself")
            acknowledged = int(line.split()[1])
        os.kill(process.pid, signal.SIGKILL)
        for line in process.stdout:
            if line.endswith("\n"):
                acknowledged = int(line.split()[1])
    return acknowledged


def bodies_of(broker) -> list[int]:
    """Numbers of all messages, read through the queues; offsets must have no hole."""
    numbers = []
    for topic in ("T0", "T1"):
        for queue_id in range(4):
            offset = 0
            while True:
                result = broker.pull(topic, queue_id, offset)
                if not result.parts:
                    break
                for part in result.parts:
                    record = decode_record(part)
                    assert record.queue_offset == offset
                    offset += 1
                    numbers.append(int(record.body.split()[0]))
            assert offset == broker.store.max_offset(topic, queue_id)
    return sorted(numbers)


@pytest.mark.parametrize("seed", range(3))
def test_killed_writer_loses_nothing_it_acknowledged(tmp_path, seed):
    for kill in range(3):
        acknowledged = write_and_kill(tmp_path, 10 * seed + kill, 20 + 37 * seed + 11 * kill)
        # The committed index on disk may be an old one; a leader finds out by committing.
        broker = Broker(tmp_path, **SIZES).lead()
        numbers = bodies_of(broker)
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= acknowledged
        for number in numbers[:: max(1, len(numbers) // 50)]:
            found = broker.store.query(f"T{number % 2}", f"{number:032X}", 9, 0, 1 << 60)
            assert [int(decode_record(part).body.split()[0]) for part in found.parts] == [number]
        broker.kill()


def test_what_a_kill_left_equals_what_the_log_gives(tmp_path):
    write_and_kill(tmp_path, 99, 60)
    Broker(tmp_path, **SIZES).lead().close()
    recovered = files_of(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "index")
    Broker(tmp_path, **SIZES).close()
    assert files_of(tmp_path) == recovered
