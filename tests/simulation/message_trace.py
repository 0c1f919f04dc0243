"""Cores on stores in memory, and messages that move only when a command says so.

A trace is a text of commands, each behind `> `, with all that happens printed below it:

    group N                  a new group of N LedgerMQ members
    campaign ID              time passes for ID until it leads; only votes and their answers move
    propose ID COUNT         the leader ID takes proposals
    transfer ID ID           the leader, named first, hands over to the other one
    deliver [ID ID]          messages move until none is left (between two members only)
    drop                     all messages under way are lost
    cut ID [ID ...]          these members are cut off from all others; `cut` alone heals
    crash ID, start ID       the process ends at once; it starts again on its disk
    beat ID                  time passes until ID sends its next heart beats
    wait MS                  time passes for all, in steps of 100 ms, and all messages move
    state                    a line for each member
"""

import random
from collections.abc import Callable

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.config import Config
from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import (
    AppendRequest,
    BirthReport,
    CommitRequest,
    CompareRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PeerDialect,
    PushResponse,
    TransferRequest,
    TransferResponse,
    TruncateRequest,
    VoteRequest,
    VoteResponse,
)
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.storage import HardState
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore
from ledgermq.protocol.checksum import crc32c

# Of each group, before its first election: traces tell of what comes after that.
_BIRTH = Birth("0" * 32, ("n0",), is_agreed=True)


def tell(message: Message) -> str:
    """A message as a line of a trace."""
    way = f"{message.sender}>{message.target}"
    match message:
        case VoteRequest():
            kind = "PRE_VOTE" if message.pre_vote else "VOTE"
            return f"{way} {kind} term {message.term} end {message.last_term}/{message.last_index}"
        case VoteResponse():
            kind = "PRE_VOTE" if message.pre_vote else "VOTE"
            return f"{way} {kind} answer {message.result.name}"
        case HeartBeatRequest():
            return f"{way} HEART_BEAT term {message.term} commit {message.commit_index}"
        case HeartBeatResponse():
            return f"{way} HEART_BEAT answer {int(message.code)} term {message.term}"
        case AppendRequest():
            entries, previous = message.entries, message.previous
            at = "?" if previous is None else f"{previous.term}/{previous.index}"
            span = f"{entries.first_index}..{entries.last_index}"
            return f"{way} APPEND {span} after {at} commit {message.commit_index}"
        case CompareRequest():
            return f"{way} COMPARE {message.entry.first_term}/{message.entry.first_index}"
        case TruncateRequest():
            return f"{way} TRUNCATE {message.entry.first_term}/{message.entry.first_index}"
        case CommitRequest():
            return f"{way} COMMIT {message.commit_index}"
        case PushResponse():
            return f"{way} {message.kind.name} answer {int(message.code)} end {message.end_index}"
        case TransferRequest():
            return f"{way} TRANSFER term {message.term} end {message.last_index}"
        case TransferResponse():
            return f"{way} TRANSFER answer {int(message.code)} term {message.term}"
        case BirthReport():
            return f"{way} BIRTH {message.birth}"


