"""Broken twins of functions of the product, one for each mistake that a replicated log can have.

A twin is put in the place of its function for the length of a run; nothing of it is in the
product. Where two guards of the product hide one mistake, the twin takes both away.
"""

from collections.abc import Callable
from typing import Any

from ledgermq.broker.proposals import Proposals
from ledgermq.commitlog.queue_offsets import QueueOffsets
from ledgermq.commitlog.store import MessageStore
from ledgermq.dledger import votes
from ledgermq.dledger.config import Config
from ledgermq.dledger.dispatcher import EntryDispatcher
from ledgermq.dledger.election import LeaderElector
from ledgermq.dledger.handler import EntryHandler
from ledgermq.dledger.leader import Leader
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import Candidate, Follower, Phase
from ledgermq.dledger.messages import (
    AppendRequest,
    DLedgerCode,
    TruncateRequest,
    VoteRequest,
    VoteResult,
)
from ledgermq.dledger.quorum import QuorumAckChecker, majority_index
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.replica.applying import Applying
from ledgermq.dledger.replica.durability import Durability
from ledgermq.dledger.store import opening
from ledgermq.dledger.store.repair_mark import Repair, RepairMark
from ledgermq.dledger.store.segment import Segment
from ledgermq.dledger.store.vote_file import VoteFile
from ledgermq.testing.simulation.broker import SimBroker
from ledgermq.testing.simulation.clock import SimReactor

# Owner, name of the function, and its twin.
Patch = tuple[Any, str, Any]


