"""A workload on the file store that knows what the store must hold, whenever it is stopped.

With a second thread it keeps to the contract of disk jobs: begun and ended here, run there, while
appends go on that need no new file. Without one each job is done at once.
"""

import random
from collections.abc import Callable

from crc32c import crc32c

from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.entry import EntryCodec, EntryId, EntrySlice, count_in_segment, place
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import FileSystem
from tests.fault.second_thread import SecondThread

SEGMENT_BYTES = 4096
INDEX_SEGMENT_BYTES = 32 * 40
DIRECTORY = "/store/dledger-n0"


def make_store(disk: FileSystem, root: str = "") -> DLedgerMmapFileStore:
    return DLedgerMmapFileStore(
        disk, root + DIRECTORY, SEGMENT_BYTES, INDEX_SEGMENT_BYTES, EntryCodec(crc32c)
    )


class Workload:
    """Drives a store and knows what it must hold."""

    def __init__(
        self, disk: FileSystem, seed: int, second: SecondThread | None = None, root: str = ""
    ) -> None:
        """Makes a store that is not open yet.

        Args:
            disk: holds it.
            seed: of all that is drawn.
            second: runs the disk jobs; None: this thread does.
            root: where the store's directory is.
        """
        self.disk = disk
        self.root = root
        self.second = second
        self.rng = random.Random(seed)
        self.codec = EntryCodec(crc32c)
        self.store = make_store(disk, root)
        self.term = 1
        # Every entry ever written at an index, the newest last; and how far the log went.
        self.written: dict[int, list[bytes]] = {}
        self.last_index = -1
        # On disk for certain.
        self.synced_index = -1
        self.first_index = 0
        # Appends while a job ran.
        self.beside_count = 0

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
        self._append(self._make_room)
        if self.second is not None:
            self._do(self.store.begin_ahead())

    def _append(self, has_room: Callable[[EntrySlice], bool]) -> None:
        """Appends some entries, as far as there is room for them."""
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
            if not has_room(entries):
                return
            ends = [*entries.starts[1:], len(entries.data)]
            for i, (start, end) in enumerate(zip(entries.starts, ends, strict=True)):
                history = self.written.setdefault(entries.first_index + i, [])
                history.append(bytes(entries.data[start:end]))
            store.append(entries)
            self.last_index = store.last_index

    def _make_room(self, entries: EntrySlice) -> bool:
        if self.second is not None:
            self._do(self.store.begin_room([entries]), may_append=False)
        return True

    def _do(self, job: DiskJob | None, *, may_append: bool = True) -> None:
        """Begun by the caller; run by the second thread, ended here, and so what follows from it.

        Args:
            job: None: there is nothing to do.
            may_append: whether entries may be appended while it runs.
        """
        while job is not None:
            if self.second is None:
                job.run()
            else:
                self._run_beside(self.second, job, may_append)
            job = job.end()

    def _run_beside(self, second: SecondThread, job: DiskJob, may_append: bool) -> None:
        second.begin(job.run)
        while second.is_busy:
            if may_append and self.rng.random() < 0.5:
                self._append(lambda entries: self.store.has_room([entries]))
                self.beside_count += 1
            if second.is_busy:
                second.go_on()

    def sync(self) -> None:
        """Syncs, and mostly again when entries came meanwhile: somebody waits for them."""
        while True:
            last_index = self.last_index
            self._do(self.store.begin_sync())
            self.synced_index = last_index
            if last_index == self.last_index or self.rng.random() < 0.3:
                return

    def truncate(self) -> None:
        committed = self.store.read_checkpoint()
        lowest = max(committed + 1, self.store.first_index)
        if lowest > self.last_index:
            return
        index = self.rng.randint(lowest, self.last_index)
        self.synced_index = min(self.synced_index, index - 1)
        self._do(self.store.begin_truncate(index), may_append=False)
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
                self._do(self.store.begin_drop(self.store.position_at(index)))
                self.first_index = self.store.first_index

    def reset(self) -> None:
        index, position = self.last_index + 5, self.store.end_position + 700
        self.synced_index = -1
        self._do(self.store.begin_reset(index, position), may_append=False)
        self.written.clear()
        self.first_index, self.last_index, self.synced_index = index, index - 1, index - 1

    def note(self) -> None:
        self.store.write_checkpoint(max(self.synced_index, self.store.read_checkpoint()))

    def reopen(self) -> None:
        self.store.close()
        self.synced_index = self.last_index
        self.store = make_store(self.disk, self.root)
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
                assert bytes(run.data[start:end]) in self.written.get(index + i, ())
                assert store.term_at(index + i) == run.term_at(index + i)
            previous, chain, index = run.last_id, run.last_chain_crc, run.last_index + 1
        if store.last_index >= store.first_index:
            assert (store.last_term, store.last_chain_crc) == (previous and previous.term, chain)
        return store
