"""Census: who of the group is there, and whether the group has its birth.

Each member tells the others what it is (`BirthReport`), when their connection opens, when that
changes, and again and again while its own birth is not agreed. What follows from what they say is
`birth.next_birth`'s to decide.

    A                                        B
    I am a1, number 7, new   ──────────────>
                             <────────────── I am b1, number 3; you said 7; new. You?
    you said 3; new          ──────────────>     now A counts B's words, and B those of A

Only what repeats the number that this member has asked for counts, and a member that was started
again (another life) gets another number: so a report that was under way when its sender lost its
disk, or that was sent to an earlier life of the receiver, changes nothing.

A member whose store was made before member lists were kept has an agreed birth without one. It
neither votes nor leads until all members are known to have its list, or until it follows a leader,
which has the list of its group.

With a Java member in the group there is no birth, and what was agreed before rests: Java cannot
tell.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ledgermq.dledger.birth import Birth, Claim, Standing, disagree, is_agreed, next_birth
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import MemberState, Outbox
from ledgermq.dledger.messages import BirthReport, PeerDialect

_NUMBER_BITS: Final = 62
_ID_BITS: Final = 128
# What a member of another kind is, for a person.
_KINDS: Final = {
    Standing.NEW: "is new",
    Standing.OLDER: "has an older store",
    Standing.LOST: "recovers what it lost",
}
_OTHER_MEMBERS: Final = "has another member list (key dLegerPeers)"


class _Peer:
    """What one peer has said."""

    __slots__ = ("claim", "life", "number", "their_number")

    def __init__(self) -> None:
        # What it must repeat, and what it wants repeated; 0 before they spoke.
        self.number = 0
        self.their_number = 0
        self.life: int | None = None
        # None while it has said nothing that counts.
        self.claim: Claim | None = None


class Census:
    """The table of one member.

    Invariant: an id that was agreed stays, and so does one that is held.
    """

    def __init__(
        self, state: MemberState, log: RaftLog, rng: random.Random, outbox: Outbox
    ) -> None:
        """Nobody was heard of; a group of one is born at once."""
        self._state = state
        self._config = state.config
        self._log = log
        self._rng = rng
        self._outbox = outbox
        # 0 before it was needed.
        self._life = 0
        self._peers = {peer_id: _Peer() for peer_id in state.dialects}
        # The birth that each peer named last.
        self._named: dict[str, Birth | None] = {}
        self._settle()

    @property
    def strangers(self) -> dict[str, Birth]:
        """Peers that hold the birth of another group, and it."""
        own = self._state.birth
        return {
            peer_id: birth
            for peer_id, birth in self._named.items()
            if birth is not None and disagree(birth, own)
        }

    @property
    def is_new(self) -> bool:
        """Whether this member is one of a new group, or has a new disk."""
        return self._own_claim().standing is Standing.NEW

    def note_birth(self, peer_id: str, birth: Birth | None) -> None:
        """Takes the birth that somebody named in a vote or heart beat; a tool names none."""
        if peer_id in self._peers and birth is not None:
            self._named[peer_id] = birth

    def way_opened(self, peer_id: str) -> None:
        """A connection to a peer is open: it may be asked at once."""
        if not self._state.has_members:
            self._tell(peer_id, is_asking=True)

    def way_closed(self, peer_id: str) -> None:
        """The connection to a peer broke: it may be another when it is heard of again."""
        self._peers[peer_id].claim = None

    def ask(self) -> None:
        """Asks all peers while this member has no agreed birth with a member list: what was asked
        before may be lost.
        """
        if not self._state.has_members and not self._state.is_mixed:
            for peer_id in self._peers:
                self._tell(peer_id, is_asking=True)

    def receive(self, report: BirthReport) -> None:
        """Takes a report: notes it when it counts, acts on it, and answers."""
        peer = self._peers.get(report.sender)
        if peer is None:
            return
        if report.life != peer.life:
            if peer.life is not None:
                peer.number = self._draw()
            peer.life, peer.claim = report.life, None
        peer.their_number = report.number
        if report.answers == peer.number != 0:
            has_same_members = report.members_digest == self._state.members_digest
            peer.claim = Claim(report.standing, report.birth, has_same_members)
            self._named[report.sender] = report.birth
        if self._settle():
            for peer_id in self._peers:
                self._tell(peer_id)
        elif report.wants_answer:
            self._tell(report.sender)

    def meet(self, leader_birth: Birth | None) -> None:
        """Takes the birth of the leader that this member is about to follow.

        A member that has none takes it, and recovers: it may have forgotten what it promised. One
        that held it already now knows that it is agreed, and has forgotten nothing.
        """
        state = self._state
        if state.is_mixed or leader_birth is None or not leader_birth.is_agreed:
            return
        if state.birth is None:
            state.birth, state.recovering, state.is_new = leader_birth, True, False
        elif not state.birth.is_agreed:
            self._agree(leader_birth)
        elif not state.birth.members:
            # Its digest was that of the own list (`strangers.refuse_heart_beat`).
            state.birth = leader_birth

    def waits_for(self) -> Mapping[str, str]:
        """Tells which peers keep this member from an agreed birth, and why; empty when it has one,
        or recovers.
        """
        state, config = self._state, self._config
        own = self._own_claim()
        if state.has_members or state.is_mixed or own.standing is Standing.LOST:
            return {}
        needed = config.founders if own.standing is Standing.NEW else config.members
        found = {}
        for peer_id, peer in self._peers.items():
            reason = ""
            if is_agreed(own.birth) and peer.claim is not None:
                reason = "" if self._has_same_members(peer.claim) else _OTHER_MEMBERS
            elif peer.claim or peer_id in needed:
                reason = _reason(peer.claim, own)
            if reason:
                found[peer_id] = reason
        return found

    def _settle(self) -> bool:
        """Takes what follows from all claims; tells whether the own birth has changed."""
        state, former = self._state, self._state.birth
        if state.is_mixed or state.has_members:
            return False
        if former is not None and former.is_agreed:
            if all(self._has_same_members(peer.claim) for peer in self._peers.values()):
                state.birth = replace(former, members=tuple(sorted(self._config.members)))
            return state.birth != former
        for _ in range(2):
            claims = {
                peer_id: peer.claim
                for peer_id, peer in self._peers.items()
                if peer.claim is not None
            }
            state.has_met_birth = any(is_agreed(claim.birth) for claim in claims.values())
            claims[self._config.self_id] = self._own_claim()
            found = next_birth(
                self._config.self_id,
                claims,
                members=self._config.members,
                founders=self._config.founders,
                draw_id=lambda: f"{self._rng.getrandbits(_ID_BITS):032x}",
            )
            if is_agreed(found):
                assert found is not None
                self._agree(found)
                break
            state.birth = found
        return state.birth != former

    def _has_same_members(self, claim: Claim | None) -> bool:
        """Tells whether a peer is known to be of this cluster, with the same member list."""
        return (
            claim is not None
            and claim.has_same_members
            and not disagree(claim.birth, self._state.birth)
        )

    def _agree(self, birth: Birth) -> None:
        state = self._state
        state.birth = birth.agreed()
        if state.is_new:
            # Nobody could be elected before, and this member held the birth: so it has promised
            # nothing, whatever it lost.
            state.is_new = state.recovering = False
        state.has_met_birth = False

    def _own_claim(self) -> Claim:
        state = self._state
        if state.is_new and self._log.last_index < 0:
            return Claim(Standing.NEW, state.birth)
        return Claim(Standing.LOST if state.recovering else Standing.OLDER, state.birth)

    @property
    def life(self) -> int:
        """Tells a process that recovers from those before it; 0 while this member counts."""
        return self._draw_life() if self._state.recovering else 0

    def _draw_life(self) -> int:
        self._life = self._life or self._draw()
        return self._life

    def _tell(self, peer_id: str, *, is_asking: bool = False) -> None:
        state, peer = self._state, self._peers[peer_id]
        if state.dialects[peer_id] is PeerDialect.JAVA:
            return
        claim = self._own_claim()
        peer.number = peer.number or self._draw()
        self._outbox.messages.append(
            BirthReport(
                term=state.term,
                sender=self._config.self_id,
                target=peer_id,
                life=self._draw_life(),
                number=peer.number,
                answers=peer.their_number,
                wants_answer=is_asking or peer.claim is None,
                standing=claim.standing,
                birth=claim.birth,
                members_digest=state.members_digest,
            )
        )

    def _draw(self) -> int:
        return self._rng.getrandbits(_NUMBER_BITS) + 1


def _reason(claim: Claim | None, own: Claim) -> str:
    if claim is None:
        return "not reached"
    if not claim.has_same_members:
        return _OTHER_MEMBERS
    if is_agreed(claim.birth):
        assert claim.birth is not None
        return f"holds birth {claim.birth.group_id}, which its leader must bring here"
    if disagree(claim.birth, own.birth):
        assert claim.birth is not None and own.birth is not None
        return f"holds birth {claim.birth.group_id}, here it is {own.birth.group_id}"
    return _KINDS[claim.standing] if claim.standing is not own.standing else ""
