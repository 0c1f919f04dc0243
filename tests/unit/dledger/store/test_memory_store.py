"""The memory store against the file store: the same calls give the same log."""

import random
from pathlib import Path

from crc32c import crc32c

from ledgermq.dledger.entry import EntryCodec, count_in_segment, place
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore

SEGMENT_BYTES = 8192


def assert_equal(one: LedgerStore, other: LedgerStore) -> None:
    for name in (
        "first_index",
        "last_index",
        "last_term",
        "last_chain_crc",
        "first_position",
        "end_position",
    ):
        assert getattr(one, name) == getattr(other, name), name
    for index in range(one.first_index, one.last_index + 1):
        assert one.term_at(index) == other.term_at(index)
        assert one.head_at(index) == other.head_at(index)
        run, same = one.read(index, 2000), other.read(index, 2000)
        count = min(run.count, same.count)
        assert run.take(count, 1 << 20).data == same.take(count, 1 << 20).data


def append_some(stores: list[LedgerStore], rng: random.Random, term: int) -> None:
    bodies = [rng.randbytes(rng.randrange(900)) for _ in range(rng.randint(1, 9))]
    while bodies:
        last = stores[0]
        position = place(last.end_position, len(bodies[0]) + 48, SEGMENT_BYTES)
        count = count_in_segment(bodies, position, SEGMENT_BYTES)
        entries = EntryCodec(crc32c).encode(
            bodies[:count],
            first_index=last.last_index + 1,
            term=term,
            position=position,
            previous_chain_crc=last.last_chain_crc,
        )
        for store in stores:
            store.append(entries)
        bodies = bodies[count:]


def test_both_stores_behave_alike(tmp_path: Path) -> None:
    rng = random.Random(20)
    files = DLedgerMmapFileStore(
        RealFileSystem(), str(tmp_path / "n0"), SEGMENT_BYTES, 32 * 64, EntryCodec(crc32c)
    )
    files.open()
    memory = DLedgerMemoryStore(SEGMENT_BYTES)
    stores: list[LedgerStore] = [files, memory]
    for term in range(1, 60):
        append_some(stores, rng, term)
        draw = rng.random()
        if draw < 0.3:
            index = rng.randint(files.first_index, files.last_index)
            for store in stores:
                store.truncate(index)
        elif draw < 0.5:
            position = rng.randint(0, files.end_position)
            assert files.drop_before(position) == memory.drop_before(position)
        elif draw < 0.55:
            index, position = files.last_index + 9, files.end_position + rng.randrange(5000)
            for store in stores:
                store.reset(index, position)
        assert_equal(files, memory)
    files.close()
