"""Confirming: what waits until it is certain that this member led when it was asked.

Whoever answers from what a leader knows, without a proposal, asks here first, and answers when it
is told. How that is found out: `ledgermq/dledger/confirmations.py`. What was answered before the
question is applied here when the member is a ready leader, which is what it has to be. A follower
asks its leader, and applies as much: `follower_reads.py`.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ledgermq.dledger.confirmations import ReadPoint
from ledgermq.dledger.errors import (
    LeadUnconfirmedError,
    LedgerError,
    NotLeaderError,
    UnconfirmedReason,
)
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.replica.follower_reads import FollowerReads, ReadingMember, SendRead

# Those that wait at a time; they share their rounds, so this bounds memory only.
WAITING_MAX: Final = 10_000
# By then a client has given its question up, or is about to; and a new leader, which keeps what
# clients were granted for some time, counts on no later answer than this.
WAIT_MS: Final = 3_000

# Told None when it is certain, else why it is not.
OnConfirmed = Callable[[LedgerError | None], None]


class AskedMember(ReadingMember, Protocol):
    """What is needed of the member."""

    @property
    def is_ready_leader(self) -> bool: ...


class _Waiting(NamedTuple):
    point: ReadPoint
    deadline_ms: float
    done: OnConfirmed


class Confirming:
    """Those who wait at one member.

    Invariant: points and deadlines never fall from one that waits to the next.
    """

    def __init__(self, member: AskedMember, schedule_turn: Callable[[], None]) -> None:
        """Nobody waits.

        Args:
            member: of which it is asked whether it leads.
            schedule_turn: has `look` called soon.
        """
        self._member = member
        self._schedule_turn = schedule_turn
        self._raft: Raft | None = None
        self._waiting: deque[_Waiting] = deque()
        # What is asked of this member as a follower, and what followers ask it.
        self.follower_reads = FollowerReads(member, self.ask, schedule_turn)

    def begin(self, raft: Raft, send: SendRead) -> None:
        """The member takes part with this core; `send` brings something to another member."""
        self._raft = raft
        self.follower_reads.begin(send)

    def ask(self, done: OnConfirmed) -> None:
        """Has `done` told when it is certain that this member leads now, or why it is not.

        At once where the member is its whole group, and where it does not lead; else after a round
        of messages, in `WAIT_MS` at most. At the loss of the lead all that wait are told.
        """
        raft, member = self._raft, self._member
        if raft is None or not member.is_ready_leader:
            done(NotLeaderError(member.leader_id, member.term))
            return
        if len(self._waiting) >= WAITING_MAX:
            reason = UnconfirmedReason.TOO_MANY
            done(LeadUnconfirmedError(reason, member.term, len(self._waiting), WAITING_MAX))
            return
        now_ms = member.now_ms
        point = raft.reads.ask(now_ms)
        if raft.reads.find_outcome(point, raft.commit_index):
            done(None)
            return
        self._waiting.append(_Waiting(point, now_ms + WAIT_MS, done))
        self._schedule_turn()

    def look(self) -> None:
        """Tells those for whom it is decided; called in each turn."""
        self.follower_reads.look()
        raft, waiting = self._raft, self._waiting
        while waiting and raft is not None:
            point, deadline_ms, done = waiting[0]
            outcome = raft.reads.find_outcome(point, raft.commit_index)
            error: LedgerError | None = None
            if outcome is False or not self._member.is_ready_leader:
                error = NotLeaderError(self._member.leader_id, self._member.term)
            elif self._member.now_ms >= deadline_ms:
                # Also when it is confirmed in this very turn: nobody counts on so late an answer.
                reason = UnconfirmedReason.TOO_LATE
                error = LeadUnconfirmedError(reason, point.term, WAIT_MS, WAIT_MS)
            elif outcome is None:
                return
            waiting.popleft()
            done(error)

    def end(self) -> None:
        """The member takes part no more: all that wait are told."""
        self._raft = None
        self.follower_reads.end()
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.done(NotLeaderError(None, self._member.term))

    def deadline_ms(self) -> float:
        """Tells when `look` is due at the latest; infinity when nobody waits."""
        due_ms = self.follower_reads.deadline_ms()
        return min(due_ms, self._waiting[0].deadline_ms) if self._waiting else due_ms
