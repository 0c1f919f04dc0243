"""The file store, stopped before each operation of a workload, by a kill and by a power cut.

After each stop the store opens again and holds a prefix of what was written: nothing that was
synced is missing, nothing comes back that a returned truncation had dropped, and each entry is the
one that was written. Opening is stopped at each of its operations too.
"""

import random
from collections.abc import Callable

import pytest
from crc32c import crc32c

from ledgermq.dledger.entry import EntryCodec, EntryId, count_in_segment, place
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from tests.fault.lossy_disk import LossyDisk, Stopped

SEGMENT_BYTES = 4096
INDEX_SEGMENT_BYTES = 32 * 40
DIRECTORY = "/store/dledger-n0"


def make_store(disk: LossyDisk) -> DLedgerMmapFileStore:
    return DLedgerMmapFileStore(
        disk, DIRECTORY, SEGMENT_BYTES, INDEX_SEGMENT_BYTES, EntryCodec(crc32c)
    )


class Workload:
    """Drives a store and knows what it must hold."""

    def __init__(self, disk: LossyDisk, seed: int) -> None:
        self.disk = disk
        self.rng = random.Random(seed)
        self.codec = EntryCodec(crc32c)
        self.store = make_store(disk)
        self.term = 1
        # Every entry ever written at an index, the newest last; and how far the log went.
        self.written: dict[int, list[bytes]] = {}
        self.last_index = -1
        # On disk for certain.
        self.synced_index = -1
        self.first_index = 0

    def run(self, count: int) -> None:
        self.store.open()
        for _ in range(count):
            step = self.rng.choices(
                [self.append, self.sync, self.truncate, self.drop, self.note, self.reopen]
                + [self.reset],
                [10, 4, 2, 1, 2, 1, 0.3],
            )[0]
            step()

    def append(self) -> None:
        bodies = [self.rng.randbytes(self.rng.randrange(500)) for _ in range(4)]
        store = self.store
        while bodies:
            position = place(store.end_position, len(bodies[0]) + 48, SEGMENT_BYTES)
            count = count_in_segment(bodies, position, SEGMENT_BYTES)
            entries = self.codec.encode(
                bodies[:count],
                first_index=store.last_index + 1,
                term=self.term,
                position=position,
                previous_chain_crc=store.last_chain_crc,
            )
            bodies = bodies[count:]
            ends = [*entries.starts[1:], len(entries.data)]
            for i, (start, end) in enumerate(zip(entries.starts, ends, strict=True)):
                history = self.written.setdefault(entries.first_index + i, [])
                history.append(bytes(entries.data[start:end]))
            store.append(entries)
            self.last_index = store.last_index

    def sync(self) -> None:
        self.store.sync()
        self.synced_index = self.last_index

    def truncate(self) -> None:
        committed = self.store.read_checkpoint()
        lowest = max(committed + 1, self.store.first_index)
        if lowest > self.last_index:
            return
        index = self.rng.randint(lowest, self.last_index)
        self.synced_index = min(self.synced_index, index - 1)
        self.store.truncate(index)
        self.last_index = index - 1
        # What was cut must not come back.
        for cut in [cut for cut in self.written if cut >= index]:
            del self.written[cut]
        self.term += 1

    def drop(self) -> None:
        committed = self.store.read_checkpoint()
        if committed > self.store.first_index:
            index = min(committed, self.last_index)
            if index >= self.store.first_index:
                self.store.drop_before(self.store.position_at(index))
                self.first_index = self.store.first_index

    def reset(self) -> None:
        index, position = self.last_index + 5, self.store.end_position + 700
        self.synced_index = -1
        self.store.reset(index, position)
        self.written.clear()
        self.first_index, self.last_index, self.synced_index = index, index - 1, index - 1

    def note(self) -> None:
        self.store.write_checkpoint(max(self.synced_index, self.store.read_checkpoint()))

    def reopen(self) -> None:
        self.store.close()
        self.synced_index = self.last_index
        self.store = make_store(self.disk)
        self.store.open()

    def check(self) -> None:
        """The store opens, and holds what it must."""
        store = make_store(self.disk)
        store.open()
        assert store.first_index >= self.first_index
        assert store.last_index >= self.synced_index
        previous: EntryId | None = None
        chain, index = 0, store.first_index
        while index <= store.last_index:
            run = store.read(index, 10_000)
            run = EntryCodec(crc32c).parse(
                run.data, position=run.position, previous=previous, previous_chain_crc=chain
            )
            for i, start in enumerate(run.starts):
                end = run.starts[i + 1] if i + 1 < run.count else len(run.data)
                assert bytes(run.data[start:end]) in self.written[index + i]
                assert store.term_at(index + i) == run.term_at(index + i)
            previous, chain, index = run.last_id, run.last_chain_crc, run.last_index + 1
        if store.last_index >= store.first_index:
            assert (store.last_term, store.last_chain_crc) == (previous and previous.term, chain)