class TraceMember:
    """A core with what outlives it; all that it writes is durable at once."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.id = config.self_id
        self.store = DLedgerMemoryStore()
        self.hard_state: HardState | None = HardState(0, None, _BIRTH)
        # None while it is down.
        self.raft: Raft | None = None

    @property
    def running(self) -> Raft:
        assert self.raft is not None
        return self.raft

    def start(self, rng: random.Random, now_ms: float) -> None:
        self.raft = Raft(
            self.config,
            self.store,
            EntryCodec(crc32c),
            self.hard_state,
            random.Random(rng.random()),
            now_ms,
            opening_body=lambda term, last: b"open %d" % term,
        )
        for peer_id in self.config.peer_ids:
            self.raft.set_dialect(peer_id, PeerDialect.LEDGERMQ)

    def work(self) -> list[Message]:
        """Carries out what the core wants; returns the messages to send."""
        raft, store = self.running, self.store
        out: list[Message] = []
        while (ready := raft.take_ready()) is not None:
            self.hard_state = ready.hard_state or self.hard_state
            if ready.truncate_from is not None:
                store.truncate(ready.truncate_from)
            if ready.reset_to is not None:
                store.reset(*ready.reset_to)
            for entries in ready.entries:
                store.append(entries)
            out += ready.messages
            if ready.persist_id is not None:
                raft.persisted(ready.persist_id)
            if ready.committed is not None:
                raft.applied(ready.committed[1] - 1)
                store.write_checkpoint(ready.committed[1] - 1)
            out += ready.messages_after_persist
        return out


class TraceStage:
    """The members, the messages under way, and the lines since the last command."""

    def __init__(self) -> None:
        self.members: dict[str, TraceMember] = {}
        self.under_way: list[Message] = []
        self.now_ms = 0.0
        self._apart: set[str] = set()
        self._rng = random.Random(8)
        self._lines: list[str] = []
        self._commands: dict[str, Callable[..., None]] = {
            "group": self._group,
            "campaign": self._campaign,
            "propose": self._propose,
            "transfer": self._transfer,
            "deliver": self._deliver,
            "drop": self._drop,
            "wait": self._wait,
            "cut": self._cut,
            "crash": self._crash,
            "start": self._start,
            "beat": self._beat,
            "state": self._state,
        }

    def run(self, command: str) -> list[str]:
        """Runs one command and returns what happened."""
        self._lines = []
        name, *arguments = command.split()
        self._commands[name](*arguments)
        return self._lines

    def _group(self, count: str) -> None:
        ids = tuple(f"n{i}" for i in range(int(count)))
        for member_id in ids:
            config = Config(group="g", self_id=member_id, members=ids)
            self.members[member_id] = TraceMember(config)
            self._start(member_id)

    def _start(self, member_id: str) -> None:
        self.members[member_id].start(self._rng, self.now_ms)

    def _crash(self, member_id: str) -> None:
        self.members[member_id].raft = None
        self.under_way = [m for m in self.under_way if m.target != member_id]
        for member in self.members.values():
            if member.raft is not None:
                member.raft.unreachable(member_id)

    def _drop(self) -> None:
        self.under_way.clear()

    def _wait(self, milliseconds: str) -> None:
        end_ms = self.now_ms + int(milliseconds)
        while self.now_ms < end_ms:
            self._pass(self.now_ms + 100)
            for member in self.members.values():
                if member.raft is not None:
                    member.raft.tick(self.now_ms)
                    self._work(member)
            self._deliver()

    def _cut(self, *member_ids: str) -> None:
        self._apart = set(member_ids)

    def _work(self, member: TraceMember) -> None:
        for message in member.work():
            if (message.sender in self._apart) is (message.target in self._apart):
                self.under_way.append(message)

    def _pass(self, now_ms: float) -> None:
        """Time passes; all are there, though only one acts: nobody is late."""
        self.now_ms = now_ms
        for member in self.members.values():
            if member.raft is not None:
                member.raft._pace.enter(now_ms, now_ms)

    def _tick(self, member: TraceMember) -> None:
        self._pass(max(self.now_ms, member.running.deadline_ms()))
        member.running.tick(self.now_ms)
        self._work(member)

    def _campaign(self, member_id: str) -> None:
        member = self.members[member_id]
        for _ in range(20):
            if member.running.role is Role.LEADER:
                return
            self._tick(member)
            self._move(lambda m: isinstance(m, VoteRequest | VoteResponse))

    def _beat(self, member_id: str) -> None:
        member = self.members[member_id]
        while not any(isinstance(m, HeartBeatRequest) for m in self.under_way):
            self._tick(member)

    def _propose(self, member_id: str, count: str) -> None:
        member = self.members[member_id]
        member.running.propose([b"body"] * int(count), self.now_ms)
        self._work(member)

    def _transfer(self, member_id: str, target_id: str) -> None:
        member = self.members[member_id]
        member.running.transfer(target_id, self.now_ms)
        self._work(member)

    def _deliver(self, *pair: str) -> None:
        self._move(lambda m: not pair or {m.sender, m.target} == set(pair))

    def _move(self, wanted: Callable[[Message], bool]) -> None:
        for _ in range(1000):
            message = next((m for m in self.under_way if wanted(m)), None)
            if message is None:
                return
            self.under_way.remove(message)
            target = self.members[message.target]
            if target.raft is None:
                continue
            self._lines.append(tell(message))
            target.raft.receive(message, self.now_ms)
            self._work(target)
        raise AssertionError("messages without end")

    def _state(self) -> None:
        for member in self.members.values():
            store, raft = member.store, member.raft
            terms = "".join(str(store.term_at(i)) for i in range(store.last_index + 1))
            if raft is None:
                self._lines.append(f"{member.id} down log {terms}")
            else:
                self._lines.append(
                    f"{member.id} {raft.role.name} term {raft.term} log {terms} "
                    f"commit {raft.commit_index}"
                )
