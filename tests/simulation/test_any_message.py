"""Whatever a peer sends, a member answers or ignores it; only a contradicted commit stops it."""

import contextlib
import random

import pytest

from ledgermq.dledger.birth import Birth, Standing
from ledgermq.dledger.entry import EntryId, EntrySlice
from ledgermq.dledger.errors import BrokenInvariantError
from ledgermq.dledger.messages import (
    AppendRequest,
    BirthReport,
    CommitRequest,
    CompareRequest,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PeerDialect,
    PushKind,
    PushResponse,
    TruncateRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from tests.unit.dledger.lab import Lab, joined, run_of


def any_entries(rng: random.Random, count_max: int) -> EntrySlice:
    terms = sorted(rng.randint(0, 5) for _ in range(8))
    first_index = rng.choice([0, 0, 0, 3, 1_000])
    runs = run_of(terms, first_index=first_index, position=rng.choice([0, 0, 0, 8, 4096]))
    start = rng.randrange(len(runs))
    return joined(runs[start : start + rng.randint(1, count_max)])


BIRTHS = [
    None,
    Birth("a" * 32, ("n0", "n1", "n2")),
    Birth("a" * 32, ("n0", "n1", "n2"), is_agreed=True),
    Birth("b" * 32, ("n0", "n1", "n2"), is_agreed=True),
]


def any_report(rng: random.Random) -> Message:
    return BirthReport(
        term=rng.randint(-1, 6),
        sender=rng.choice(["n0", "n1", "n2", "x"]),
        target="n0",
        life=rng.randint(0, 2),
        number=rng.randint(0, 2),
        answers=rng.randint(0, 2),
        wants_answer=rng.random() < 0.5,
        standing=rng.choice(list(Standing)),
        birth=rng.choice(BIRTHS),
    )


def any_voice(rng: random.Random, kind: int, term: int, sender: str, target: str) -> Message:
    birth, index = rng.choice(BIRTHS), rng.randint(-1, 9)
    if kind == 0:
        return VoteRequest(
            term=term,
            sender=sender,
            target=target,
            last_index=index,
            last_term=rng.randint(-1, 6),
            pre_vote=rng.random() < 0.5,
            birth=birth,
        )
    if kind == 1:
        return VoteResponse(
            term=term,
            sender=sender,
            target=target,
            result=rng.choice(list(VoteResult)),
            round_term=rng.randint(-1, 6),
            pre_vote=rng.random() < 0.5,
            birth=birth,
        )
    if kind == 2:
        return HeartBeatRequest(
            term=term,
            sender=sender,
            target=target,
            commit_index=index,
            read_round=rng.randint(0, 9),
            birth=birth,
        )
    code = rng.choice(list(DLedgerCode))
    return HeartBeatResponse(term=term, sender=sender, target=target, code=code, birth=birth)


def any_message(rng: random.Random) -> Message:
    term = rng.randint(-1, 6)
    sender, target = rng.choice(["n0", "n1", "n1", "n2", "x"]), "n0"
    index, request_id = rng.randint(-1, 9), rng.randint(0, 9)
    kind = rng.randrange(10)
    if kind == 9:
        return any_report(rng)
    if kind < 4:
        return any_voice(rng, kind, term, sender, target)
    if kind == 4:
        return PushResponse(
            term=term,
            sender=sender,
            target=target,
            kind=rng.choice(list(PushKind)),
            code=rng.choice([DLedgerCode.SUCCESS, DLedgerCode.INCONSISTENT_STATE]),
            index=index,
            count=1,
            begin_index=rng.randint(-1, 9),
            end_index=rng.randint(-1, 9),
            request_id=request_id,
        )
    if kind == 5:
        return CommitRequest(
            term=term, sender=sender, target=target, commit_index=index, request_id=request_id
        )
    if kind == 6:
        entries = any_entries(rng, 4)
        before = entries.first_index - 1 if rng.random() < 0.9 else index
        previous = EntryId(rng.randint(-1, 6), before) if rng.random() < 0.7 else None
        return AppendRequest(
            term=term,
            sender=sender,
            target=target,
            entries=entries,
            previous=previous,
            commit_index=index,
            request_id=request_id,
        )
    cls = CompareRequest if kind == 7 else TruncateRequest
    return cls(
        term=term,
        sender=sender,
        target=target,
        entry=any_entries(rng, 1),
        commit_index=index,
        request_id=request_id,
    )


@pytest.mark.parametrize("seed", range(150))
def test_any_message_is_survived(seed: int) -> None:
    rng = random.Random(seed)
    lab = Lab(
        sorted(rng.randint(0, 3) for _ in range(rng.randint(0, 5))),
        term=3,
        checkpoint=rng.randint(-1, 4),
        dialect=rng.choice(list(PeerDialect)),
        recovering=rng.random() < 0.1,
        birth=rng.choice(BIRTHS),
    )
    with contextlib.suppress(BrokenInvariantError):
        for _ in range(60):
            lab.take(any_message(rng))
            if rng.random() < 0.3:
                lab.pass_time(rng.choice([1, 500, 7_000]))
            if lab.raft.opening_index is not None:
                lab.raft.propose([b"x"], lab.now_ms)
