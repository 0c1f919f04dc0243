"""A workload on the file store that knows what the store must hold, whenever it is stopped."""

import random

from crc32c import crc32c

from ledgermq.dledger.entry import EntryCodec, EntryId, count_in_segment, place
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import FileSystem

SEGMENT_BYTES = 4096
INDEX_SEGMENT_BYTES = 32 * 40
DIRECTORY = "/store/dledger-n0"


def make_store(disk: FileSystem) -> DLedgerMmapFileStore:
    return DLedgerMmapFileStore(
        disk, DIRECTORY, SEGMENT_BYTES, INDEX_SEGMENT_BYTES, EntryCodec(crc32c)
    )


class Workload:
    """Drives a store and knows what it must hold."""

    def __init__(self, disk: FileSystem, seed: int) -> None:
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
        # A sync runs; in a program entries go on being appended then.
        self.is_syncing = False

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
        last_index = self.last_index
        self.is_syncing = True
        self.store.sync()
        self.is_syncing = False
        self.synced_index = last_index

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

    def check(self, disk: FileSystem | None = None) -> DLedgerMmapFileStore:
        """The store opens, and holds what it must; returns it."""
        store = make_store(disk or self.disk)
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
        return store
