"""The stores of the ledger: bytes on disk, byte for byte as upstream's DLedger lays them out.

DLedgerMmapFileStore keeps entries and index in segments, DLedgerMemoryStore keeps them in
memory; both are LedgerStores. VoteFile keeps term and vote. Segment and Segments serve other logs
of fixed-size files as well. All of them reach the disk through FileSystem. Read file_store.py
first, then recovery.py.
"""

from ledgermq.dledger.store.entry_index import INDEX_SEGMENT_BYTES
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import FileSystem, RealFileSystem
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore
from ledgermq.dledger.store.opening import RecoveryReport
from ledgermq.dledger.store.segment import Segment
from ledgermq.dledger.store.segments import Segments
from ledgermq.dledger.store.vote_file import VoteFile

__all__ = [
    "INDEX_SEGMENT_BYTES",
    "DLedgerMemoryStore",
    "DLedgerMmapFileStore",
    "FileSystem",
    "RealFileSystem",
    "RecoveryReport",
    "Segment",
    "Segments",
    "VoteFile",
]
