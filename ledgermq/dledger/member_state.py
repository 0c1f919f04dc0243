"""MemberState: what one member knows of term, vote, leader and peers, whatever its role.

What only one role has stands apart: `Follower` and `Candidate` here, `Leader` in leader.py; so a
value of a past role cannot be read by mistake. A member that knows no leader is a candidate, as in
DLedger; whether it asks for votes at the moment is its phase.
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from ledgermq.dledger.birth import is_agreed
from ledgermq.dledger.config import Config, Timing
from ledgermq.dledger.membership import members_digest
from ledgermq.dledger.messages import Message, PeerDialect, VoteResult
from ledgermq.dledger.pace import READING_MS, Wait
from ledgermq.dledger.storage import HardState, LedgerStore


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
    # How far this leader says that its log is committed; -1 when it did not say.
    told_index: int = -1

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


def first_state(saved: HardState | None, store: LedgerStore) -> tuple[HardState, bool]:
    """Tell with which state a member starts, and whether it has lost one: there was a later one, or
    there is none beside a log.
    """
    log_term = max(store.last_term, 0)
    if saved is not None and saved.term >= log_term:
        return saved, False
    if saved is None:
        return HardState(log_term), store.last_index >= 0
    return replace(saved, term=log_term, voted_for=None), True


class MemberState:
    """Term, vote, birth and leader of one member, and how its peers speak.

    Invariants:
    1. `term` never falls.
    2. `voted_for` changes at most once in a term, from None.
    3. `leader_id` names at most one member in a term, and is None for a candidate.
    4. An agreed birth never changes.
    """

    __slots__ = (
        "_lacks_state",
        "_saved",
        "birth",
        "config",
        "dialects",
        "has_met_birth",
        "has_voted",
        "is_mixed",
        "is_new",
        "leader_id",
        "members_digest",
        "recovering",
        "term",
        "voted_for",
    )

    def __init__(
        self, config: Config, hard_state: HardState, recovering: bool, *, is_saved: bool = True
    ) -> None:
        self.config = config
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        self.leader_id: str | None = None
        # This member has lost state: it neither votes nor stands for election, and is not counted.
        self.recovering = recovering
        # This member has an empty disk, and no agreed birth: it is one of a new group, or lost all.
        self.is_new = False
        # It has voted for another member, or was elected, while it was new. A vote for itself says
        # nothing: the answer that made it a candidate may have been one to its life before.
        self.has_voted = hard_state.has_voted
        # What it holds of the group's birth.
        self.birth = hard_state.birth
        # Of the member list that this process runs with; messages carry it.
        self.members_digest = members_digest(config.members)
        # Without an agreed birth: some peer has one.
        self.has_met_birth = False
        # Peers in sorted order.
        self.dialects = dict.fromkeys(config.peer_ids, PeerDialect.UNKNOWN)
        # Whether a peer is known to be Java: then votes, heart beats and times are DLedger's.
        self.is_mixed = False
        # The state as the driver was last told to save it.
        self._saved = hard_state
        # Nothing is saved yet, and has to be before this member holds an entry: a log without it
        # is that of a member that has forgotten how it voted. A follower of the first term, which
        # is 0 under a Java leader, may never have anything to change in it.
        self._lacks_state = not is_saved

    @property
    def timing(self) -> Timing:
        """The times that hold at present."""
        return self.config.timing_with_java if self.is_mixed else self.config.timing

    @property
    def may_vote(self) -> bool:
        """Whether this member gives votes and asks for them: it has its group's agreed birth and
        member list, or has a log or a vote from a time before births, and nobody has met one.

        A member that is new waits for the birth. With a Java member in the group it does not.
        """
        if self.recovering:
            return False
        if self.is_mixed or self.has_members:
            return True
        return not (self.is_new or self.has_met_birth or is_agreed(self.birth))

    @property
    def has_members(self) -> bool:
        """Whether the group has agreed on its birth and member list, as this member knows."""
        return self.birth is not None and self.birth.is_agreed and bool(self.birth.members)

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
        if member_id != self.config.self_id:
            self.take_part()

    def take_part(self) -> None:
        """Note that this member has voted for another, or was elected: it is new no more."""
        self.has_voted |= self.is_new
        self.is_new = False

    def end_recovery(self) -> None:
        """Count again: this member has caught up.

        It holds an entry that was committed without it since it came back. So a majority of the
        others was in this term then, and all that this member may have acknowledged before it lost
        its state, in this term or an earlier one, is in the log it has now.

        Under a Java leader, which counts every member, an entry of a later term than that of the
        first leader met stands for this.
        """
        self.recovering = False
        if self.voted_for is None and self.leader_id is not None:
            # Whoever it may have voted for in this term before: from now on, for the leader.
            self.vote(self.leader_id)

    def take_hard_state(self) -> HardState | None:
        """Hand out term, vote and birth when they are not those saved last, or none are."""
        saved = self._saved
        if (
            saved.term == self.term
            and saved.voted_for == self.voted_for
            and saved.birth == self.birth
            and saved.has_voted is self.has_voted
            and not (self._lacks_state and self.leader_id is not None and not self.recovering)
        ):
            return None
        self._lacks_state = False
        self._saved = HardState(self.term, self.voted_for, self.birth, self.has_voted)
        return self._saved