Crash = Callable[[LossyDisk, random.Random], None]


def kill(disk: LossyDisk, rng: random.Random) -> None:
    """The page cache stays."""


def cut_power(disk: LossyDisk, rng: random.Random) -> None:
    disk.cut_power(rng)


@pytest.mark.parametrize("crash", [kill, cut_power])
@pytest.mark.parametrize("seed", range(6))
def test_a_stop_at_any_operation_leaves_a_good_prefix(seed: int, crash: Crash) -> None:
    dry = Workload(LossyDisk(), seed)
    dry.run(40)
    for stop_at in range(len(dry.disk.steps)):
        disk = LossyDisk()
        disk.stop_at = stop_at
        workload = Workload(disk, seed)
        with pytest.raises(Stopped):
            workload.run(40)
        disk.stop_at = None
        crash(disk, random.Random(stop_at))
        workload.check()


@pytest.mark.parametrize("seed", range(4))
def test_a_stop_during_recovery_changes_nothing(seed: int) -> None:
    """The second opening finds what the first one would have, wherever that one stopped."""
    for stop_after in range(12):
        disk = LossyDisk()
        workload = Workload(disk, seed)
        workload.run(30)
        workload.append()
        disk.cut_power(random.Random(seed))
        disk.stop_at = len(disk.steps) + stop_after
        try:
            make_store(disk).open()
        except Stopped:
            disk.cut_power(random.Random(stop_after))
        disk.stop_at = None
        workload.check()


def filled(seed: int = 5) -> Workload:
    workload = Workload(LossyDisk(), seed)
    workload.store.open()
    for _ in range(12):
        workload.append()
    return workload


def test_a_flipped_byte_above_the_durable_mark_is_cut_and_copied_aside() -> None:
    workload = filled()
    workload.sync()
    workload.note()
    workload.sync()
    durable = workload.last_index
    workload.append()
    position = workload.store.position_at(durable + 2)
    flip(workload, position + 60)
    store = make_store(workload.disk)
    report = store.open()
    assert report.last_index == durable + 1
    assert report.cut_reason is not None and "crc" in report.cut_reason
    copy = workload.disk.texts[report.copies[0]]
    assert copy[:4] == b"\0\0\0\1"
    assert store.end_position == position
    assert not any(workload.disk.files[file_of(position)].content[position % SEGMENT_BYTES :])


@pytest.mark.parametrize("part", [0, 9, 20, 30, 44, 60])
def test_a_flipped_byte_below_the_durable_mark_is_damage(part: int) -> None:
    workload = filled()
    workload.note()
    workload.store.close()
    index = workload.last_index - 1
    position = workload.store.position_at(index)
    before = flip(workload, position + part)
    with pytest.raises(CorruptStoreError) as caught:
        make_store(workload.disk).open()
    assert caught.value.path == file_of(position)
    assert caught.value.offset == position % SEGMENT_BYTES
    assert caught.value.index == index
    assert workload.disk.files[file_of(position)].content == before


def test_a_lost_last_segment_is_damage() -> None:
    workload = filled()
    workload.note()
    workload.store.close()
    del workload.disk.files[file_of(workload.store.end_position)]
    with pytest.raises(CorruptStoreError):
        make_store(workload.disk).open()


def test_a_store_without_its_data_is_damage() -> None:
    workload = filled()
    workload.note()
    workload.store.close()
    for path in [path for path in workload.disk.files if "/data/" in path]:
        del workload.disk.files[path]
    with pytest.raises(CorruptStoreError):
        make_store(workload.disk).open()


def test_a_deleted_index_is_made_anew_byte_for_byte() -> None:
    workload = filled()
    workload.store.close()
    files = workload.disk.files
    index = {path: bytes(files[path].content) for path in files if "/index/" in path}
    for path in index:
        del files[path]
    store = make_store(workload.disk)
    report = store.open()
    assert report.rebuilt_units == store.last_index + 1
    assert {path: bytes(files[path].content) for path in files if "/index/" in path} == index


def file_of(position: int) -> str:
    return f"{DIRECTORY}/data/{position - position % SEGMENT_BYTES:020d}"


def flip(workload: Workload, position: int) -> bytes:
    """Changes one byte on the disk; returns what the file holds then."""
    file = workload.disk.files[file_of(position)]
    file.content[position % SEGMENT_BYTES] ^= 0x40
    file.durable = bytes(file.content)
    return file.durable