def quorum_of_half() -> list[Patch]:
    return [(Config, "quorum_count", property(lambda self: max(len(self.members) // 2, 1)))]


def vote_without_log_check() -> list[Patch]:
    return [(votes, "_refuse_shorter_log", lambda request, voter: None)]


def ack_before_sync() -> list[Patch]:
    original = Durability.finish

    def finish(self: Any, persist_id: Any, answers: list[Any]) -> None:
        self._finish(None, answers)
        original(self, persist_id, [])

    return [(Durability, "finish", finish)]


def late_truncate_obeyed() -> list[Patch]:
    original = EntryHandler._truncate

    def truncate(self: Any, request: Any, follower: Any, commit_index: int, *, from_java: bool):
        index, log = request.entry.first_index, self._log
        if from_java and commit_index <= index < log.last_index and log.holds(request.entry):
            log.truncate(index + 1)
            follower.verified_index = index
            return DLedgerCode.SUCCESS
        return original(self, request, follower, commit_index, from_java=from_java)

    return [(EntryHandler, "_truncate", truncate)]


def sync_error_ignored() -> list[Patch]:
    original = Segment.sync

    def sync(self: Any) -> None:
        try:
            original(self)
        except OSError:
            self.dirty = False

    return [(Segment, "sync", sync)]


def damaged_member_votes() -> list[Patch]:
    return [(RepairMark, "begin_recovery", lambda self, reason: None)]


def log_compared_by_index() -> list[Patch]:
    def refuse(request: VoteRequest, voter: votes.Voter) -> VoteResult | None:
        if request.last_index < voter.last_id.index:
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
        return None

    return [(votes, "_refuse_shorter_log", refuse)]


def last_term_is_present_term() -> list[Patch]:
    def refuse(request: VoteRequest, voter: votes.Voter) -> VoteResult | None:
        # What a candidate says of its log's term is its present term, never below the voter's.
        if request.last_index < voter.last_id.index and request.term <= voter.last_id.term + 1:
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
        return None

    return [(votes, "_refuse_shorter_log", refuse)]


def push_of_past_term_obeyed() -> list[Patch]:
    original = Raft._on_push

    def on_push(self: Any, request: Any) -> None:
        duty = self._duty
        is_push = isinstance(request, AppendRequest | TruncateRequest)
        if is_push and request.term < self.term and isinstance(duty, Follower | Candidate):
            stranger = Follower(self._now_ms, 0.0, verified_index=self.commit_index)
            code = self._handler.handle(request, stranger, self.commit_index)
            self._handler.answer(request, code, request.term)
            return
        original(self, request)

    return [(Raft, "_on_push", on_push)]


def own_copy_counted_unsynced() -> list[Patch]:
    original = RaftLog.take_changes

    def take_changes(self: Any) -> Any:
        changes = original(self)
        self.persisted_index = self.last_index
        return changes

    return [(RaftLog, "take_changes", take_changes)]


def compare_by_index() -> list[Patch]:
    def holds(self: Any, entry: Any) -> bool:
        return self.first_index <= entry.first_index <= self.last_index

    def refuse_not(self: Any, entries: Any, previous: Any, follower: Any, commit_index: int) -> Any:
        if previous.index > self._log.last_index:
            return DLedgerCode.INCONSISTENT_STATE
        new_index = max(entries.first_index, self._log.last_index + 1)
        follower.verified_index = max(follower.verified_index, entries.last_index)
        if new_index <= entries.last_index and self._log.fits(entries.slice_from(new_index)):
            self._log.append(entries.slice_from(new_index))
            return DLedgerCode.SUCCESS
        follower.verified_index = min(follower.verified_index, self._log.last_index)
        return DLedgerCode.SUCCESS

    return [(RaftLog, "holds", holds), (EntryHandler, "_append", refuse_not)]


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


def old_terms_counted() -> list[Patch]:
    def commit_index(self: Any, match_indexes: Any, *, commit_index: int, **_: Any) -> int:
        return max(commit_index, majority_index(match_indexes, self._quorum_count))

    return [(QuorumAckChecker, "commit_index", commit_index)]


def old_terms_counted_without_opening() -> list[Patch]:
    return [*old_terms_counted(), (Leader, "open_term", lambda self, make_body: None)]


def match_kept_over_terms() -> list[Patch]:
    kept: dict[tuple[str, str], int] = {}
    start, matched = EntryDispatcher.__init__, EntryDispatcher._matched

    def init(self: Any, config: Any, log: Any, **keywords: Any) -> None:
        start(self, config, log, **keywords)
        known = kept.get((config.self_id, self.peer_id), -1)
        self.match_index = min(known, log.last_index)

    def note(self: Any, index: int) -> None:
        matched(self, index)
        kept[self._config.self_id, self.peer_id] = self.match_index

    return [(EntryDispatcher, "__init__", init), (EntryDispatcher, "_matched", note)]


def late_report_counts() -> list[Patch]:
    """A sync that began before a cut counts for what was appended since."""

    def clamp(self: Any, last: int) -> None:
        self.persisted_index = min(self.persisted_index, last)

    return [(RaftLog, "_clamp_persisted", clamp)]


def append_without_previous() -> list[Patch]:
    original = EntryHandler._append

    def append(self: Any, entries: Any, previous: Any, follower: Any, commit_index: int) -> Any:
        log = self._log
        if log.first_index <= previous.index <= log.last_index:
            previous = previous._replace(term=log.term_at(previous.index))
        return original(self, entries, previous, follower, commit_index)

    return [(EntryHandler, "_append", append)]


def commit_before_match() -> list[Patch]:
    original = Raft._on_heart_beat

    def on_heart_beat(self: Any, request: Any) -> None:
        original(self, request)
        if isinstance(self._duty, Follower) and request.commit_index is not None:
            self._commit_to(min(request.commit_index, self._log.last_index))

    return [(Raft, "_on_heart_beat", on_heart_beat)]


def any_vote_answer_counts() -> list[Patch]:
    def record(self: Any, response: Any, candidate: Any, now_ms: float) -> bool:
        if candidate.phase is Phase.WAITING:
            return False
        candidate.tally[response.sender] = (response.result, response.term)
        return self.judge_round(candidate, now_ms, is_last_call=False)

    return [(LeaderElector, "record", record)]


def ready_when_elected() -> list[Patch]:
    return [(Raft, "is_ready_leader", property(lambda self: isinstance(self._duty, Leader)))]


def queues_ahead_of_commit() -> list[Patch]:
    original = MessageStore.committed

    def committed(self: Any, start_index: int, end_index: int) -> None:
        original(self, start_index, max(end_index, self._store.last_index + 1))

    return [(MessageStore, "committed", committed)]


def queue_offsets_from_memory() -> list[Patch]:
    original = QueueOffsets.rebuild

    def rebuild(self: Any, queues: Any) -> None:
        if not self.table:
            original(self, queues)
        self.is_open = True

    def close(self: Any) -> None:
        self.is_open = False

    return [(QueueOffsets, "rebuild", rebuild), (QueueOffsets, "close", close)]


def checksums_not_verified() -> list[Patch]:
    original = opening.walk

    def walk(segments: Any, state: Any, units: Any, crc32c_from: int, crc32c: Any) -> None:
        original(segments, state, units, 1 << 62, crc32c)

    return [(opening, "walk", walk)]


def index_off_by_one() -> list[Patch]:
    original = opening.units_of

    def units_of(buffer: Any, offset: int, end: int) -> bytes:
        units = original(buffer, offset, end)
        return units[32:] + units[-32:] if len(units) > 32 else units

    return [(opening, "units_of", units_of)]


def offsets_not_saved_with_mark() -> list[Patch]:
    def run_flush(self: Any) -> None:
        self._job.run()

    return [(SimBroker, "_run_flush", run_flush)]


def wall_clock_for_leases() -> list[Patch]:
    def seconds(self: Any) -> float:
        member = self._enter.__self__
        return float(self._timeline.now_ms + member.wall_offset_ms) / 1000.0

    return [(SimReactor, "seconds", seconds)]


def answered_twice() -> list[Patch]:
    original = Proposals._wait_for

    def wait_for(self: Any, requests: Any, results: Any) -> None:
        original(self, requests, results)
        original(self, requests[-1:], results[-1:])

    return [(Proposals, "_wait_for", wait_for)]


def wiped_member_votes() -> list[Patch]:
    original = Raft.__init__

    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        keywords["is_new"] = False
        original(self, *arguments, **keywords)

    return [(Raft, "__init__", init)]


def commits_told_before_the_loss() -> list[Patch]:
    """Who waits for proposals hears of what the next leader committed in their place."""
    original = Applying.change_role

    def change_role(self: Any, change: Any, opening_index: Any) -> None:
        self.apply()
        original(self, change, opening_index)

    return [(Applying, "change_role", change_role)]


Twin = Callable[[], list[Patch]]
