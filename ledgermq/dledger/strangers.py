"""Which messages count: which raise a term, and which are rejected for the cluster of the sender.

Pure functions of a message and of what its receiver knows.
"""

from ledgermq.dledger.birth import Birth, are_kin, disagree, is_agreed, may_lead
from ledgermq.dledger.member_state import MemberState
from ledgermq.dledger.membership import NO_DIGEST
from ledgermq.dledger.messages import (
    BirthReport,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PeerDialect,
    PushResponse,
    TransferResponse,
    VoteRequest,
    VoteResponse,
)


def is_stranger(message: Message, state: MemberState) -> bool:
    """Tells whether a vote or heart beat comes from a member that does not count for this one.

    It has another member list, or the birth of another cluster. What a stranger asks for is
    refused, and its term is not entered; but a member that has yet to catch up may answer its
    leader that it knows a higher term, for else nobody could lead it.

    A Java member names neither, so with one in the group births are not compared. LedgerMQ members
    still compare their lists.
    """
    birth = state.birth
    match message:
        case (
            VoteRequest()
            | VoteResponse()
            | HeartBeatRequest()
            | HeartBeatResponse()
            | BirthReport()
        ) if message.members_digest not in (NO_DIGEST, state.members_digest):
            return True
    if state.is_mixed:
        return False
    match message:
        case VoteRequest() | VoteResponse():
            return not are_kin(message.birth, birth)
        case HeartBeatRequest():
            return not may_lead(message.birth, birth)
        case HeartBeatResponse():
            return is_agreed(birth) and disagree(message.birth, birth)
        case _:
            return False


def raises_term(message: Message, state: MemberState) -> bool:
    """Tells whether a message of a higher term makes its receiver enter that term (Raft 5.1).

    A pre-vote never does, nor what a stranger says. With a Java member in the group, votes and
    heart beats follow DLedger's order: a vote raises the term only after the log was compared, a
    heart beat while it is answered. A push comes from an elected leader, so its term is entered at
    once (DLedger waits for the heart beat). Answers raise it where a peer refuses an outdated
    leader, or has taken over from this one.
    """
    is_mixed = state.is_mixed
    if is_stranger(message, state):
        return False
    match message:
        case VoteRequest():
            return not is_mixed and not message.pre_vote
        case VoteResponse() | HeartBeatRequest():
            return not is_mixed
        case HeartBeatResponse():
            return message.code is DLedgerCode.EXPIRED_TERM
        case PushResponse():
            return message.code is DLedgerCode.INCONSISTENT_TERM
        case TransferResponse():
            return message.code is DLedgerCode.SUCCESS
        case BirthReport():
            return False
        case _:
            return True


def is_undecided(sender: str, birth: Birth | None, state: MemberState) -> bool:
    """Tells whether a new member does not know yet what the leader means that it hears of.

    One of LedgerMQ without a birth has an older group, in which this member has lost its disk. One
    of Java has a group in which an empty disk counts, and for good: so this member waits until it
    knows which, some milliseconds as a rule.
    """
    if not state.is_new or state.is_mixed or birth is not None:
        return False
    return state.dialects[sender] is PeerDialect.UNKNOWN


def needs_heart_beat(sender: str, state: MemberState) -> bool:
    """Tells whether a push, which names no birth, comes too early to follow its sender for it."""
    if state.is_mixed:
        return False
    return is_agreed(state.birth) or is_undecided(sender, None, state)


def refuse_heart_beat(request: HeartBeatRequest, state: MemberState) -> tuple[DLedgerCode, int]:
    """Decides whether a heart beat is one of a leader that this member may follow.

    Returns:
        SUCCESS, or why it is not, and the term of the answer. TERM_NOT_READY comes where a Java
        member is in the group, or may be: the receiver enters the term then.

    Source: DLedgerLeaderElector.handleHeartBeat.
    """
    if request.sender == state.config.self_id:
        return DLedgerCode.UNEXPECTED_MEMBER, request.term
    if request.sender not in state.dialects:
        return DLedgerCode.UNKNOWN_MEMBER, request.term
    if request.term < state.term:
        # DLedger's tools ask for the term in this way, too.
        return DLedgerCode.EXPIRED_TERM, state.term
    if is_stranger(request, state):
        return DLedgerCode.UNKNOWN_GROUP, state.term
    is_present = request.term == state.term
    if is_undecided(request.sender, request.birth, state):
        is_present = False
    return DLedgerCode.SUCCESS if is_present else DLedgerCode.TERM_NOT_READY, request.term
