"""Broken twins of what stands below and above the core: stores, vote files, and the broker.

See broken_twins.py, which has those of the core.
"""

import contextlib
from dataclasses import fields, replace
from typing import Any

from ledgermq.broker.sends.proposals import Proposals
from ledgermq.broker.storage.flushes import Flushes
from ledgermq.broker.storage.state_loading import LoadRule
from ledgermq.commitlog import reading
from ledgermq.commitlog import store as message_store
from ledgermq.commitlog.message_writer import MessageWriter
from ledgermq.commitlog.queue_offsets import QueueOffsets
from ledgermq.commitlog.recovery import Recovery
from ledgermq.commitlog.rows import RowMaker
from ledgermq.commitlog.segment_ages import SegmentAges
from ledgermq.commitlog.store import MessageStore
from ledgermq.dledger import strangers
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.member_state import MemberState, Role
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.replica.applying import Applying
from ledgermq.dledger.replica.driver import Replica
from ledgermq.dledger.replica.durability import Durability
from ledgermq.dledger.store import opening, recovery
from ledgermq.dledger.store.claims import Claims
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.repair_mark import Repair, RepairMark
from ledgermq.dledger.store.segment import Segment
from ledgermq.dledger.store.segments import Segments
from ledgermq.dledger.store.text_file import format_lines
from ledgermq.dledger.store.vote_file import CURRENT_TERM, VoteFile
from ledgermq.testing.simulation.clock import SimReactor
from tests.simulation.broken_twins import Patch


def ack_before_sync() -> list[Patch]:
    original = Durability.finish

    def finish(self: Any, persist_id: Any, answers: list[Any]) -> None:
        self._finish(None, answers)
        original(self, persist_id, [])

    return [(Durability, "finish", finish)]


def sync_answers_for_all_at_its_end() -> list[Patch]:
    """A sync lets go of what was appended while it ran."""

    def begin(self: Any) -> Any:
        job = self._store.begin_sync()

        def end() -> Any:
            self._durable = self._appended
            return job.end() if job is not None else None

        return DiskJob(job.run if job is not None else _nothing, end)

    return [(Durability, "_begin_sync", begin)]


def overlapped_write_counts_as_synced() -> list[Patch]:
    """When a sync has ended its files are clean, whatever was written meanwhile."""
    original = Segments.begin_sync

    def begin_sync(self: Any) -> Any:
        files, job = [file for file in self._open.values() if file.is_dirty], original(self)
        if job is None:
            return None

        def end() -> None:
            for file in files:
                file.covered = file.written

        return DiskJob(job.run, end)

    return [(Segments, "begin_sync", begin_sync)]


def claim_taken_after_the_sync() -> list[Patch]:
    """The durable mark names the last entry that there is when the sync has ended."""
    original = DLedgerMmapFileStore.begin_sync

    def begin_sync(self: Any) -> Any:
        self._claims.log = self
        return original(self)

    def covered(self: Any, last_index: int) -> None:
        self.synced_index = self.log.last_index

    return [(DLedgerMmapFileStore, "begin_sync", begin_sync), (Claims, "covered", covered)]


def _nothing() -> None:
    """Nothing is synced."""


def sync_error_ignored() -> list[Patch]:
    original = Segment.sync

    def sync(self: Any) -> None:
        try:
            original(self)
        except OSError:
            self.covered = self.written

    return [(Segment, "sync", sync)]


def write_error_ignored() -> list[Patch]:
    original = Segment.write

    def write(self: Any, offset: int, data: Any) -> None:
        with contextlib.suppress(OSError):
            original(self, offset, data)

    return [(Segment, "write", write)]


def damaged_member_votes() -> list[Patch]:
    return [(RepairMark, "begin_recovery", lambda self, reason: None)]


def recovery_kept_in_memory() -> list[Patch]:
    def write(self: Any, reason: str, *, is_recovering: bool) -> None:
        self.memory = (reason, is_recovering)

    def read(self: Any) -> Any:
        known = getattr(self, "memory", None)
        return None if known is None else Repair(*known)

    return [(RepairMark, "_write", write), (RepairMark, "read", read)]


def vote_not_durable() -> list[Patch]:
    """What is written is the state before: the last one is in memory only."""
    original = VoteFile.save

    def save(self: Any, state: Any) -> None:
        before = getattr(self, "pending", None)
        self.pending = state
        if before is not None:
            original(self, before)

    return [(VoteFile, "save", save)]


class _Equal:
    """A checksum that fits everywhere."""

    def __ne__(self, other: object) -> bool:
        return False


