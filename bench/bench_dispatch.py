"""What a message costs between the ledger and the consumer: append, dispatch, recovery, read.

Prints one line each: microseconds for one message of 1 KiB with a tag and a unique id, four queues,
and the ratio to one copy of its bytes plus its CRC, measured in the same run.
"""

import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence

from ledgermq.commitlog import (
    AppendMessage,
    MessageStore,
    StoreConfig,
    opening_record,
    read_run,
)
from ledgermq.dledger.entry import EntryCodec, EntrySlice, count_in_segment, place
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.message_id import UniqueIds
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET

_HOST = (bytes((127, 0, 0, 1)), 10911)
_BODY = bytes(range(256)) * 4
_TURN = 64
_SEGMENT_BYTES = 256 << 20


class _Ledger:
    """One member without Raft."""

    def __init__(self, root: str) -> None:
        codec = EntryCodec(crc32c, PHYSICAL_OFFSET_OFFSET)
        self.codec = codec
        self.store = DLedgerMmapFileStore(
            RealFileSystem(), f"{root}/dledger-n0", _SEGMENT_BYTES, 32 << 20, codec
        )
        self.store.open()
        self.commit_index = -1
        self.propose_seconds = 0.0

    def propose(self, bodies: Sequence[bytes]) -> list[EntrySlice]:
        start = time.process_time()
        store, slices, left = self.store, [], list(bodies)
        while left:
            position = place(store.end_position, len(left[0]) + 48, store.segment_bytes)
            count = count_in_segment(left, position, store.segment_bytes)
            entries = self.codec.encode(
                left[:count],
                first_index=store.last_index + 1,
                term=1,
                position=position,
                previous_chain_crc=store.last_chain_crc,
            )
            store.append(entries)
            slices.append(entries)
            del left[:count]
        self.propose_seconds += time.process_time() - start
        return slices


def _now_ms() -> int:
    return int(time.time() * 1000)


def _open(root: str, ledger: _Ledger) -> MessageStore:
    config = StoreConfig(root=root)
    data = ledger.store.data
    store = MessageStore(
        config,
        ledger.store,
        RealFileSystem(),
        _now_ms,
        data.read,
        segment_at=data.segment_at,
        mode=data.mode,
    )
    store.open()
    store.attach(ledger)
    return store


def _turns(count: int) -> list[list[AppendMessage]]:
    ids = UniqueIds(_HOST[0], 7, 9)
    return [
        [
            AppendMessage(
                "TopicTest",
                i % 4,
                0,
                0,
                1700000000000,
                _HOST,
                _HOST,
                0,
                0,
                _BODY,
                f"UNIQ_KEY\x01{ids.create(_now_ms())}\x02TAGS\x01TagA\x02CLUSTER\x01c".encode(),
            )
            for i in range(_TURN)
        ]
        for _ in range(count // _TURN)
    ]


def _timed(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def main(argv: Sequence[str]) -> None:
    """Measure and print; an argument is the number of messages."""
    count = int(argv[0]) if argv else 100_000
    root = tempfile.mkdtemp(prefix="bench-dispatch-")
    try:
        _measure(root, count)
    finally:
        shutil.rmtree(root)


def _measure(root: str, count: int) -> None:
    copy_seconds = _timed(lambda: [(zlib.crc32(_BODY), bytearray(_BODY)) for _ in range(20_000)])
    limit = copy_seconds / 20_000 * 1e6

    def show(name: str, seconds: float, messages: int = count) -> None:
        cost = seconds / messages * 1e6
        print(f"dispatch: {name:<46} {cost:6.2f} us  {cost / limit:5.1f} of the limit")

    print(f"dispatch: {'copy and crc (limit)':<46} {limit:6.2f} us")
    ledger = _Ledger(root)
    store = _open(root, ledger)
    ledger.propose([opening_record(1, _HOST, _now_ms())])
    store.committed(0, 1)
    store.become_leader()
    turns, append, dispatch = _turns(count), 0.0, 0.0
    ledger.propose_seconds = 0.0
    for turn in turns:
        start = time.process_time()
        results = store.append(turn)
        middle = time.process_time()
        store.committed(store.dispatched_index + 1, results[-1].index + 1)
        append += middle - start
        dispatch += time.process_time() - middle
    show("append with record, without the ledger", append - ledger.propose_seconds)
    show("ledger alone (entry head, two CRC-32C, write)", ledger.propose_seconds)
    show("dispatch on the leader, turns of 64", dispatch)
    offsets = range(0, store.max_offset("TopicTest", 0) - 32, 32)

    def read() -> None:
        for offset in offsets:
            store.lend_message("TopicTest", 0, offset, 32, None)

    show("read, 32 a pull", _timed(read), 32 * len(offsets))
    queue = store.find_queue("TopicTest", 0)
    assert queue is not None

    def read_into_answers() -> None:
        for offset in offsets:
            run = store.find_run(queue, offset, 32)
            assert run is not None and read_run(b"head", run) is not None

    show("read, 32 a pull, into the answers", _timed(read_into_answers), 32 * len(offsets))
    store.close()
    _measure_follower(root, ledger, show)


def _measure_follower(root: str, ledger: _Ledger, show: Callable[..., None]) -> None:
    last_index = ledger.store.last_index
    for part in ("consumequeue", "index"):
        shutil.rmtree(f"{root}/{part}")
    RealFileSystem().remove(f"{root}/dispatch.checkpoint")
    store = _open(root, ledger)
    seconds = _timed(
        lambda: [
            store.committed(first, min(first + _TURN, last_index + 1))
            for first in range(0, last_index + 1, _TURN)
        ]
    )
    show("dispatch on a follower, turns of 64", seconds)
    store.close()
    ledger.store.write_checkpoint(last_index)
    RealFileSystem().remove(f"{root}/dispatch.checkpoint")
    seconds = _timed(lambda: _open(root, ledger))
    show("recovery: everything from the log", seconds)
    ledger.store.close()


if __name__ == "__main__":
    main(sys.argv[1:])
