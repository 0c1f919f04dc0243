"""MemberState: what one member knows of term, vote, leader and peers, whatever its role.

What only one role has stands apart: `Follower` and `Candidate` here, `Leader` in leader.py; so a
value of a past role cannot be read by mistake. A member that knows no leader is a candidate, as in
DLedger; whether it asks for votes at the moment is its phase.
"""

from dataclasses import dataclass, field
from enum import Enum

from ledgermq.dledger.config import Config, Timing
from ledgermq.dledger.messages import Message, PeerDialect, VoteResult
from ledgermq.dledger.pace import READING_MS, Wait
from ledgermq.dledger.storage import HardState


class Role(Enum):
    """Raft's roles under DLedger's names (MemberState.Role)."""

    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"


class Phase(Enum):
    """What a candidate is doing."""

    WAITING = "waits for its next round"
    PRE_VOTE = "asks whether it would be elected"
    VOTE = "asks for votes"


@dataclass(slots=True)
class Follower:
    """A member that knows the leader of its term."""

    # Since when the leader is silent.
    silence: Wait
    # Patience on top of the election timeout, drawn anew for each leader, so that the followers of
    # a dead leader do not all wake at once (Raft 5.2).
    jitter_ms: float
    # Up to here the log is known to equal that of this leader in this term; starts at the commit
    # index and bounds what the leader's commit index may commit. Falls back only when the leader
    # turns out to have lost its log (a Java leader after a restart).
    verified_index: int

    def silence_end_ms(self, timing: Timing, stretch: float) -> float:
        """Tell when the patience with the leader is over."""
        return self.silence.end_ms((timing.election_timeout_ms + self.jitter_ms) * stretch)

    def has_live_leader(self, now_ms: float, timing: Timing) -> bool:
        """Tell others, whose pace is their own: so without the excuses of this member."""
        return not self.silence.is_over(timing.election_timeout_ms, now_ms)

    def excuse(self, late_ms: float, now_ms: float, timing: Timing) -> None:
        """Take that this member comes late itself: heart beats may lie unread."""
        self.silence.excuse(late_ms, now_ms, timing)


@dataclass(slots=True)
class Candidate:
    """A member that knows no leader."""

    phase: Phase
    # WAITING: when the next round begins. Else: when the round is judged at the latest.
    deadline_ms: float
    # Term asked for in this round.
    round_term: int = -1
    # Answers of this round, own one included: the result and the term that came with it.
    tally: dict[str, tuple[VoteResult, int]] = field(default_factory=dict)
    # The leader asked this member to lead: the next round raises the term and needs no pre-vote,
    # for the leader that is alive wants it.
    is_transferee: bool = False
    # How much later than it was drawn the deadline is, for this member was not there; and whether
    # it was put off until what lies unread is read.
    excused_ms: float = 0.0
    has_read: bool = False
    # DLedger's order of things only: whether the next round raises the term
    # (lastParseResult == WAIT_TO_VOTE_NEXT), and the largest term heard of (knownMaxTermInGroup).
    raises_term: bool = False
    known_max_term: int = -1

    def begin(self, phase: Phase, deadline_ms: float) -> None:
        """Enter a phase."""
        self.phase, self.deadline_ms = phase, deadline_ms
        self.excused_ms, self.has_read = 0.0, False

    def has_live_leader(self, now_ms: float, timing: Timing) -> bool:
        """A candidate knows of none."""
        return False

    def excuse(self, late_ms: float, now_ms: float, timing: Timing) -> None:
        """Take that this member comes late itself: answers may lie unread."""
        if self.phase is not Phase.WAITING:
            excused_ms = min(self.excused_ms + late_ms, timing.excused_max_ms)
            self.deadline_ms += excused_ms - self.excused_ms
            self.excused_ms = excused_ms
        if now_ms >= self.deadline_ms and not self.has_read:
            self.has_read = True
            self.deadline_ms = now_ms + READING_MS


@dataclass(slots=True)
class Outbox:
    """Messages for the next Ready."""

    # May go once the hard state is saved.
    messages: list[Message] = field(default_factory=list)
    # Votes and push answers; they wait for the entries to be durable, too.
    after_persist: list[Message] = field(default_factory=list)


class MemberState:
    """Term, vote and leader of one member, and how its peers speak.

    Invariants:
    1. `term` never falls.
    2. `voted_for` changes at most once in a term, from None.
    3. `leader_id` names at most one member in a term, and is None for a candidate.
    """

    __slots__ = (
        "_saved",
        "config",
        "dialects",
        "is_founder",
        "is_mixed",
        "is_new",
        "leader_id",
        "recovering",
        "term",
        "voted_for",
    )

    def __init__(self, config: Config, hard_state: HardState, recovering: bool) -> None:
        self.config = config
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        self.leader_id: str | None = None
        # This member has lost state: it neither votes nor stands for election, and is not counted.
        self.recovering = recovering
        # This member has an empty disk: it is one of a new group, or it lost all.
        self.is_new = False
        # It was one of a new group for certain: it voted for another member that had no log either,
        # or was elected so. A vote for itself says nothing: the answer that made it a candidate may
        # have been one to its life before.
        self.is_founder = hard_state.is_founder
        # Peers in sorted order.
        self.dialects = dict.fromkeys(config.peer_ids, PeerDialect.UNKNOWN)
        # Whether a peer is known to be Java: then votes, heart beats and times are DLedger's.
        self.is_mixed = False
        # The state as the driver was last told to save it.
        self._saved = hard_state

    @property
    def timing(self) -> Timing:
        """The times that hold at present."""
        return self.config.timing_with_java if self.is_mixed else self.config.timing

    def set_dialect(self, peer_id: str, dialect: PeerDialect) -> None:
        """Note how a peer speaks."""
        self.dialects[peer_id] = dialect
        self.is_mixed = PeerDialect.JAVA in self.dialects.values()

    def raise_term(self, term: int) -> None:
        """Enter a later term; vote and leader are open again (Raft 5.1)."""
        assert term > self.term, (term, self.term)
        self.term, self.voted_for, self.leader_id = term, None, None

    def vote(self, member_id: str) -> None:
        """Give this term's vote, for good (Raft 5.2)."""
        assert self.voted_for in (None, member_id), (self.voted_for, member_id)
        self.voted_for = member_id
        if self.is_new and member_id != self.config.self_id:
            self.found()

    def found(self) -> None:
        """Note that the group is new, and this empty disk, too."""
        self.is_new, self.is_founder = False, True

    def take_hard_state(self) -> HardState | None:
        """Hand out term and vote when they are not those saved last."""
        saved = self._saved
        if (
            saved.term == self.term
            and saved.voted_for == self.voted_for
            and saved.is_founder == self.is_founder
        ):
            return None
        self._saved = HardState(self.term, self.voted_for, self.is_founder)
        return self._saved
