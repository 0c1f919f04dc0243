"""What the append road costs: bodies -> entries -> mapped files, and the follower's half of it.

    python -m bench.bench_append [DIRECTORY]

Each line: processor microseconds an entry, entries/s, MB/s, and the ratio to a copy of the same
bytes into a mapping on the same disk, measured in the same run (page faults of fresh pages included
in both).
Then the opening of a store of one full segment, and a sync.
"""

import mmap
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ledgermq.dledger.entry import EntryCodec, EntryId, EntrySlice, place
from ledgermq.dledger.store import INDEX_SEGMENT_BYTES, DLedgerMmapFileStore, RealFileSystem
from ledgermq.protocol.checksum import crc32c

_SEGMENT_BYTES = 1 << 30
_BATCH = 64
_ROUNDS = 1_500
_BODY_BYTES = 1_152
_STAMP_OFFSET = 28


def make_store(directory: str) -> DLedgerMmapFileStore:
    """A store with upstream's sizes."""
    codec = EntryCodec(crc32c, _STAMP_OFFSET)
    return DLedgerMmapFileStore(
        RealFileSystem(), directory, _SEGMENT_BYTES, INDEX_SEGMENT_BYTES, codec
    )


def lead(store: DLedgerMmapFileStore, codec: EntryCodec, bodies: list[bytes]) -> EntrySlice:
    """One turn of a leader."""
    entries = codec.encode(
        bodies,
        first_index=store.last_index + 1,
        term=1,
        position=place(store.end_position, len(bodies[0]) + 48, _SEGMENT_BYTES),
        previous_chain_crc=store.last_chain_crc,
    )
    store.append(entries)
    return entries


def follow(store: DLedgerMmapFileStore, codec: EntryCodec, entries: EntrySlice) -> None:
    """One turn of a follower that got these bytes."""
    previous = EntryId(store.last_term, store.last_index) if store.last_index >= 0 else None
    store.append(
        codec.parse(
            entries.data,
            position=entries.position,
            previous=previous,
            previous_chain_crc=store.last_chain_crc,
        )
    )


def encode(codec: EntryCodec, bodies: list[bytes]) -> EntrySlice:
    """Bodies to entries, nothing written."""
    return codec.encode(bodies, first_index=0, term=1, position=0, previous_chain_crc=0)


def parse(codec: EntryCodec, entries: EntrySlice) -> EntrySlice:
    """Bytes to checked entries, nothing written."""
    return codec.parse(entries.data, position=entries.position, previous=None, previous_chain_crc=0)


@contextmanager
def scratch(parent: str | None) -> Iterator[str]:
    """A directory that is removed afterwards."""
    directory = tempfile.mkdtemp(prefix="bench-append-", dir=parent)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def microseconds(turn: Callable[[int], object]) -> float:
    """Processor time of a run of turns, for one entry."""
    start = time.process_time()
    for number in range(_ROUNDS):
        turn(number)
    return (time.process_time() - start) / _ROUNDS / _BATCH * 1e6


def show(name: str, cost_us: float, limit_us: float) -> None:
    """One line."""
    mb = (_BODY_BYTES + 48) / cost_us
    print(
        f"{name:34s}{cost_us:8.2f} us {1e6 / cost_us:12,.0f} entries/s {mb:8.0f} MB/s"
        f"   {cost_us / limit_us:5.1f} x copy"
    )


def copy_cost(directory: str, data: bytes) -> float:
    """Copying runs into a fresh mapping, and nothing else."""
    size = len(data)
    with open(os.path.join(directory, "copy"), "w+b") as file:
        os.posix_fallocate(file.fileno(), 0, size * _ROUNDS)
        with mmap.mmap(file.fileno(), size * _ROUNDS) as mapping, memoryview(mapping) as view:

            def copy(number: int) -> None:
                view[number * size : (number + 1) * size] = data

            return microseconds(copy)


def main() -> None:
    """Measure and print."""
    bodies = [os.urandom(_BODY_BYTES) for _ in range(_BATCH)]
    codec = EntryCodec(crc32c, _STAMP_OFFSET)
    with scratch(sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        leader = make_store(os.path.join(directory, "n0"))
        follower = make_store(os.path.join(directory, "n1"))
        leader.open()
        follower.open()
        sample = lead(leader, codec, bodies)
        follow(follower, codec, sample)
        limit = copy_cost(directory, bytes(sample.data))
        show("copy into a mapping", limit, limit)
        show("leader: encode + append", microseconds(lambda _: lead(leader, codec, bodies)), limit)
        read = leader.read
        cost = microseconds(
            lambda number: follow(follower, codec, read(_BATCH * (number + 1), _BATCH * 1_200))
        )
        show("follower: read + parse + append", cost, limit)
        show("  encode alone", microseconds(lambda _: encode(codec, bodies)), limit)
        show("  parse alone", microseconds(lambda _: parse(codec, sample)), limit)
        cost = microseconds(lambda number: read(_BATCH * (number + 1), _BATCH * 1_200))
        show("  read alone", cost, limit)
        open_full_segment(leader, codec, bodies)
        follower.close()


def open_full_segment(store: DLedgerMmapFileStore, codec: EntryCodec, bodies: list[bytes]) -> None:
    """Fills the segment, syncs it, and opens the store as after a kill."""
    while store.end_position < _SEGMENT_BYTES - len(bodies) * (_BODY_BYTES + 48) - 8:
        lead(store, codec, bodies)
    start = time.perf_counter()
    store.write_checkpoint(store.last_index)
    store.sync()
    print(f"sync of {store.end_position >> 20} MiB: {time.perf_counter() - start:.2f} s")
    for attempt in ("first", "second"):
        start = time.perf_counter()
        again = make_store(store.directory)
        report = again.open()
        print(
            f"opening after a kill, {attempt}: {time.perf_counter() - start:.2f} s,"
            f" {report.last_index - report.walked_from_index + 1:,} entries walked"
        )


if __name__ == "__main__":
    main()
