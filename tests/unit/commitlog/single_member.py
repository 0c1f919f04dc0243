"""A ledger of one member without Raft, on real files or on any file system: for tests only."""

from collections.abc import Sequence

from ledgermq.commitlog import AppendMessage, MessageStore, StoreConfig, opening_record
from ledgermq.commitlog.retention import CleanDecision
from ledgermq.dledger.disk_job import do_now
from ledgermq.dledger.entry import EntryCodec, EntrySlice, count_in_segment, place
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET

HOST = (bytes((127, 0, 0, 1)), 10911)
START_MS = 1_700_000_000_000


def clean(store: MessageStore, *arguments: int, **indexes: int) -> CleanDecision:
    """Forgets at once what `decide_clean` decides of these arguments."""
    decision = store.decide_clean(*arguments, **indexes)  # type: ignore[arg-type]
    if decision.drop_before:
        do_now(store.begin_drop(decision.drop_before))
    return decision


class SingleMember:
    """Proposes straight into the store; commits when it is told to."""

    def __init__(self, store: DLedgerMmapFileStore, codec: EntryCodec) -> None:
        self.store = store
        self.codec = codec
        self.term = 1
        self.commit_index = -1
        self.refusal: Exception | None = None

    def propose(self, bodies: Sequence[bytes]) -> list[EntrySlice]:
        if self.refusal is not None:
            raise self.refusal
        slices = []
        bodies = list(bodies)
        while bodies:
            store = self.store
            position = place(store.end_position, len(bodies[0]) + 48, store.segment_bytes)
            count = count_in_segment(bodies, position, store.segment_bytes)
            entries = self.codec.encode(
                bodies[:count],
                first_index=store.last_index + 1,
                term=self.term,
                position=position,
                previous_chain_crc=store.last_chain_crc,
            )
            store.append(entries)
            slices.append(entries)
            del bodies[:count]
        return slices


class Broker:
    """A message store on its ledger, with verbs that read like a story."""

    def __init__(
        self,
        root,
        *,
        segment_bytes=1 << 20,
        index_segment_bytes=32 * 1000,
        open_store=True,
        file_system=None,
        **config,
    ):
        self.root = str(root)
        self.now_ms = START_MS
        settings = {
            "queue_segment_bytes": 2000,
            "index_slot_count": 100,
            "index_entry_count": 1000,
        } | config
        self.config = StoreConfig(root=self.root, **settings)
        self.file_system = file_system or RealFileSystem()
        codec = EntryCodec(crc32c, PHYSICAL_OFFSET_OFFSET)
        self.ledger_store = DLedgerMmapFileStore(
            self.file_system, f"{self.root}/dledger-n0", segment_bytes, index_segment_bytes, codec
        )
        self.ledger_store.open()
        self.ledger = SingleMember(self.ledger_store, codec)
        self.store = MessageStore(
            self.config,
            self.ledger_store,
            self.file_system,
            lambda: self.now_ms,
            self.ledger_store.data.read,
            segment_at=self.ledger_store.data.segment_at,
            mode=self.ledger_store.mode,
        )
        self.report = None
        if open_store:
            self.open()

    def open(self):
        self.report = self.store.open()
        self.store.attach(self.ledger)
        self.ledger.commit_index = self.ledger_store.read_checkpoint()
        return self.report

    def lead(self, term=None):
        term = max(1, self.ledger_store.last_term + 1) if term is None else term
        self.ledger.term = term
        last = b""
        if self.ledger_store.last_index >= self.ledger_store.first_index:
            last = self.ledger_store.read(self.ledger_store.last_index, 1).data[48:]
        opened_ms = self.store.next_store_time(last)
        self.ledger.propose([opening_record(term, HOST, opened_ms)])
        self.commit()
        self.store.become_leader()
        return self

    def commit(self, end_index=None):
        end_index = self.ledger_store.last_index + 1 if end_index is None else end_index
        start = self.ledger.commit_index + 1
        self.ledger.commit_index = end_index - 1
        self.ledger_store.write_checkpoint(end_index - 1)
        if end_index > start:
            self.store.committed(start, end_index)

    def send(self, *messages, commit=True):
        results = self.store.append(messages)
        if commit:
            self.commit()
        return results

    def pull(self, topic="TopicTest", queue_id=0, offset=0, count_max=32, matcher=None):
        return self.store.get_message(topic, queue_id, offset, count_max, matcher)

    def close(self):
        self.store.close()
        self.ledger_store.close()

    def kill(self):
        """Leave everything as it stands in the page cache."""
        self.ledger_store.sync()


def message(body=b"body", topic="TopicTest", queue_id=0, properties=b"", **fields):
    """One message with sensible fields."""
    values = {
        "topic": topic,
        "queue_id": queue_id,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": START_MS,
        "born_host": HOST,
        "store_host": HOST,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": body,
        "properties": properties,
    }
    return AppendMessage(**(values | fields))
