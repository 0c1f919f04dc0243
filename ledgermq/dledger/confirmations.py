"""Confirmations: does this member still lead? Asked before it answers from what it knows.

A leader that was cut off from the others, or had no time, does not know yet that they have elected
another one. What it appends is never committed then; but an answer from its tables would
contradict what the new leader has granted. So whoever reads waits until a majority has shown that
it was in the leader's term after the question came (ReadIndex, Raft thesis 6.4):

    a question comes    ReadPoint: the next round of heart beats, the next entry of the log
    round 18 begins     at once, if no other round is on its way; one round serves all that wait
    answers to 18       a majority followed this leader after the question: it is confirmed

Who follows in a term has not voted in a later one. So when the question came, no majority had: no
later leader had been elected, and all that was ever answered stands in this leader's tables, if it
was ready. An entry that was appended after the question and is committed tells the same. A Java
member repeats no number, but its answer comes with its request, and it refuses a past term, too.

There is no lease, which would save the round. Members refuse to vote while they hear of a leader;
but one that was started again has forgotten that it heard of one, and votes at once.
"""

from typing import Final, NamedTuple

from ledgermq.dledger.config import NEVER
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import MemberState

# Least time between two rounds of heart beats of which the second one begins for a question.
READ_BEAT_MS: Final = 5


class ReadPoint(NamedTuple):
    """A moment in a leadership; either of round and entry proves that it lasted until then."""

    term: int
    # Of heart beats: the first one that begins behind the moment.
    round: int
    # The first entry that is appended behind it.
    entry_index: int


class Confirmations:
    """What one member's peers have confirmed of its present leadership.

    Invariant: `_confirmed_round` is the latest round that a majority, the leader included, has
    answered in this term.
    """

    def __init__(self, state: MemberState, log: RaftLog) -> None:
        """Nothing is asked."""
        self._state = state
        self._log = log
        # Peers that make a majority together with the leader.
        self._others_count = state.config.quorum_count - 1
        self._echoes: dict[str, int] = {}
        # The last round that began, and the first one that somebody waits for and that did not.
        self._round = self._confirmed_round = self._wanted_round = 0
        self._asked_ms = 0.0

    def lead(self) -> None:
        """A leadership begins: rounds are counted anew, and what was answered before is void."""
        self._echoes.clear()
        self._round = self._confirmed_round = self._wanted_round = 0

    def ask(self, now_ms: float) -> ReadPoint:
        """Has the present moment of this leadership confirmed.

        Args:
            now_ms: monotonic time; `Raft.deadline_ms` may have changed.
        """
        wanted_round = self._round + 1
        if self._wanted_round != wanted_round:
            self._wanted_round, self._asked_ms = wanted_round, now_ms
        return ReadPoint(self._state.term, wanted_round, self._log.last_index + 1)

    def find_outcome(self, point: ReadPoint, commit_index: int) -> bool | None:
        """Tells whether this member led its term at a moment: True, None while that is not known,
        or False when it leads that term no longer, and so cannot know.

        Args:
            point: the moment.
            commit_index: of this member, now.
        """
        state = self._state
        if state.term != point.term or state.leader_id != state.config.self_id:
            return False
        is_echoed = self._others_count == 0 or self._confirmed_round >= point.round
        return True if is_echoed or commit_index >= point.entry_index else None

    # Of the leader.

    def beat_due_ms(self, last_beat_ms: float) -> float:
        """Tells when a round of heart beats should begin for those who wait; NEVER when it need
        not: nobody waits, or the last round is not answered yet. When its answers are lost, the
        next regular one serves.
        """
        if self._wanted_round <= self._round or self._confirmed_round < self._round:
            return NEVER
        return max(self._asked_ms, last_beat_ms + READ_BEAT_MS)

    def round_began(self, round_number: int) -> None:
        """Takes that a round is sent."""
        self._round = round_number

    def echoed(self, peer_id: str, round_number: int) -> None:
        """Takes that a peer has answered a round of this term as a follower that counts."""
        if self._others_count == 0 or round_number > self._round:
            return
        if round_number > self._echoes.get(peer_id, 0):
            self._echoes[peer_id] = round_number
            rounds = sorted(self._echoes.values(), reverse=True)
            if len(rounds) >= self._others_count:
                self._confirmed_round = rounds[self._others_count - 1]
