"""What members of a group say to each other: one dataclass for each RPC, and the numbers of
DLedger. Nobody changes a message.

The core sees these values whatever the wire: DLedger's JSON to a Java member, binary frames between
LedgerMQ members. Every message has a term, a sender and a target (member ids). Votes and heart
beats carry the birth that their sender holds (birth.py) and a digest of its member list; DLedger's
JSON has neither, and the birth counts for nothing while a Java member is known. What a Java answer
does not carry, the driver fills in from the request it answers: `request_id`, `round_term`,
`round`, and the term of a heart beat answer that is not 403 (Java writes -1 there).

An index or term of -1 stands for "log is empty" here exactly as on the wire. Source: spec of
DLedger 0.3.1.2, io.openmessaging.storage.dledger.protocol.
"""

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

from ledgermq.dledger.birth import Birth, Standing
from ledgermq.dledger.entry import EntryId, EntrySlice
from ledgermq.dledger.membership import NO_DIGEST

# Round of a heart beat to a member that said it has lost state and is counted for nothing.
UNCOUNTED_ROUND: Final = 0


class JsonCode(IntEnum):
    """Request codes of DLedger's JSON RPC (DLedgerRequestCode)."""

    METADATA = 50000
    APPEND = 50001
    GET = 50002
    VOTE = 51001
    HEART_BEAT = 51002
    PULL = 51003
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005


class DLedgerCode(IntEnum):
    """Response codes (DLedgerResponseCode)."""

    UNKNOWN = -1
    SUCCESS = 200
    TIMEOUT = 300
    METADATA_ERROR = 301
    NETWORK_ERROR = 302
    UNSUPPORTED = 303
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    REQUEST_WITH_EMPTY_BODYS = 420
    PUSH_REQUEST_IS_FULL = 421
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    LEADER_PENDING_FULL = 503
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506


class VoteResult(IntEnum):
    """Answers to a vote; the names are those of the JSON form (VoteResponse.RESULT), the numbers
    those of ours.
    """

    UNKNOWN = 0
    ACCEPT = 1
    REJECT_UNKNOWN_LEADER = 2
    REJECT_UNEXPECTED_LEADER = 3
    REJECT_EXPIRED_VOTE_TERM = 4
    REJECT_ALREADY_VOTED = 5
    REJECT_ALREADY_HAS_LEADER = 6
    REJECT_TERM_NOT_READY = 7
    REJECT_TERM_SMALL_THAN_LEDGER = 8
    REJECT_EXPIRED_LEDGER_TERM = 9
    REJECT_SMALL_LEDGER_END_INDEX = 10
    REJECT_TAKING_LEADERSHIP = 11


class PushKind(IntEnum):
    """Kinds of a push (PushEntryRequest.Type); the names are those of the JSON form."""

    APPEND = 1
    COMMIT = 2
    COMPARE = 3
    TRUNCATE = 4