def checksums_not_verified() -> list[Patch]:
    """Neither when a store is opened, nor when a message is read."""
    original = opening.walk

    def walk(segments: Any, state: Any, units: Any, crc32c_from: int, *rest: Any) -> None:
        original(segments, state, units, 1 << 62, *rest)

    return [(opening, "walk", walk), (reading, "crc32c", lambda record: _Equal())]


def index_off_by_one() -> list[Patch]:
    original = opening.units_of

    def units_of(buffer: Any, offset: int, end: int) -> bytes:
        units = original(buffer, offset, end)
        return units[32:] + units[-32:] if len(units) > 32 else units

    return [(opening, "units_of", units_of)]


def wiped_member_votes() -> list[Patch]:
    """It takes itself for a member of an older store; and what it says counts, without a birth."""
    original = Raft.__init__

    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        keywords["is_new"] = False
        original(self, *arguments, **keywords)

    return [
        (Raft, "__init__", init),
        (strangers, "are_kin", lambda one, other: True),
        (MemberState, "may_vote", property(lambda self: not self.recovering)),
    ]


def queues_ahead_of_commit() -> list[Patch]:
    original = MessageStore.committed

    def committed(self: Any, start_index: int, end_index: int) -> None:
        original(self, start_index, max(end_index, self._store.last_index + 1))

    return [(MessageStore, "committed", committed)]


def queue_offsets_from_memory() -> list[Patch]:
    original = QueueOffsets.open

    def open_again(self: Any) -> None:
        if not self.turn:
            original(self)
        self.is_open = True

    return [(QueueOffsets, "open", open_again)]


def offsets_not_saved_with_mark() -> list[Patch]:
    """A start would replay what is older than its mark: so it does not look at that either."""
    original = LoadRule.find

    def steps(self: Any, files: Any, job: Any) -> Any:
        return job.steps()

    def find(self: Any, file: Any) -> Any:
        return original(replace(self, indexes={}, other_index=-1), file)

    return [(Flushes, "_steps", steps), (LoadRule, "find", find)]


def answered_twice() -> list[Patch]:
    original = Proposals._wait_for

    def wait_for(self: Any, requests: Any, results: Any) -> None:
        original(self, requests, results)
        original(self, requests[-1:], results[-1:])

    return [(Proposals, "_wait_for", wait_for)]


def commits_told_before_the_loss() -> list[Patch]:
    """Who waits for proposals hears of what the next leader committed in their place."""
    original = Applying.change_role

    def change_role(self: Any, change: Any, opening_index: Any) -> None:
        self.apply()
        original(self, change, opening_index)

    return [(Applying, "change_role", change_role)]


def wall_clock_for_leases() -> list[Patch]:
    def seconds(self: Any) -> float:
        member = self._enter.__self__
        return float(self._timeline.now_ms + member.wall_offset_ms) / 1000.0

    return [(SimReactor, "seconds", seconds)]


def cut_not_synced() -> list[Patch]:
    """What is cut away is zeroed in memory; and nobody looks at the chain of checksums."""

    def zero(self: Any, segment: Any, position: int, end: int | None) -> None:
        start = segment.start_offset
        segment.zero(position - start, self.segment_bytes if end is None else end - start)

    return [(Segments, "_zero", zero), *checksums_not_verified()]


def cut_by_pointer() -> list[Patch]:
    """What is cut away stays in the file; and nobody looks at the chain of checksums."""
    return [(Segments, "_zero", lambda *_: None), *checksums_not_verified()]


def vote_file_deleted_first() -> list[Patch]:
    """One file for term and vote, deleted before it is written anew; without it, term 0."""

    def save(self: Any, state: Any) -> None:
        disk = self._file_system
        if self._read(CURRENT_TERM) is not None:
            disk.remove(self._path(CURRENT_TERM))
        lines = {"voteLeader": state.voted_for or "", "currTerm": str(state.term)}
        self._replace(CURRENT_TERM, format_lines(lines))

    def load(self: Any) -> Any:
        return self._load_current(CURRENT_TERM)

    return [(VoteFile, "save", save), (VoteFile, "load", load)]


def serving_when_elected() -> list[Patch]:
    """A leader takes sends before the tail of former terms is committed."""

    def change_role(self: Any, change: Any, opening_index: Any) -> None:
        self._applier.role_changed(
            change.role, change.term, change.leader_id, change.role is Role.LEADER
        )

    def become_leader(self: Any) -> None:
        self._queue_offsets.open()

    return [(Applying, "change_role", change_role), (MessageStore, "become_leader", become_leader)]


def lost_pages_not_rewritten() -> list[Patch]:
    """What a failed sync has lost counts as written after a restart."""
    return [(Segment, "rewrite", lambda *_: None)]


