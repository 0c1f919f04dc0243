"""How large a term or an index of a peer may be, before anything of it is stored or followed.

A member enters each higher term that it hears of, and writes it down for good: a single message of
the last term that fits in 64 bits would leave no term to elect anybody in, on no member, ever. So a
term may be higher than the own one by what elections can have brought about, and no more; and no
number may be so large that what is computed from it leaves 64 bits. Whoever says more is no member,
or a broken one; nothing of what it says is taken.
"""

from typing import Final, NamedTuple

from ledgermq.dledger.entry import EntrySlice
from ledgermq.dledger.messages import (
    AppendRequest,
    BirthReport,
    CommitRequest,
    CompareRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    LinkMessage,
    PushResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TransferRequest,
    TransferResponse,
    TruncateRequest,
    VoteRequest,
    VoteResponse,
)

# A term more for each 150 ms, the shortest wait between two rounds of votes, for twenty years: a
# member may have been away that long, or be new to a group that is as old. Who may speak and wants
# harm would have to be written down two milliards of times before terms run out.
TERM_STEP_MAX: Final = 1 << 32
TERM_MAX: Final = 1 << 62
# A million entries a second for two thousand years; its index unit stands at 32 times as much, and
# 4 MiB behind the last position still fit in 64 bits.
INDEX_MAX: Final = 1 << 56
POSITION_MAX: Final = 1 << 62


class Excess(NamedTuple):
    """A number that no member has."""

    field: str
    value: int
    limit: str


def excess_of(message: LinkMessage, own_term: int) -> Excess | None:
    """Returns the first number in a message that is out of its bounds; None when all are in.

    Args:
        message: of a peer.
        own_term: of the member that got it.
    """
    term_max = min(own_term + TERM_STEP_MAX, TERM_MAX)
    if -1 <= message.term <= term_max:
        # All that comes with every message of a producer; the rest comes a few times a second.
        if type(message) is PushResponse:
            if _is_answer_usual(message):
                return None
        elif type(message) is AppendRequest and _is_append_usual(message, term_max):
            return None
    limit = f"-1 to {term_max}, as the own term is {own_term}"
    for field, term in (("term", message.term), *_terms_of(message)):
        if not -1 <= term <= term_max:
            return Excess(field, term, limit)
    for field, index in _indexes_of(message):
        if not -1 <= index <= INDEX_MAX:
            return Excess(field, index, f"-1 to {INDEX_MAX}")
    entries = _entries_of(message)
    if entries is not None and not 0 <= entries.position <= POSITION_MAX:
        return Excess("position", entries.position, f"0 to {POSITION_MAX}")
    return None


def _is_answer_usual(message: PushResponse) -> bool:
    index = message.index
    return (
        (index is None or -1 <= index <= INDEX_MAX)
        and -1 <= message.begin_index <= INDEX_MAX
        and -1 <= message.end_index <= INDEX_MAX
    )


def _is_append_usual(message: AppendRequest, term_max: int) -> bool:
    entries, previous = message.entries, message.previous
    return (
        -1 <= entries.last_term <= term_max
        and (previous is None or -1 <= previous.term <= term_max)
        and -1 <= message.commit_index <= INDEX_MAX
        and -1 <= entries.last_index <= INDEX_MAX
        and 0 <= entries.position <= POSITION_MAX
    )


def _terms_of(message: LinkMessage) -> tuple[tuple[str, int], ...]:
    """Terms besides that of the message itself."""
    match message:
        case VoteRequest():
            return (("last_term", message.last_term),)
        case VoteResponse():
            return (("round_term", message.round_term),)
        case AppendRequest():
            previous = message.previous
            before = () if previous is None else (("term before the entries", previous.term),)
            return (("term of an entry", message.entries.last_term), *before)
        case CompareRequest() | TruncateRequest():
            return (("term of an entry", message.entry.last_term),)
        case _:
            return ()


def _indexes_of(message: LinkMessage) -> tuple[tuple[str, int], ...]:
    match message:
        case VoteRequest() | TransferRequest():
            return (("last_index", message.last_index),)
        case HeartBeatRequest() | ReadIndexResponse():
            commit_index = message.commit_index
            return () if commit_index is None else (("commit_index", commit_index),)
        case AppendRequest() | CompareRequest() | TruncateRequest() | CommitRequest():
            entries = _entries_of(message)
            last = () if entries is None else (("index of an entry", entries.last_index),)
            return (("commit_index", message.commit_index), *last)
        case PushResponse():
            return (
                ("index", -1 if message.index is None else message.index),
                ("begin_index", message.begin_index),
                ("end_index", message.end_index),
            )
        case ReadIndexRequest() | TransferResponse() | BirthReport():
            return ()
        case VoteResponse() | HeartBeatResponse():
            return ()


def _entries_of(message: LinkMessage) -> EntrySlice | None:
    match message:
        case AppendRequest():
            return message.entries
        case CompareRequest() | TruncateRequest():
            return message.entry
        case _:
            return None