class PeerDialect(Enum):
    """How a peer speaks, as the driver found out when its connection opened."""

    UNKNOWN = "unknown"
    LEDGERMQ = "ledgermq"
    JAVA = "java"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate asks for a vote in `term`; with `pre_vote` it asks whether it would get one (Raft
    5.2, thesis 9.6).

    A pre-vote goes to LedgerMQ members only: the driver drops it on a connection of the JSON
    dialect.
    """

    term: int
    sender: str
    target: str
    # End of the candidate's log; -1 and -1 when it is empty.
    last_index: int
    last_term: int
    pre_vote: bool = False
    birth: Birth | None = None
    # Digest of the sender's member list (membership.py), here as in the messages below.
    members_digest: int = NO_DIGEST
    # The connection that it came on, 0 when nobody needs to know; never on the wire.
    asked_on: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """The answer to a vote; `term` is the voter's current term, `round_term` the term that was
    asked for.

    It goes to `asked_on` or nowhere: a candidate that was started again, perhaps on an empty disk,
    must not count a vote that its life before was given.
    """

    term: int
    sender: str
    target: str
    result: VoteResult
    round_term: int
    pre_vote: bool = False
    birth: Birth | None = None
    members_digest: int = NO_DIGEST
    asked_on: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatRequest:
    """The leader of `term` is alive. `commit_index` goes to LedgerMQ members only (None: unknown or
    from Java).
    """

    term: int
    sender: str
    target: str
    commit_index: int | None = None
    # Number of the leader's heart beat round, from 1; an answer repeats it, so that a round can
    # prove leadership for reads. UNCOUNTED_ROUND: the leader does not count the target. A commit
    # index that comes with it was reached without the target after the leader knew that: a
    # recovering member that has committed as much is whole again, if the leader names its life.
    read_round: int = 0
    # With UNCOUNTED_ROUND: the life in which the target said that it recovers; 0: in none yet.
    life: int = 0
    # A member without a birth takes it from a leader that has an agreed one.
    birth: Birth | None = None
    members_digest: int = NO_DIGEST


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatResponse:
    """Answer to a heart beat: 200, 400 (the sender holds another birth), 401, 402, 403 (`term` is
    then the receiver's), 409 or 416.
    """

    term: int
    sender: str
    target: str
    code: DLedgerCode
    round: int = 0
    # The answering member has lost state and must not be counted (LedgerMQ only; Java cannot know).
    recovering: bool = False
    # Tells the process that recovers from those before it, which may have had another disk; 0 for
    # a member that counts.
    life: int = 0
    birth: Birth | None = None
    members_digest: int = NO_DIGEST


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Does the follower hold exactly this entry? `entry` is a run of one."""

    term: int
    sender: str
    target: str
    entry: EntrySlice
    commit_index: int
    request_id: int
    # As in AppendRequest.
    wants_sync: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateRequest:
    """Make the log end with this entry (a run of one), cutting or wiping what contradicts it."""

    term: int
    sender: str
    target: str
    entry: EntrySlice
    commit_index: int
    request_id: int
    # As in AppendRequest.
    wants_sync: bool = False


# Not frozen: one is made for each message of a producer, in half the time.
@dataclass(slots=True, kw_only=True)
class AppendRequest:
    """Append a run of entries; `previous` is the entry before them (Raft 5.3), None when a Java
    leader sent it.

    `EntryId(-1, -1)` as `previous` says that the run begins the log.
    """

    term: int
    sender: str
    target: str
    entries: EntrySlice
    previous: EntryId | None
    commit_index: int
    request_id: int
    # The leader counts an answer only when the entries are synced (SYNC_FLUSH). DLedger's JSON does
    # not carry it.
    wants_sync: bool = False
    # Set where it is decoded: the receiver's entry at `previous` has that term, but the run does
    # not continue its chain; the checksum that the first entry should have, and that it has.
    chain_mismatch: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """The leader's commit index, sent when there is nothing else to push."""

    term: int
    sender: str
    target: str
    commit_index: int
    request_id: int


# Not frozen: one is made for each message of a producer, in half the time.
@dataclass(slots=True, kw_only=True)
class PushResponse:
    """Answer to any push.

    `term` repeats the request's term; only a 407 to a LedgerMQ leader carries the larger term of
    the receiver, so that a deposed leader learns of it. `index` is the first index of the request
    (None for COMMIT), `count` the number of its entries; `begin_index` and `end_index` are the ends
    of the receiver's log after the action, -1 and -1 when it is empty.
    """

    term: int
    sender: str
    target: str
    kind: PushKind
    code: DLedgerCode
    index: int | None
    count: int
    begin_index: int
    end_index: int
    request_id: int
    # As in HeartBeatResponse: replicated to, but counted for no quorum.
    recovering: bool = False
    # It is sent when the entries that it testifies to are synced. DLedger's JSON does not say so: a
    # Java member's answer passes for synced.
    is_synced: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRequest:
    """The leader of `term` asks a follower to lead the next term (LEADERSHIP_TRANSFER).

    `last_index` (takeLeadershipLedgerIndex) is the entry that the follower must have first.
    """

    term: int
    sender: str
    target: str
    last_index: int
    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferResponse:
    """Answer to a transfer: 200 by the new leader, with its term; else why it does not lead."""

    term: int
    sender: str
    target: str
    code: DLedgerCode
    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BirthReport:
    """What a member says of itself and its birth, among LedgerMQ members only (census.py).

    It goes both ways: unasked, and as an answer. It raises no term.
    """

    term: int
    sender: str
    target: str
    # Drawn by each process of the sender anew.
    life: int
    # What the receiver is to repeat in its answer, and what it asked this sender to repeat; 0 when
    # it has not been heard of. A report counts only when it repeats the right number: what a former
    # life of a member has said, on whatever way, is then never taken for the word of this one.
    number: int
    answers: int
    wants_answer: bool
    standing: Standing
    birth: Birth | None = None
    members_digest: int = NO_DIGEST


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIndexRequest:
    """A follower asks its leader how much of the log it has to apply before it may answer a
    question that it got before (ReadIndex, Raft thesis 6.4).

    It raises no term, and the core does not see it.
    """

    term: int
    sender: str
    target: str
    # Of the questions of this sender's process, from 1.
    number: int
    # As in VoteRequest.
    asked_on: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIndexResponse:
    """The answer to a question of this number; it goes to `asked_on` or nowhere, so that no later
    life of who asked takes it for one to a question of its own.
    """

    term: int
    sender: str
    target: str
    number: int
    # What was committed when the question came; None from a member that cannot tell.
    commit_index: int | None
    asked_on: int = field(default=0, compare=False)


PushRequest = CompareRequest | TruncateRequest | AppendRequest | CommitRequest
Message = (
    VoteRequest
    | VoteResponse
    | HeartBeatRequest
    | HeartBeatResponse
    | CompareRequest
    | TruncateRequest
    | AppendRequest
    | CommitRequest
    | PushResponse
    | TransferRequest
    | TransferResponse
    | BirthReport
)
ReadMessage = ReadIndexRequest | ReadIndexResponse
# All that goes from member to member; the core sees the former.
LinkMessage = Message | ReadMessage
