"""Follower reads: what waits until a follower knows all that was granted before it was asked.

    a question comes here     it is to be answered by the tables of this member
    READ_INDEX to the leader  one at a time: who asks while it is on its way waits for the next one
    the leader confirms       that it led when READ_INDEX came, as for a question of its own
    its commit index comes    what was answered before the question stands at or before it
    as much is applied here   the question is answered

The answer of a former leader is "I cannot tell", and that of nobody is none: the question is put
again, to whom this member follows by then, until its time is over. Then who asked is told so, and
decides what to do. A Java leader knows no such request; it is not asked.

Source: ReadIndex, Raft thesis 6.4. The core takes no part but for what `confirming.py` asks it.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ledgermq.dledger.errors import LedgerError, NotLeaderError, ReadUncertainError, UncertainReason
from ledgermq.dledger.messages import (
    PeerDialect,
    ReadIndexRequest,
    ReadIndexResponse,
    ReadMessage,
)

# Those that wait at a time; they share their questions, so this bounds memory only.
READS_MAX: Final = 10_000
# A client waits for longer; many ask for one queue after the other while a leader is being elected.
READ_WAIT_MS: Final = 1_000
# A question that is not answered by then is put again: a message, or a connection, was lost, or who
# was asked does not lead (yet).
ASK_AGAIN_MS: Final = 100

# Told None when this member knows all, else why it may not.
OnRead = Callable[[LedgerError | None], None]
SendRead = Callable[[ReadMessage], None]


class ReadingMember(Protocol):
    """What is needed of the member."""

    @property
    def self_id(self) -> str: ...
    @property
    def term(self) -> int: ...
    @property
    def leader_id(self) -> str | None: ...
    @property
    def now_ms(self) -> float: ...
    @property
    def commit_index(self) -> int: ...
    @property
    def applied_index(self) -> int: ...
    def dialect_of(self, peer_id: str) -> PeerDialect: ...


class _Waiting(NamedTuple):
    # The first question to a leader that is put after this one came.
    number: int
    deadline_ms: float
    done: OnRead


class _Known(NamedTuple):
    # What has to be applied.
    read_index: int
    deadline_ms: float
    done: OnRead


class FollowerReads:
    """Those who wait at one member, and what other members ask it.

    Invariants: numbers, indexes and deadlines never fall from one that waits to the next; whoever
    has an index came before all that have none.
    """

    def __init__(
        self,
        member: ReadingMember,
        confirm: Callable[[OnRead], None],
        schedule_turn: Callable[[], None],
    ) -> None:
        """Nobody waits.

        Args:
            member: whose tables answer.
            confirm: tells whether this member leads, for those that ask it.
            schedule_turn: has `look` called soon.
        """
        self._member = member
        self._confirm = confirm
        self._schedule_turn = schedule_turn
        # None while the member takes no part.
        self._send: SendRead | None = None
        self._asking: deque[_Waiting] = deque()
        self._applying: deque[_Known] = deque()
        # The last question: its number, whom it went to (None: it is answered) and when.
        self._number = 0
        self._asked_id: str | None = None
        self._asked_ms = 0.0
        # Since the process began: reads that were certain, and those that were not.
        self.certain_count = self.uncertain_count = 0

    def begin(self, send: SendRead) -> None:
        """The member takes part; `send` brings a message to another one, or drops it."""
        self._send = send

    def ask(self, done: OnRead) -> None:
        """Has `done` told when all is applied here that was granted before now, or that this is not
        known: in `READ_WAIT_MS` at most, at once where nobody can be asked.
        """
        count = len(self._asking) + len(self._applying)
        if self._send is None or self._is_leader:
            self._fail(done, NotLeaderError(self._member.leader_id, self._member.term))
        elif self._is_led_by_java:
            self._fail(done, ReadUncertainError(UncertainReason.NO_WAY, 0, 0))
        elif count >= READS_MAX:
            self._fail(done, ReadUncertainError(UncertainReason.TOO_MANY, count, READS_MAX))
        else:
            deadline_ms = self._member.now_ms + READ_WAIT_MS
            self._asking.append(_Waiting(self._number + 1, deadline_ms, done))
            self._schedule_turn()

    def receive(self, message: ReadMessage) -> None:
        """Takes what another member asks or answers."""
        if isinstance(message, ReadIndexRequest):
            self._answer(message)
        elif message.commit_index is not None and message.number <= self._number:
            # One that is late is as true: whoever has answered led when that question came.
            if message.number == self._number:
                self._asked_id = None
            self._know(message.number, message.commit_index)

    def look(self) -> None:
        """Tells those for whom it is decided, and asks for the others; called in each turn."""
        self._tell()
        member, asking = self._member, self._asking
        if not asking or self._send is None:
            return
        if self._is_leader or self._is_led_by_java:
            # It answers by itself now; and whoever has an index needs nobody any more.
            waiting, self._asking = asking, deque()
            self._asked_id = None
            for one in waiting:
                self._fail(one.done, ReadUncertainError(UncertainReason.NO_WAY, 0, 0))
        elif member.leader_id is None:
            # The next one is asked as soon as it is known; nothing is due before.
            self._asked_id = None
        elif self._may_ask(member.leader_id):
            self._number += 1
            self._asked_id, self._asked_ms = member.leader_id, member.now_ms
            self._send(
                ReadIndexRequest(
                    term=member.term,
                    sender=member.self_id,
                    target=member.leader_id,
                    number=self._number,
                )
            )

    def end(self) -> None:
        """The member takes part no more: all that wait are told."""
        self._send = self._asked_id = None
        done = [one.done for one in self._applying] + [one.done for one in self._asking]
        self._applying.clear()
        self._asking.clear()
        for one in done:
            self._fail(one, NotLeaderError(None, self._member.term))

    def deadline_ms(self) -> float:
        """Tells when `look` is due at the latest; infinity when nobody waits."""
        due_ms = self._applying[0].deadline_ms if self._applying else float("inf")
        if self._asking:
            due_ms = min(due_ms, self._asking[0].deadline_ms)
            if self._asked_id is not None:
                due_ms = min(due_ms, self._asked_ms + ASK_AGAIN_MS)
        return due_ms

    @property
    def _is_leader(self) -> bool:
        return self._member.leader_id == self._member.self_id

    @property
    def _is_led_by_java(self) -> bool:
        leader_id = self._member.leader_id
        return leader_id is not None and self._member.dialect_of(leader_id) is PeerDialect.JAVA

    def _may_ask(self, leader_id: str) -> bool:
        """Whether no question is on its way that may still be answered."""
        is_over = self._member.now_ms >= self._asked_ms + ASK_AGAIN_MS
        return self._asked_id != leader_id or is_over

    def _know(self, number: int, index: int) -> None:
        """Takes how much has to be applied for all that asked before a question was put."""
        asking, applying = self._asking, self._applying
        if applying:
            index = max(index, applying[-1].read_index)
        while asking and asking[0].number <= number:
            one = asking.popleft()
            applying.append(_Known(index, one.deadline_ms, one.done))
        self._schedule_turn()

    def _tell(self) -> None:
        applying, asking, member = self._applying, self._asking, self._member
        while applying and member.applied_index >= applying[0].read_index:
            done = applying.popleft().done
            self.certain_count += 1
            done(None)
        while applying and member.now_ms >= applying[0].deadline_ms:
            self._fail(applying.popleft().done, _TOO_LATE)
        while asking and member.now_ms >= asking[0].deadline_ms:
            self._fail(asking.popleft().done, _TOO_LATE)

    def _fail(self, done: OnRead, error: LedgerError) -> None:
        self.uncertain_count += 1
        done(error)

    def _answer(self, request: ReadIndexRequest) -> None:
        """Tells a follower what was committed when its question came, if this member led then."""
        member, send = self._member, self._send
        if send is None:
            return
        commit_index = member.commit_index

        def confirmed(error: LedgerError | None) -> None:
            if self._send is not None:
                self._send(
                    ReadIndexResponse(
                        term=member.term,
                        sender=member.self_id,
                        target=request.sender,
                        number=request.number,
                        commit_index=commit_index if error is None else None,
                        asked_on=request.asked_on,
                    )
                )

        self._confirm(confirmed)


_TOO_LATE: Final = ReadUncertainError(UncertainReason.TOO_LATE, READ_WAIT_MS, READ_WAIT_MS)
