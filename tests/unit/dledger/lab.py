"""Members to try things on: cores on memory disks, and verbs that read like a log of events."""

import random
import zlib
from collections.abc import Sequence
from typing import Any

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.config import Config, Timing
from ledgermq.dledger.entry import EntryCodec, EntryId, EntrySlice, place
from ledgermq.dledger.messages import (
    AppendRequest,
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
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.ready import Ready
from ledgermq.dledger.storage import HardState
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore

SEGMENT_BYTES = 4096
# Like DLedger's, but not those of FAST_TIMING, so that a test sees which set is used.
SLOW = Timing(
    heart_beat_ms=2000,
    heart_beats_missed_max=3,
    vote_wait_min_ms=300,
    vote_wait_max_ms=1000,
    vote_round_ms=2000,
)


def crc(data: bytes | memoryview, value: int) -> int:
    return zlib.crc32(data, value)


CODEC = EntryCodec(crc)


def config_of(member_count: int = 3, **changes: Any) -> Config:
    ids = tuple(f"n{i}" for i in range(member_count))
    return Config(group="g", self_id="n0", members=ids, timing_with_java=SLOW, **changes)


def run_of(
    terms: Sequence[int], *, first_index: int = 0, position: int = 0, salt: bytes = b""
) -> list[EntrySlice]:
    """One run of one entry for each term; equal arguments give equal entries."""
    runs: list[EntrySlice] = []
    chain_crc = 0
    for index, term in enumerate(terms, first_index):
        body = b"%d of %d" % (index, term) + salt
        position = place(position, 48 + len(body), SEGMENT_BYTES)
        entry = CODEC.encode(
            [body],
            first_index=index,
            term=term,
            position=position,
            previous_chain_crc=chain_crc,
        )
        runs.append(entry)
        position, chain_crc = entry.end_position, entry.last_chain_crc
    return runs


def joined(runs: Sequence[EntrySlice]) -> EntrySlice:
    """Several consecutive runs of one segment as one."""
    starts = [run.position - runs[0].position for run in runs]
    return EntrySlice(
        b"".join(bytes(run.data) for run in runs),
        starts,
        first_index=runs[0].first_index,
        first_term=runs[0].first_term,
        last_term=runs[-1].last_term,
        position=runs[0].position,
        last_chain_crc=runs[-1].last_chain_crc,
    )


def disk_of(terms: Sequence[int], *, checkpoint: int = -1, salt: bytes = b"") -> DLedgerMemoryStore:
    disk = DLedgerMemoryStore(SEGMENT_BYTES)
    for run in run_of(terms, salt=salt):
        disk.append(run)
    disk.write_checkpoint(checkpoint)
    return disk


class Lab:
    """One member n0 and the pens of its peers n1, n2, ..."""

    def __init__(
        self,
        terms: Sequence[int] = (),
        *,
        term: int = 0,
        voted_for: str | None = None,
        member_count: int = 3,
        dialect: PeerDialect = PeerDialect.LEDGERMQ,
        checkpoint: int = -1,
        opening: bool = True,
        recovering: bool = False,
        is_new: bool = False,
        birth: Birth | None = None,
        disk: DLedgerMemoryStore | None = None,
        **changes: object,
    ) -> None:
        self.disk = disk if disk is not None else disk_of(terms, checkpoint=checkpoint)
        self.now_ms = 0.0
        self.config = config_of(member_count, **changes)
        self.raft = Raft(
            self.config,
            self.disk,
            CODEC,
            HardState(term, voted_for, birth),
            random.Random(1),
            0.0,
            opening_body=(lambda term, last: b"open %d" % term) if opening else None,
            recovering=recovering,
            is_new=is_new,
        )
        self.dialects = dict.fromkeys(self.config.peer_ids, dialect)
        for peer_id in self.config.peer_ids:
            self.raft.set_dialect(peer_id, dialect)
        self.hard_state = HardState(term, voted_for, birth)
        self.committed: list[tuple[int, int]] = []
        # What it tells of itself when a connection opens.
        self.reports = self.work()

    def work(self, *, persist: bool = True) -> list[Message]:
        """Carries out all Ready values and returns the messages; `persist` as if synced at once."""
        out: list[Message] = []
        while (ready := self.raft.take_ready()) is not None:
            out += self.carry_out(ready)
            if persist:
                if ready.persist_id is not None:
                    self.raft.persisted(ready.persist_id)
                out += ready.messages_after_persist
        return out

    def carry_out(self, ready: Ready) -> list[Message]:
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        if ready.truncate_from is not None:
            self.disk.truncate(ready.truncate_from)
        if ready.reset_to is not None:
            self.disk.reset(*ready.reset_to)
        for run in ready.entries:
            self.disk.append(run)
        if ready.committed is not None:
            self.committed.append(ready.committed)
            self.raft.applied(ready.committed[1] - 1)
        return ready.messages

    def take(self, message: Message) -> list[Message]:
        self.raft.receive(message, self.now_ms)
        return self.work()

    def pass_time(self, milliseconds: float) -> list[Message]:
        """Ticks whenever the core wants to be, for so long."""
        end_ms = self.now_ms + milliseconds
        out = self.work()
        while (deadline_ms := self.raft.deadline_ms()) <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.raft.tick(self.now_ms)
            out += self.work()
        self.now_ms = end_ms
        return out

    def until_asked(self, *, pre_vote: bool) -> list[VoteRequest]:
        """Passes time until the member asks for votes; returns what it asks."""
        for _ in range(50):
            self.now_ms = max(self.now_ms, self.raft.deadline_ms())
            self.raft.tick(self.now_ms)
            asked = [m for m in self.work() if isinstance(m, VoteRequest)]
            if asked and asked[0].pre_vote is pre_vote:
                return asked
        raise AssertionError("it never asks")

    def elect(self) -> list[Message]:
        """Makes the member a leader by the votes of n1 (and n2 in a group of five)."""
        voters = self.config.peer_ids[: self.config.quorum_count - 1]
        out: list[Message] = []
        is_java = PeerDialect.JAVA in self.dialects.values()
        asked = self.until_asked(pre_vote=not is_java)[0]
        if asked.pre_vote:
            for voter in voters:
                out = self.take(granted(asked, voter))
            asked = next(m for m in out if isinstance(m, VoteRequest))
        for voter in voters:
            out = self.take(granted(asked, voter))
        return out


def granted(request: VoteRequest, voter: str) -> VoteResponse:
    return VoteResponse(
        term=request.term - 1 if request.pre_vote else request.term,
        sender=voter,
        target=request.sender,
        result=VoteResult.ACCEPT,
        round_term=request.term,
        pre_vote=request.pre_vote,
    )


def vote(term: int, last: EntryId, *, sender: str = "n1", pre_vote: bool = False) -> VoteRequest:
    return VoteRequest(
        term=term,
        sender=sender,
        target="n0",
        last_index=last.index,
        last_term=last.term,
        pre_vote=pre_vote,
    )


def beat(
    term: int,
    *,
    sender: str = "n1",
    commit_index: int | None = None,
    read_round: int = 1,
    life: int = 0,
) -> HeartBeatRequest:
    return HeartBeatRequest(
        term=term,
        sender=sender,
        target="n0",
        commit_index=commit_index,
        read_round=read_round,
        life=life,
    )


def append(
    term: int,
    entries: EntrySlice,
    previous: EntryId | None,
    *,
    sender: str = "n1",
    commit_index: int = -1,
    request_id: int = 1,
    wants_sync: bool = False,
) -> AppendRequest:
    return AppendRequest(
        term=term,
        sender=sender,
        target="n0",
        entries=entries,
        previous=previous,
        commit_index=commit_index,
        request_id=request_id,
        wants_sync=wants_sync,
    )


def compare(
    term: int, entry: EntrySlice, *, sender: str = "n1", commit_index: int = -1
) -> CompareRequest:
    return CompareRequest(
        term=term, sender=sender, target="n0", entry=entry, commit_index=commit_index, request_id=2
    )


def truncate(
    term: int, entry: EntrySlice, *, sender: str = "n1", commit_index: int = -1
) -> TruncateRequest:
    return TruncateRequest(
        term=term, sender=sender, target="n0", entry=entry, commit_index=commit_index, request_id=3
    )


def commit(term: int, commit_index: int, *, sender: str = "n1") -> CommitRequest:
    return CommitRequest(
        term=term, sender=sender, target="n0", commit_index=commit_index, request_id=4
    )


def only_push_response(messages: Sequence[Message]) -> PushResponse:
    (response,) = [m for m in messages if isinstance(m, PushResponse)]
    return response


def only_vote_response(messages: Sequence[Message]) -> VoteResponse:
    (response,) = [m for m in messages if isinstance(m, VoteResponse)]
    return response


def only_beat_response(messages: Sequence[Message]) -> HeartBeatResponse:
    (response,) = [m for m in messages if isinstance(m, HeartBeatResponse)]
    return response


def appends_of(messages: Sequence[Message], target: str = "n1") -> list[AppendRequest]:
    return [m for m in messages if isinstance(m, AppendRequest) and m.target == target]


def acked(request: AppendRequest) -> PushResponse:
    return answer_to(request, 200, end_index=request.entries.last_index)


def answer_to(
    request: AppendRequest | CompareRequest | TruncateRequest,
    code: int,
    *,
    end_index: int,
    begin_index: int = 0,
    recovering: bool = False,
    is_synced: bool = True,
) -> PushResponse:
    entries = request.entries if isinstance(request, AppendRequest) else request.entry
    kinds = {
        AppendRequest: PushKind.APPEND,
        CompareRequest: PushKind.COMPARE,
        TruncateRequest: PushKind.TRUNCATE,
    }
    return PushResponse(
        term=request.term,
        sender=request.target,
        target=request.sender,
        kind=kinds[type(request)],
        code=DLedgerCode(code),
        index=entries.first_index,
        count=entries.count,
        begin_index=-1 if end_index < 0 else begin_index,
        end_index=end_index,
        request_id=request.request_id,
        recovering=recovering,
        is_synced=is_synced,
    )
