"""The message store, stopped before any operation of a workload, by a kill and by a power cut.

After each stop the store opens again (and is stopped while it opens, too), takes up the lead, and
must then say exactly what the log says: every unit of every queue, in order, without a hole, and
every key. The disk keeps of unsynced pages and names whatever the draw leaves.
"""

import random

import pytest

from ledgermq.commitlog.consume_queue import QueueUnit
from ledgermq.protocol.record import decode_record
from tests.fault.lossy_disk import LossyDisk, Stopped
from tests.unit.commitlog.single_member import Broker, message

SIZES = {
    "segment_bytes": 8192,
    "queue_segment_bytes": 400,
    "index_slot_count": 20,
    "index_entry_count": 40,
    "open_files_max": 5,
}
ROOT = "/store"


class Workload:
    """Drives one broker and knows the number of the next message."""

    def __init__(self, disk: LossyDisk, seed: int) -> None:
        self.disk = disk
        self.rng = random.Random(seed)
        self.number = 0
        self.broker = None

    def open(self) -> None:
        self.broker = Broker(ROOT, file_system=self.disk, **SIZES)
        self.broker.lead()

    def run(self, count: int) -> None:
        self.open()
        steps = [self.send, self.commit_some, self.flush, self.sync, self.reopen, self.clean]
        for _ in range(count):
            self.rng.choices(steps, [10, 3, 3, 3, 0.5, 0.5])[0]()

    def send(self) -> None:
        turn = []
        for _ in range(self.rng.randrange(1, 8)):
            key = b"UNIQ_KEY\x01%032X\x02KEYS\x01k%d" % (self.number, self.number)
            topic, queue_id = f"T{self.rng.randrange(2)}", self.rng.randrange(2)
            flag = self.rng.choice([0, 0, 0, 0x8, 0x4])
            body = b"%d " % self.number + bytes(self.rng.randrange(200))
            turn.append(message(body, topic, queue_id, key, sys_flag=flag))
            self.number += 1
        self.broker.send(*turn, commit=self.rng.random() < 0.5)

    def commit_some(self) -> None:
        first = self.broker.ledger.commit_index + 1
        last = self.broker.ledger_store.last_index
        if first <= last:
            self.broker.commit(self.rng.randrange(first, last + 1) + 1)

    def flush(self) -> None:
        job = self.broker.store.begin_flush(0)
        if self.rng.random() < 0.5:
            self.send()
        job.run()
        self.broker.store.end_flush(job)

    def sync(self) -> None:
        self.broker.ledger_store.sync()

    def clean(self) -> None:
        self.broker.commit()
        self.broker.ledger_store.sync()
        self.broker.store.clean(0, 0, 99)

    def reopen(self) -> None:
        self.broker.commit()
        self.broker.close()
        self.open()


def expected_of(broker):
    """What queues and keys must be, from the log alone."""
    queues: dict[tuple[str, int], dict[int, QueueUnit]] = {}
    keys: dict[str, tuple[str, int]] = {}
    ledger = broker.ledger_store
    for index in range(ledger.first_index, ledger.last_index + 1):
        (body,) = ledger.read(index, 1).bodies()
        record = decode_record(bytes(body))
        place = ledger.position_at(index) + 48
        assert record.physical_offset == place
        if not record.sys_flag & 0x4:
            unit = QueueUnit(place, record.size_bytes, 0)
            queues.setdefault((record.topic, record.queue_id), {})[record.queue_offset] = unit
        if record.properties:
            keys[f"k{record.body.split()[0].decode()}"] = (record.topic, place)
    return queues, keys


def check(broker) -> None:
    queues, keys = expected_of(broker)
    store = broker.store
    for (topic, queue_id), units in queues.items():
        queue = store._queues.find(topic, queue_id)
        assert (queue.min_offset, queue.max_offset) == (min(units), max(units) + 1)
        assert {n: queue.unit(n) for n in range(queue.min_offset, queue.max_offset)} == units
    for topic in ("T0", "T1"):
        for queue_id in store.queues(topic):
            if (topic, queue_id) not in queues:
                end = store.max_offset(topic, queue_id)
                assert store.min_offset(topic, queue_id) == end
    for key, (topic, place) in keys.items():
        (found,) = store.query(topic, key, 9, 0, 1 << 60).parts
        assert decode_record(found).physical_offset == place


def stop_and_recover(seed: int, stop_at: int, *, power: bool) -> None:
    disk = LossyDisk()
    rng = random.Random(seed * 1000 + stop_at)
    workload = Workload(disk, seed)
    disk.stop_at = stop_at
    try:
        workload.run(60)
    except Stopped:
        pass
    for _ in range(3):
        if power:
            disk.cut_power(rng)
        # The first openings are stopped somewhere, too.
        disk.stop_at = len(disk.steps) + rng.randrange(1, 25)
        try:
            workload.open()
        except Stopped:
            continue
        break
    if power:
        disk.cut_power(rng)
    disk.stop_at = None
    workload.open()
    check(workload.broker)
    workload.broker.send(message(b"%d after" % workload.number, "T0", 0))
    check(workload.broker)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_store_says_what_the_log_says_after_a_stop_anywhere(seed, power):
    disk = LossyDisk()
    Workload(disk, seed).run(60)
    rng = random.Random(seed)
    for stop_at in sorted(rng.sample(range(1, len(disk.steps)), 25)):
        try:
            stop_and_recover(seed, stop_at, power=power)
        except BaseException as error:
            error.add_note(f"replay: stop_and_recover({seed}, {stop_at}, power={power})")
            raise
