"""A workload on the message store, and the check that queues and keys say what the log says.

With a second thread flushes and syncs run there, while messages are sent here.
"""

import random
from collections.abc import Callable

from ledgermq.commitlog.consume_queue import QueueUnit
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.protocol.record import decode_record
from tests.fault.second_thread import SecondThread
from tests.unit.commitlog.single_member import Broker, clean, message

SIZES = {
    "segment_bytes": 8192,
    "queue_segment_bytes": 400,
    "index_slot_count": 20,
    "index_entry_count": 40,
    "open_files_max": 5,
}
ROOT = "/store"


def open_broker(disk: FileSystem) -> Broker:
    """Opens the store on a disk; it does not lead yet."""
    return Broker(ROOT, file_system=disk, **SIZES)


class MessageWorkload:
    """Drives one broker and knows the number of the next message."""

    def __init__(self, disk: FileSystem, seed: int, second: SecondThread | None = None) -> None:
        """`second` runs flushes and syncs; None: this thread does."""
        self.disk = disk
        self.second = second
        self.rng = random.Random(seed)
        self.number = 0
        self.broker = None
        # On disk for certain.
        self.synced_index = -1

    def open(self) -> None:
        self.broker = open_broker(self.disk)
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
        self._run(job.run)
        self.broker.store.end_flush(job)

    def sync(self) -> None:
        last_index = self.broker.ledger_store.last_index
        job = self.broker.ledger_store.begin_sync()
        if job is not None:
            self._run(job.run)
            job.end()
        self.synced_index = last_index

    def _run(self, run: Callable[[], None]) -> None:
        if self.second is None:
            run()
            return
        self.second.begin(run)
        while self.second.is_busy:
            if self.rng.random() < 0.2:
                self.send()
            if self.second.is_busy:
                self.second.go_on()

    def clean(self) -> None:
        self.broker.commit()
        self.broker.ledger_store.sync()
        clean(self.broker.store, 0, 0, 99)

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


def check_queues(broker) -> None:
    """Compares queues and keys with the log."""
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