def queues_outlive_their_log() -> list[Patch]:
    """A log that was begun afresh goes on in the queues of the one before."""

    def committed(self: Any, start_index: int, end_index: int) -> None:
        self._dispatcher.committed(start_index, end_index)

    return [(MessageStore, "committed", committed)]


class _Bytes(bytes):
    """Bytes of a segment."""

    def block(self, offset: int, size_bytes: int) -> memoryview:
        return memoryview(self)[offset:]


def last_entry_taken_for_torn() -> list[Patch]:
    original = opening.walk

    def walk(segments: Any, state: Any, *rest: Any) -> None:
        begin = replace(state)
        original(segments, state, *rest)
        end_index = state.next_index - 1
        if end_index <= begin.next_index:
            return
        for field in fields(begin):
            setattr(state, field.name, getattr(begin, field.name))
        hidden = []
        for start, buffer in segments:
            copy = bytearray(buffer[:])
            for at in range(len(copy) - 48):
                is_head = copy[at : at + 4] == b"\0\0\0\1"
                if is_head and int.from_bytes(copy[at + 8 : at + 16], "big") == end_index:
                    if int.from_bytes(copy[at + 24 : at + 32], "big") == start + at:
                        copy[at:] = bytes(len(copy) - at)
                        break
            hidden.append((start, _Bytes(copy)))
        original(hidden, state, *rest)

    return [(opening, "walk", walk)]


def retention_ahead_of_the_mark() -> list[Patch]:
    """The log drops what only the mark in memory tells of."""
    original = SegmentAges.oldest_first

    def oldest_first(self: Any, state_index: Any) -> Any:
        flushed, self.flushed_position = self.flushed_position, 1 << 62
        try:
            return original(self, state_index)
        finally:
            self.flushed_position = flushed

    return [(SegmentAges, "oldest_first", oldest_first)]


def first_key_of_a_rebuilt_index() -> list[Patch]:
    """Of a record's keys, only the first is there again after a start."""
    run, rows_of = Recovery.run, RowMaker.rows_of
    running: list[Any] = []

    def run_again(self: Any, mark: Any) -> Any:
        running.append(self)
        try:
            return run(self, mark)
        finally:
            running.pop()

    def first_keys(self: Any, *arguments: Any) -> Any:
        rows = rows_of(self, *arguments)
        return [row._replace(keys=row.keys[:1]) for row in rows] if running else rows

    return [(Recovery, "run", run_again), (RowMaker, "rows_of", first_keys)]


def queue_ends_not_adopted() -> list[Patch]:
    """A queue without messages in the log begins anew."""
    return [(message_store, "adopt_queue_ends", lambda *_: None)]


def checkpoint_of_an_empty_log() -> list[Patch]:
    """A member that stops in order notes a commit index, whether or not it knows of one; and one
    that has lost its vote waits for a leader, also while its group has no birth.
    """
    original = Raft.__init__

    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        keywords["is_new"] &= not keywords["recovering"]
        original(self, *arguments, **keywords)

    def end(self: Any, commit_index: int) -> Any:
        self._store.write_checkpoint(commit_index)
        return self.sync()

    return [(Durability, "end", end), (Raft, "__init__", init)]


def blank_before_a_torn_entry_counts() -> list[Patch]:
    """The end of a log is behind a blank, whatever stands there."""

    def walk(
        segments: Any, state: Any, units: Any, crc32c_from: int, crc32c: Any, reached: Any
    ) -> None:
        for number, (start, buffer) in enumerate(segments):
            verify = crc32c if start + len(buffer) > crc32c_from else None
            end = recovery.walk_segment(buffer, start, state, units, verify, reached)
            if end is not recovery.End.BLANK or number + 1 == len(segments):
                return
            if not any(segments[number + 1][1][:48]):
                return
            state.position = start + len(buffer)

    return [(opening, "walk", walk)]


def store_times_by_the_own_clock() -> list[Patch]:
    def ignore(self: Any, timestamp: int) -> None:
        self._last_timestamp = 0

    def own_time(self: Any, last_record: bytes) -> int:
        return int(self._clock_ms())

    return [(MessageWriter, "begin_behind", ignore), (MessageStore, "next_store_time", own_time)]


def opening_behind_what_is_dispatched() -> list[Patch]:
    original = MessageStore.next_store_time

    def without_tail(self: Any, last_record: bytes) -> int:
        return original(self, b"")

    return [(MessageStore, "next_store_time", without_tail)]


def commit_index_of_the_core() -> list[Patch]:
    """What is noted as committed is what the core knows, also while a cut waits for the disk."""

    def known(self: Any) -> int:
        return self._raft.commit_index if self._raft is not None else -1

    return [(Replica, "commit_index", property(known))]
