"""A program to be killed: appends to a store for ever and prints what it synced.

    python -m tests.fault.store_writer DIRECTORY SEED

Prints "ready", then the last index after each sync. A body is made from its index and the seed, so
that who reads the store afterwards can tell whether it is right.
"""

import random
import sys

from crc32c import crc32c

from ledgermq.dledger.entry import EntryCodec, count_in_segment, place
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem

SEGMENT_BYTES = 1 << 16
INDEX_SEGMENT_BYTES = 32 * 200


def make_store(directory: str) -> DLedgerMmapFileStore:
    """The store that writer and reader agree on."""
    return DLedgerMmapFileStore(
        RealFileSystem(), directory, SEGMENT_BYTES, INDEX_SEGMENT_BYTES, EntryCodec(crc32c)
    )


def body_of(index: int, seed: int) -> bytes:
    """What entry `index` holds."""
    draw = random.Random(index * 1009 + seed)
    return draw.randbytes(draw.randrange(3000))


def main() -> None:
    """Writes until it is killed."""
    directory, seed = sys.argv[1], int(sys.argv[2])
    store = make_store(directory)
    store.open()
    codec = EntryCodec(crc32c)
    sys.stdout.write("ready\n")
    while True:
        first = store.last_index + 1
        bodies = [body_of(index, seed) for index in range(first, first + 8)]
        position = place(store.end_position, len(bodies[0]) + 48, SEGMENT_BYTES)
        count = count_in_segment(bodies, position, SEGMENT_BYTES)
        entries = codec.encode(
            bodies[:count],
            first_index=first,
            term=1,
            position=position,
            previous_chain_crc=store.last_chain_crc,
        )
        store.append(entries)
        if first % 3 == 0:
            store.write_checkpoint(store.last_index)
            store.sync()
            sys.stdout.write(f"{store.last_index}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
