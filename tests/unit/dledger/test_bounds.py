"""Numbers that no member has are told from those that one may have."""

from dataclasses import replace

import pytest

from ledgermq.dledger.bounds import INDEX_MAX, POSITION_MAX, TERM_MAX, TERM_STEP_MAX, excess_of
from ledgermq.dledger.entry import EntryCodec, EntryId, EntrySlice
from ledgermq.dledger.messages import (
    AppendRequest,
    CommitRequest,
    CompareRequest,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PushKind,
    PushResponse,
    TransferRequest,
    TransferResponse,
    TruncateRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.protocol.checksum import crc32c

OWN_TERM = 5
LAST_TERM = OWN_TERM + TERM_STEP_MAX
I64_MAX, I64_MIN = 2**63 - 1, -(2**63)


def entry(*, index: int = 8, term: int = 5, position: int = 400) -> EntrySlice:
    return EntryCodec(crc32c).encode(
        [b"x"], first_index=index, term=term, position=position, previous_chain_crc=0
    )


IDS = {"term": 6, "sender": "n1", "target": "n0"}
PUSH = {**IDS, "commit_index": 7, "request_id": I64_MAX}
MESSAGES: list[Message] = [
    VoteRequest(**IDS, last_index=-1, last_term=-1),
    VoteResponse(**IDS, result=VoteResult.ACCEPT, round_term=6),
    HeartBeatRequest(**IDS, commit_index=7, read_round=I64_MAX),
    HeartBeatRequest(**IDS, commit_index=None, read_round=-9),
    HeartBeatResponse(**IDS, code=DLedgerCode.SUCCESS, round=I64_MAX),
    CompareRequest(**PUSH, entry=entry()),
    TruncateRequest(**PUSH, entry=entry()),
    AppendRequest(**PUSH, entries=entry(), previous=EntryId(5, 7)),
    AppendRequest(**PUSH, entries=entry(index=0, position=0), previous=EntryId(-1, -1)),
    AppendRequest(**PUSH, entries=entry(), previous=None),
    CommitRequest(**PUSH),
    PushResponse(
        **IDS, kind=PushKind.APPEND, code=DLedgerCode.SUCCESS, index=8, count=1, begin_index=0,
        end_index=8, request_id=1,
    ),
    TransferRequest(**IDS, last_index=8, request_id=1),
    TransferResponse(**IDS, code=DLedgerCode.SUCCESS, request_id=1),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_term_of_any_message_is_bounded_by_what_elections_bring_about(message: Message) -> None:
    assert excess_of(message, OWN_TERM) is None
    for term in (-1, 0, OWN_TERM, LAST_TERM):
        assert excess_of(replace(message, term=term), OWN_TERM) is None
    for term in (LAST_TERM + 1, TERM_MAX, I64_MAX, -2, I64_MIN):
        excess = excess_of(replace(message, term=term), OWN_TERM)
        assert excess is not None and (excess.field, excess.value) == ("term", term)
        assert str(LAST_TERM) in excess.limit and "own term is 5" in excess.limit


def test_terms_end_far_from_the_end_of_64_bits() -> None:
    message = HeartBeatRequest(term=TERM_MAX, sender="n1", target="n0")
    assert excess_of(message, TERM_MAX - 1) is None
    assert excess_of(replace(message, term=TERM_MAX + 1), TERM_MAX - 1) is not None
    assert excess_of(replace(message, term=TERM_MAX + 1), TERM_MAX) is not None


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (VoteRequest, "last_index"),
        (TransferRequest, "last_index"),
        (HeartBeatRequest, "commit_index"),
        (CompareRequest, "commit_index"),
        (TruncateRequest, "commit_index"),
        (AppendRequest, "commit_index"),
        (CommitRequest, "commit_index"),
        (PushResponse, "index"),
        (PushResponse, "begin_index"),
        (PushResponse, "end_index"),
    ],
)
def test_indexes_are_bounded(kind: type[Message], field: str) -> None:
    message = next(message for message in MESSAGES if isinstance(message, kind))
    for index in (-1, 0, INDEX_MAX):
        assert excess_of(replace(message, **{field: index}), OWN_TERM) is None
    for index in (INDEX_MAX + 1, I64_MAX, -3, I64_MIN):
        excess = excess_of(replace(message, **{field: index}), OWN_TERM)
        assert excess is not None and (excess.field, excess.value) == (field, index)


@pytest.mark.parametrize("field", ["last_term", "round_term"])
def test_other_terms_are_bounded_alike(field: str) -> None:
    message = next(message for message in MESSAGES if hasattr(message, field))
    assert excess_of(replace(message, **{field: LAST_TERM}), OWN_TERM) is None
    for term in (LAST_TERM + 1, I64_MAX, -2):
        excess = excess_of(replace(message, **{field: term}), OWN_TERM)
        assert excess is not None and excess.field == field


@pytest.mark.parametrize("kind", [CompareRequest, TruncateRequest, AppendRequest])
def test_entries_are_bounded_before_they_are_stored(kind: type[Message]) -> None:
    message = next(message for message in MESSAGES if isinstance(message, kind))
    field = "entries" if kind is AppendRequest else "entry"
    for good in (entry(index=INDEX_MAX), entry(term=LAST_TERM), entry(position=POSITION_MAX)):
        assert excess_of(replace(message, **{field: good}), OWN_TERM) is None
    for bad, told in (
        (entry(index=INDEX_MAX + 1), "index of an entry"),
        (entry(term=LAST_TERM + 1), "term of an entry"),
        (entry(position=POSITION_MAX + 1), "position"),
    ):
        excess = excess_of(replace(message, **{field: bad}), OWN_TERM)
        assert excess is not None and excess.field == told


def test_term_before_the_entries_is_bounded() -> None:
    message = AppendRequest(**PUSH, entries=entry(), previous=EntryId(I64_MAX, 7))
    excess = excess_of(message, OWN_TERM)
    assert excess is not None and excess.field == "term before the entries"
