"""What a batch must have met, and the watcher of what no other part sees by itself.

A simulator that no longer meets something is as bad as one that fails. The floors are for 1,500
seeds; a batch of another size has them in proportion. Counters without a floor are for people.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from ledgermq.dledger.leader import Leader
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import (
    DLedgerCode,
    LinkMessage,
    PushKind,
    PushResponse,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.raft import Raft
from ledgermq.testing.simulation.member import SimMember

FLOOR_SEEDS: Final = 1_500
FLOORS: Final[Mapping[str, int]] = {
    "election": 5_000,
    "election lost to a better log": 100,
    "split vote": 100,
    "two leaders alive in different terms": 150,
    "leader ended before its opening record was committed": 200,
    "old-term tail committed through an opening record": 200,
    # 1,000 are wanted.
    "truncation": 550,
    "truncation of 3 or more entries after a double leader change": 50,
    "truncation across segments": 20,
    "push refused as stale": 100,
    "crash between write and rename of the vote file": 50,
    "crash inside a segment roll": 50,
    "torn record at tail": 200,
    "rot found in data": 150,
    "rot found in index": 50,
    "rot found in checkpoint": 50,
    "rot found in vote file": 50,
    "rot found in CQ": 50,
    "RECOVERING entered": 100,
    "RECOVERING left": 80,
    "write EIO hit": 200,
    "write overlapped a sync": 10_000,
    "turn between begin and end": 100_000,
    "fsync EIO hit": 200,
    "ENOSPC hit": 100,
    "reset at begin index": 20,
    "wiped member rejoined": 50,
    "clock jump while leading": 100,
    "all nodes power-cut at once": 100,
    "answer of an older request ignored": 100,
    "leadership ended by a disk fault": 50,
    "consumer offset read from new leader": 500,
    "CQ rebuilt": 200,
    "bridge partition with leader on one arm": 100,
    "three elections within one election timeout": 50,
    # Beyond the list of the fault model.
    "transfer begun": 150,
    "leader hands over": 50,
    "member stopped by an assertion": 50,
    "configuration acknowledged": 500,
    "configuration removed": 100,
    "rules acknowledged": 1_000,
    "planned delivery": 3_000,
    "offset acknowledged": 2000,
    "offset told": 20_000,
    "offset told by a follower": 2_000,
    "question to a follower that its leader did not answer": 500,
    "question for an offset not answered": 3_000,
    "two members take themselves for leaders": 40,
    "same state on two members": 20_000,
    "state changed while it was encoded": 2_000,
    "queue changed hands": 500,
    "program replaced": 300,
    "next format written": 40,
    "way back before the next format was written": 60,
    "older program ended by a record of the next format": 5,
    "older program refused at the greeting": 2,
    "offsets expired": 500,
    "offset forgotten with its topic": 3_000,
    "removed configuration came back": 100,
    "part of a snapshot's entry that goes on": 100,
    "later part of a snapshot's entry": 100,
    "delivery cursor told by a snapshot": 2_000,
    "stop inside the replacement of a file: write_text": 80,
    "stop inside the replacement of a file: sync_text": 80,
    "stop inside the replacement of a file: rename": 80,
    "unsynced small file torn": 150,
    "name of a small file lost": 150,
    "read EIO hit": 400,
    "read error in data": 15,
    "read error in checkpoint": 40,
    "read error in vote file": 20,
    "rot in state file": 20,
    "disk hangs": 300,
    "member list changed in a configuration": 80,
    "start with another member list refused": 200,
    "power cut with different flush modes": 60,
    "derived files made again, equal bytes": 500,
    "segments dropped": 100,
    "kill": 2_000,
    "power cut": 2_000,
    "pause": 500,
    "stop inside an operation": 500,
    "stopped in order": 300,
    "starved": 500,
    "all members starved at once": 400,
    "second of a member with more patience than configured": 30,
    "process of a peer found ended": 10_000,
    "member started late": 200,
    "group born": 700,
    "birth brought by a leader": 500,
    "majority on empty disks": 40,
    "all stores older than births": 10,
    "older store born": 20,
    "birth forgotten": 3,
}
_BETTER_LOG: Final = (
    VoteResult.REJECT_SMALL_LEDGER_END_INDEX,
    VoteResult.REJECT_EXPIRED_LEDGER_TERM,
)


def floors_of(seed_count: int) -> dict[str, int]:
    """Returns what a batch of so many seeds must have met."""
    return {name: floor * seed_count // FLOOR_SEEDS for name, floor in FLOORS.items()}


class Coverage:
    """Counts what elections, answers and ends of processes were like."""

    def __init__(self, election_timeout_ms: float, hit: Callable[[str], None]) -> None:
        """Nothing has happened yet."""
        self._election_timeout_ms = election_timeout_ms
        self._hit = hit
        # Candidates and their terms that were refused for a log that is not as good.
        self._refused: set[tuple[str, int]] = set()
        self._elected_ms: deque[float] = deque(maxlen=3)
        self._wiped: set[str] = set()
        # Kinds of files of each member that rotted and were not found yet.
        self._rotten: dict[str, set[str]] = {}

    def on_sent(self, message: LinkMessage) -> None:
        """A message leaves a process."""
        if isinstance(message, VoteResponse):
            if message.result in _BETTER_LOG:
                self._refused.add((message.target, message.round_term))
        elif isinstance(message, PushResponse) and message.code is DLedgerCode.INCONSISTENT_TERM:
            if message.kind in (PushKind.APPEND, PushKind.TRUNCATE):
                self._hit("push refused as stale")

    def on_arrived(self, raft: Raft, response: PushResponse) -> None:
        """A push answer comes to a member: may be one that it no longer waits for."""
        duty = raft._duty
        if not isinstance(duty, Leader) or response.term > raft.term:
            return
        dispatcher = duty._dispatchers[response.sender]
        request_id, asked = response.request_id, dispatcher._asked
        if response.term == raft.term:
            if response.kind is PushKind.APPEND:
                if request_id in dispatcher._in_flight or request_id in dispatcher._late:
                    return
            elif response.kind is PushKind.COMMIT:
                return
            elif asked is not None and asked.request_id == request_id:
                return
        self._hit("answer of an older request ignored")

    def on_elected(self, now_ms: float) -> None:
        """A member has become leader."""
        times = self._elected_ms
        times.append(now_ms)
        if len(times) == 3 and now_ms - times[0] <= self._election_timeout_ms:
            self._hit("three elections within one election timeout")
            times.clear()

    def on_look(self, raft: Raft) -> None:
        """A second is over."""
        if raft._pace.stretch(raft.config.timing) > 1.0:
            self._hit("second of a member with more patience than configured")

    def on_cut(self, raft: Raft) -> None:
        """A follower cuts its log."""
        if any(proven < entry_id.index for entry_id, proven in raft._log._outstanding):
            self._hit("sync proves less, entries were cut meanwhile")

    def on_end(self, member: SimMember) -> None:
        """A process is about to end."""
        raft = member.raft
        if raft is not None and raft.role is Role.LEADER and not raft.is_ready_leader:
            self._hit("leader ended before its opening record was committed")

    def on_rot(self, member_id: str, kind: str) -> None:
        """A file of a member rotted."""
        self._rotten.setdefault(member_id, set()).add(kind)

    def on_found(self, member_id: str, kind: str) -> None:
        """A member has come upon damage of this kind."""
        if kind in self._rotten.get(member_id, ()):
            self._rotten[member_id].discard(kind)
            self._hit(f"rot found in {kind}")

    def on_found_in_log(self, member_id: str) -> None:
        """An entry and its index unit disagree, or one of them is bad."""
        is_index = "data" not in self._rotten.get(member_id, ())
        self.on_found(member_id, "index" if is_index else "data")

    def on_wiped(self, member_id: str) -> None:
        """A disk was replaced by an empty one."""
        self._wiped.add(member_id)
        self._rotten.pop(member_id, None)

    def on_recovered(self, member_id: str) -> None:
        """A member votes and counts again."""
        if member_id in self._wiped:
            self._wiped.discard(member_id)
            self._hit("wiped member rejoined")

    def on_over(self, leaders: Mapping[int, str], votes: Mapping[tuple[str, int], str]) -> None:
        """The run is over: which elections failed, and why."""
        for candidate, term in self._refused:
            if leaders.get(term) != candidate:
                self._hit("election lost to a better log")
        standing: dict[int, int] = {}
        for (member_id, term), voted_for in votes.items():
            if member_id == voted_for:
                standing[term] = standing.get(term, 0) + 1
        for term, count in standing.items():
            if count >= 2 and term not in leaders:
                self._hit("split vote")
