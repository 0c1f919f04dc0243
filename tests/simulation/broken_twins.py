"""Broken twins of functions of the product, one for each mistake that a replicated log can have.

A twin is put in the place of its function for the length of a run; nothing of it is in the
product. Where two guards of the product hide one mistake, the twin takes both away.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ledgermq.commitlog.store import MessageStore
from ledgermq.dledger import birth, census, strangers, votes
from ledgermq.dledger.census import Census
from ledgermq.dledger.config import Config
from ledgermq.dledger.dispatcher import EntryDispatcher
from ledgermq.dledger.election import LeaderElector
from ledgermq.dledger.handler import EntryHandler
from ledgermq.dledger.leader import Leader
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import Candidate, Follower, MemberState, Phase
from ledgermq.dledger.messages import (
    AppendRequest,
    DLedgerCode,
    TruncateRequest,
    VoteRequest,
    VoteResult,
)
from ledgermq.dledger.pace import Pace, Wait
from ledgermq.dledger.quorum import QuorumAckChecker, majority_index
from ledgermq.dledger.raft import Raft

# Owner, name of the function, and its twin.
Patch = tuple[Any, str, Any]


def quorum_of_half() -> list[Patch]:
    return [(Config, "quorum_count", property(lambda self: max(len(self.members) // 2, 1)))]


def vote_without_log_check() -> list[Patch]:
    return [(votes, "_refuse_shorter_log", lambda request, voter: None)]


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
            stranger = Follower(Wait(self._now_ms), 0.0, verified_index=self.commit_index)
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


def old_terms_counted() -> list[Patch]:
    def commit_index(self: Any, match_indexes: Any, *, commit_index: int, **_: Any) -> int:
        return max(commit_index, majority_index(match_indexes, self._quorum_count))

    return [(QuorumAckChecker, "commit_index", commit_index)]


def old_terms_counted_without_opening() -> list[Patch]:
    """Without an opening record a leader is ready too early, so that guard goes, too."""

    def become_leader(self: Any) -> None:
        self._queue_offsets.open()

    return [
        *old_terms_counted(),
        (Leader, "open_term", lambda *_: None),
        (MessageStore, "become_leader", become_leader),
    ]


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


def answers_of_earlier_terms_counted() -> list[Patch]:
    original = Raft._on_push_response

    def on_push_response(self: Any, response: Any) -> None:
        if response.term < self.term:
            response = replace(response, term=self.term)
        original(self, response)

    return [(Raft, "_on_push_response", on_push_response)]


def timer_reset_by_any_term() -> list[Patch]:
    """Nobody asks before it raises its term: so each attempt makes all others wait anew."""

    def start_round(self: Any, candidate: Any, now_ms: float) -> bool:
        state = self._state
        state.raise_term(state.term + 1)
        return self._ask(candidate, Phase.VOTE, state.term, now_ms)

    return [(LeaderElector, "start_round", start_round)]


def higher_term_ignored() -> list[Patch]:
    """A leader hears nothing of later terms, and does not ask whether a majority follows it."""
    original = Raft.receive

    def receive(self: Any, message: Any, now_ms: float) -> None:
        if not isinstance(self._duty, Leader) or message.term <= self.term:
            original(self, message, now_ms)

    def silence_deadline_ms(self: Any, heard_ms: Any, timeout_ms: float) -> float:
        return float("inf")

    return [
        (Raft, "receive", receive),
        (QuorumAckChecker, "silence_deadline_ms", silence_deadline_ms),
    ]


def follower_never_begun_afresh() -> list[Patch]:
    """Who lacks what the leader dropped gets nothing any more."""
    make_pushes, deadline_ms = EntryDispatcher.make_pushes, EntryDispatcher.deadline_ms
    given_up: set[Any] = set()

    def make(self: Any, commit_index: int, now_ms: float) -> Any:
        return [] if self in given_up else make_pushes(self, commit_index, now_ms)

    def deadline(self: Any) -> float:
        return float("inf") if self in given_up else deadline_ms(self)

    def give_up(self: Any, index: int) -> None:
        given_up.add(self)
        self._start_compare()

    return [
        (EntryDispatcher, "make_pushes", make),
        (EntryDispatcher, "deadline_ms", deadline),
        (EntryDispatcher, "_start_truncate", give_up),
    ]


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


def recovery_one_entry_early() -> list[Patch]:
    """An entry that was there before a leader heard of a loss counts as committed without it."""
    original = Leader._heard

    def heard(self: Any, peer_id: str, recovering: bool, now_ms: float) -> None:
        is_known = peer_id in self._recovering
        original(self, peer_id, recovering, now_ms)
        if not is_known and peer_id in self._recovering:
            self._recovering[peer_id] -= 1

    return [(Leader, "_heard", heard)]


def lateness_ignored() -> list[Patch]:
    def enter(self: Any, now_ms: float, due_ms: float) -> float:
        self._seen_ms = max(self._seen_ms, now_ms)
        return 0.0

    return [(Pace, "enter", enter)]


def waits_never_fall_back() -> list[Patch]:
    original, longest = Pace.stretch, dict[Any, float]()

    def stretch(self: Any, timing: Any) -> float:
        longest[self] = max(longest.get(self, 1.0), original(self, timing))
        return longest[self]

    return [(Pace, "stretch", stretch)]


def members_without_a_birth_elect() -> list[Patch]:
    """As before births: an empty disk votes for a candidate that is empty, too, and counts."""
    return [
        (MemberState, "may_vote", property(lambda self: not self.recovering)),
        (strangers, "are_kin", lambda one, other: True),
    ]


def birth_without_catching_up() -> list[Patch]:
    """Who is given the birth by its leader counts as if it had been there all the time."""

    def meet(self: Any, leader_birth: Any) -> None:
        if leader_birth is not None and leader_birth.is_agreed:
            self._state.birth, self._state.is_new = leader_birth, False

    return [(Census, "meet", meet)]


def birth_by_a_majority() -> list[Patch]:
    """A new group does not wait for its last member, though nobody has allowed that."""

    def next_birth(self_id: str, claims: Any, *, members: Any, founders: Any, draw_id: Any) -> Any:
        if len(claims) > len(members) // 2:
            founders = sorted(claims)
        return birth.next_birth(
            self_id, claims, members=members, founders=founders, draw_id=draw_id
        )

    return [(census, "next_birth", next_birth)]


Twin = Callable[[], list[Patch]]


def recovery_of_any_life() -> list[Patch]:
    """A member that recovers is the same as long as it recovers."""
    original = Leader._heard

    def heard(self: Any, peer_id: str, recovering: bool, now_ms: float, life: int = 0) -> None:
        original(self, peer_id, recovering, now_ms, 0)

    def life(self: Any) -> int:
        return 0

    return [(Leader, "_heard", heard), (Census, "life", property(life))]
