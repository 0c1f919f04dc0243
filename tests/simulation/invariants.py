"""The safety statements of Raft as a watcher of the whole group, checked after every event.

It sees each disk write and each member's state, never what a member believes of another. The names
are those of the paper; the numbers I1 .. I13 those used in failure texts.
"""

from collections.abc import Mapping

from ledgermq.dledger.member_state import Role
from ledgermq.dledger.storage import HardState
from tests.simulation.member import SimMember


class Violation(AssertionError):
    """A statement does not hold."""


def demand(holds: bool, statement: str, *facts: object) -> None:
    if not holds:
        raise Violation(f"{statement}: {facts}")


class Invariants:
    """What the group did so far, and what must therefore never change."""

    def __init__(self, members: Mapping[str, SimMember]) -> None:
        self._members = members
        self._leaders: dict[int, str] = {}
        self._votes: dict[tuple[str, int], str] = {}
        # (index, term) -> (term of the entry before, body); and index -> (term, body) once
        # committed.
        self._entries: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        self._commit_terms: dict[int, int] = {}
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._leading: dict[str, int] = {}
        self._disk_terms: dict[str, int] = {}

    def on_disk(self, member_id: str, event: str, index: int) -> None:
        """Watches writes: I5 Log Matching, I10 nothing committed is cut."""
        member = self._members[member_id]
        disk = member.disk
        if event == "append":
            for i in range(index, disk.last_index + 1):
                entry = disk.entries[i - disk.first_index]
                before = disk.term_at(i - 1) if i > disk.first_index else None
                body = bytes(next(iter(entry.bodies())))
                known = self._entries.get((i, entry.first_term))
                if known is None:
                    # A log that begins here does not tell what was before; another one may.
                    before = -1 if i == 0 else before
                    self._entries[i, entry.first_term] = (-2 if before is None else before, body)
                else:
                    demand(known[1] == body, "I5 equal index and term, other body", member_id, i)
                    demand(
                        before is None or known[0] in (-2, before), "I5 other prefix", member_id, i
                    )
                if before is not None:
                    demand(before <= entry.first_term, "I5 terms fall", member_id, i)
        elif event == "truncate" and member.raft is not None:
            # As it was before this event: the core may have gone on since it ordered the cut.
            commit_index = self._seen.get(member_id, (-1, -1, -1))[1]
            demand(index > commit_index, "I10 committed entry cut", member_id, index, commit_index)
            demand(member.raft.role is not Role.LEADER, "I4 leader cuts its log", member_id, index)

    def on_started(self, member_id: str) -> None:
        """A member starts anew: I9 holds from what its disk says."""
        self._seen.pop(member_id, None)
        self._leading.pop(member_id, None)

    def on_wiped(self, member_id: str) -> None:
        """A disk was replaced: its term and votes are forgotten, by permission."""
        self._disk_terms.pop(member_id, None)
        for key in [key for key in self._votes if key[0] == member_id]:
            del self._votes[key]

    def check(self, member_id: str) -> None:
        """Checks what one event may have changed at one member."""
        member = self._members[member_id]
        raft = member.raft
        if raft is None:
            return
        state = (raft.term, raft.commit_index, raft.last_index)
        if self._seen.get(member_id) == state and raft.role is not Role.LEADER:
            return
        old_term, old_commit, _ = self._seen.get(member_id, (-1, -1, -1))
        demand(raft.term >= old_term, "I3 term falls", member_id, old_term, raft.term)
        demand(raft.commit_index >= old_commit, "I9 commit index falls", member_id, old_commit)
        demand(raft.commit_index <= raft.last_index, "I9 committed behind the end", member_id)
        self._check_vote(member_id, member.disk.hard_state)
        became_leader = False
        if raft.role is Role.LEADER:
            known = self._leaders.setdefault(raft.term, member_id)
            demand(known == member_id, "I1 two leaders", raft.term, known, member_id)
            became_leader = self._leading.get(member_id) != raft.term
            self._leading[member_id] = raft.term
        if became_leader:
            self._check_complete(member_id)
        if raft.commit_index > old_commit:
            self._check_committed(member, max(old_commit + 1, member.disk.first_index))
        self._seen[member_id] = state

    def _check_vote(self, member_id: str, hard_state: HardState | None) -> None:
        if hard_state is None:
            return
        disk_term = self._disk_terms.get(member_id, -1)
        demand(hard_state.term >= disk_term, "I3 saved term falls", member_id, hard_state)
        self._disk_terms[member_id] = hard_state.term
        if hard_state.voted_for is not None:
            key = (member_id, hard_state.term)
            known = self._votes.setdefault(key, hard_state.voted_for)
            demand(known == hard_state.voted_for, "I2 voted twice", key, known, hard_state)

    def _check_complete(self, leader_id: str) -> None:
        """I6 Leader Completeness: entries committed in earlier terms are in a new leader's log."""
        member = self._members[leader_id]
        disk, term = member.disk, member.running.term
        for index, (entry_term, _) in self.committed.items():
            if self._commit_terms[index] < term and index >= disk.first_index:
                demand(index <= disk.last_index, "I6 leader lacks", leader_id, term, index)
                demand(disk.term_at(index) == entry_term, "I6 leader differs", leader_id, index)

    def _check_committed(self, member: SimMember, start_index: int) -> None:
        """I7 State Machine Safety on every member, I8 the commit rule on a leader."""
        raft, disk = member.running, member.disk
        for index in range(start_index, raft.commit_index + 1):
            entry = disk.entries[index - disk.first_index]
            value = (entry.first_term, bytes(next(iter(entry.bodies()))))
            known = self.committed.get(index)
            if known is not None:
                demand(known == value, "I7 committed entry differs", member.id, index, known, value)
                continue
            demand(raft.role is Role.LEADER, "I8 committed first by a follower", member.id, index)
            self.committed[index] = value
            self._commit_terms[index] = raft.term
        if raft.role is Role.LEADER and raft.commit_index >= start_index:
            self._check_rule(member, raft.commit_index)

    def _check_rule(self, leader: SimMember, index: int) -> None:
        value = self.committed[index]
        holders = 0
        for member in self._members.values():
            disk = member.disk
            end = disk.synced_index if member.sync_flush else disk.last_index
            if index < disk.first_index or (index <= end and disk.term_at(index) == value[0]):
                holders += 1
        quorum = len(self._members) // 2 + 1
        demand(holders >= quorum, "I8 no majority on disk", leader.id, index, holders)
        demand(
            value[0] == leader.running.term or holders == len(self._members),
            "I8 old-term entry counted",
            leader.id,
            index,
        )
