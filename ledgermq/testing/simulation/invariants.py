"""The safety statements of Raft, as a watcher of the whole group that is asked after every event.

It sees what each disk holds, each message that leaves a process and the state of each core; never
what one member believes of another, but to compare it with the other's disk. Texts of failures
begin with the number of the statement:

    I1  one leader a term                     I8   the commit rule, asked of the disks
    I2  one vote a term                       I9   commit index never falls
    I3  terms never fall                      I10  what is committed is never cut, nor an entry of
    I4  a leader only appends                      the leader who orders the cut
    I5  equal index and term: equal logs      I11  a leader's match index is true
    I6  a leader has what is committed        I13  a member that lost its state stays silent
    I7  one entry for each committed index    I14  all disks are equal at the end
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ledgermq.dledger.entry import EntrySlice
from ledgermq.dledger.leader import Leader
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import (
    DLedgerCode,
    LinkMessage,
    PushResponse,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.storage import HardState
from ledgermq.dledger.store.errors import CorruptStoreError
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.testing.simulation.member import SimMember

_UNKNOWN: Final = -2


class Violation(AssertionError):
    """A statement does not hold."""


def demand(holds: bool, statement: str, *facts: object) -> None:
    """Raises Violation, with the facts, unless the statement holds."""
    if not holds:
        raise Violation(f"{statement}: {facts}")


class Placed(NamedTuple):
    """An entry that was once appended somewhere."""

    # Term of the entry before it; _UNKNOWN when the log began with it.
    previous_term: int
    position: int
    body: bytes


class Loss(NamedTuple):
    """What a disk held when it was lost, or damaged."""

    # Of the member: leaders of this term and before may have heard of what it held.
    term: int
    # What was before it had gone by retention.
    first_index: int
    # Terms by index.
    held: dict[int, int]


class Aside(NamedTuple):
    """What was known of a disk that was taken out, and will be put back."""

    loss: Loss
    disk_term: int
    acked: int
    rotten: dict[int, int] | None


class RaftWatch:
    """What the group did so far, and what must therefore never change."""

    def __init__(
        self,
        members: Mapping[str, SimMember],
        *,
        hit: Callable[[str], None],
        on_committed: Callable[[int, Placed], None],
    ) -> None:
        """Begins with nothing.

        Args:
            members: of the group.
            hit: counts what was met.
            on_committed: told of each entry when it is committed for the first time.
        """
        self._members = members
        self._hit = hit
        self._on_committed = on_committed
        # Who led each term, and whom each member voted for in it.
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.entries: dict[tuple[int, int], Placed] = {}
        # Term of each committed index, and the leader's term when it was first committed.
        self.committed: dict[int, int] = {}
        self._commit_terms: dict[int, int] = {}
        self.commit_index = -1
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._leading: dict[str, int] = {}
        # Terms of those that led when they were last looked at.
        self._led: dict[str, int] = {}
        self._disk_terms: dict[str, int] = {}
        self._matches: dict[tuple[str, str], int] = {}
        # First index of each member as it was last seen.
        self.first_indexes: dict[str, int] = {}
        # Members that lost their disk once; what they acknowledged before may be gone.
        self.losers: set[str] = set()
        self._losses: dict[str, list[Loss]] = {}
        # Members that run on an empty disk while theirs is out.
        self.aside: set[str] = set()
        # Who has not met a member again since its disk was put back: answers from before, which
        # told of the other disk, may still be read.
        self._not_met: set[tuple[str, str]] = set()
        # What stood on a disk before it rotted, terms by index, and may be unreadable since: its
        # member goes on as if it were there, until it finds out.
        self._rotten: dict[str, dict[int, int]] = {}
        # Up to which index each member has said, or counted, that it holds the log.
        self._acked: dict[str, int] = {}
        # Index that a member must hold again before it may vote.
        self._needed: dict[str, int] = {}

    # -- what the world tells

    def on_change(
        self, member: SimMember, what: str, index: int, entries: EntrySlice | None
    ) -> None:
        """A log changes: I4, I5, I10."""
        store = member.store
        assert store is not None
        if what == "append":
            assert entries is not None
            before = store.term_at(index - 1) if index > store.first_index else _UNKNOWN
            self._learn(member, entries, -1 if index == 0 else before)
            return
        self._acked[member.id] = min(self._acked.get(member.id, -1), index - 1)
        rotten = self._rotten.get(member.id, {})
        self._rotten[member.id] = {i: t for i, t in rotten.items() if what != "reset" and i < index}
        raft = member.raft
        replica = member.replica
        # What the driver had been told before: the commit of this very step comes after the cut.
        commit_index = replica._applying._committed_end - 1 if replica is not None else -1
        if what == "truncate" and raft is not None:
            demand(index > commit_index, "I10 committed entry cut", member.id, index, commit_index)
            demand(raft.role is not Role.LEADER, "I4 leader cuts its log", member.id, index)
            is_own = store.last_term == raft.term and raft.leader_id is not None
            demand(not is_own, "I10 cut of an entry of the present leader", member.id, index)
            self._hit("truncation")
            if store.last_index - index >= 2:
                self._hit("truncation of 3 or more entries")
                if sum(term > store.last_term for term in self.leaders) >= 2:
                    self._hit("truncation of 3 or more entries after a double leader change")
            first, last = store.position_at(index), store.end_position - 1
            if first // store.segment_bytes != last // store.segment_bytes:
                self._hit("truncation across segments")
        elif what == "reset":
            self._hit("reset at begin index")

    def _learn(self, member: SimMember, entries: EntrySlice, before: int) -> None:
        index = entries.first_index
        for i, body in enumerate(entries.bodies()):
            term = entries.term_at(index + i)
            position = entries.position + entries.starts[i]
            self._compare(member, index + i, term, Placed(before, position, bytes(body)))
            before = term

    def _compare(self, member: SimMember, index: int, term: int, found: Placed) -> None:
        known = self.entries.get((index, term))
        if known is None or known.previous_term == _UNKNOWN:
            demand(known is None or known.body == found.body, "I5 other body", member.id, index)
            self.entries[index, term] = found
        elif known != found:
            is_same = known[1:] == found[1:] and found.previous_term == _UNKNOWN
            demand(is_same, "I5 equal index and term, other log", member.id, index, term)
        demand(found.previous_term <= term, "I5 terms fall", member.id, index)

    def on_started(self, member: SimMember) -> None:
        """A process runs again; its log is one that the group has seen: I5."""
        self._seen.pop(member.id, None)
        self._leading.pop(member.id, None)
        self._led.pop(member.id, None)
        self._forget_matches(member)
        store = member.store
        if store is None or member.replica is None or member.id in self.losers:
            return
        index, before = store.first_index, -1 if store.first_index == 0 else _UNKNOWN
        while index <= store.last_index:
            run = store.read(index, 1 << 20)
            for i, body in enumerate(run.bodies()):
                term = run.term_at(index + i)
                known = self.entries.get((index + i, term))
                demand(known is not None, "I5 entry that nobody wrote", member.id, index + i, term)
                assert known is not None
                is_same = known.body == body and _UNKNOWN in (known[0], before)
                is_same |= known.body == body and known[0] == before
                demand(is_same, "I5 recovered log differs", member.id, index + i, term)
                before = term
            index = run.last_index + 1

    def on_lost(self, member: SimMember, vouched_index: int | None) -> None:
        """A disk is about to lose what it holds, by permission: it must catch up before it votes.

        Args:
            member: that lost it.
            vouched_index: up to which index damage can be told from a torn end; None: all is gone.
        """
        self.losers.add(member.id)
        loss = self._loss_of(member)
        self._losses.setdefault(member.id, []).append(loss)
        self._rotten[member.id] = {} if vouched_index is None else loss.held
        needed = min(self.commit_index, self._acked.get(member.id, -1))
        if vouched_index is not None:
            needed = min(needed, vouched_index)
        needed = self._last_held(member, needed)
        self._needed[member.id] = max(needed, self._needed.get(member.id, -1))
        self._disk_terms.pop(member.id, None)
        for key in [key for key in self.votes if key[0] == member.id]:
            del self.votes[key]

    def set_aside(self, member: SimMember) -> Aside:
        """A disk is about to be taken out: what it held may be counted, for it comes back; what the
        member does without it may not.
        """
        loss = self._loss_of(member)
        self._losses.setdefault(member.id, []).append(loss)
        self.aside.add(member.id)
        return Aside(
            loss,
            self._disk_terms.pop(member.id, -1),
            self._acked.get(member.id, -1),
            self._rotten.pop(member.id, None),
        )

    def put_back(self, member: SimMember, aside: Aside) -> None:
        """The disk is in its place again."""
        self.aside.discard(member.id)
        self._not_met.update((other_id, member.id) for other_id in self._members)
        self._losses[member.id].remove(aside.loss)
        self._disk_terms[member.id] = aside.disk_term
        self._acked[member.id] = aside.acked
        if aside.rotten is not None:
            self._rotten[member.id] = aside.rotten

    def on_met(self, member_id: str, peer_id: str) -> None:
        """A process has connected to a peer: from now on it hears of the disk that is there."""
        self._not_met.discard((member_id, peer_id))

    def on_damage_found(self, member: SimMember) -> None:
        """A member knows of all damage of its log, and does not vouch for it any more."""
        self._rotten.pop(member.id, None)

    def _loss_of(self, member: SimMember) -> Loss:
        """What a disk holds now."""
        term = max(self._seen.get(member.id, (-1,))[0], self._disk_terms.get(member.id, -1))
        held = {
            index: term
            for (index, term), placed in self.entries.items()
            if self._is_on_disk(
                member, index, term, placed.position, is_synced=member.is_sync_flush
            )
        }
        return Loss(term, self.first_indexes.get(member.id, 0), held)

    def _is_on_disk(
        self, member: SimMember, index: int, term: int, position: int, *, is_synced: bool
    ) -> bool:
        look = member.term_on_platter if is_synced else member.term_in_cache
        return look(index, term, position)

    def _holds(self, leader: Raft, member: SimMember, led_term: int, index: int, term: int) -> bool:
        """Tells whether a leader may count a member's copy of an entry.

        It is on the platter, or in the page cache if the leader does not ask for more; or it was
        when the disk was lost, of which leaders of later terms know.
        """
        position, is_synced = self.entries[index, term].position, leader.config.is_sync_flush
        if self._is_on_disk(member, index, term, position, is_synced=is_synced):
            return True
        if self._rotten.get(member.id, {}).get(index) == term:
            return True
        return any(
            led_term <= loss.term and (index < loss.first_index or loss.held.get(index) == term)
            for loss in self._losses.get(member.id, ())
        )

    def _last_held(self, member: SimMember, index: int) -> int:
        """The last committed entry up to an index that a disk holds: what a member acknowledged in
        an old term, others may have replaced.
        """
        while index >= self.first_indexes.get(member.id, 0):
            term = self.committed[index]
            if member.term_in_cache(index, term, self.entries[index, term].position):
                break
            index -= 1
        return index

    def on_vote_saved(self, member: SimMember, state: HardState) -> None:
        """Term and vote are durable: I2, I3."""
        disk_term = self._disk_terms.get(member.id, -1)
        demand(state.term >= disk_term, "I3 saved term falls", member.id, disk_term, state)
        self._disk_terms[member.id] = state.term
        if state.voted_for is not None:
            known = self.votes.setdefault((member.id, state.term), state.voted_for)
            demand(known == state.voted_for, "I2 voted twice", member.id, known, state)

    def on_sent(self, message: LinkMessage) -> None:
        """A message leaves a process: I2, I13."""
        if isinstance(message, PushResponse):
            if message.code is DLedgerCode.SUCCESS and not message.recovering:
                is_aside = message.sender in self.aside
                demand(not is_aside, "I37 an empty disk acknowledges", message.sender)
                if message.index is not None:
                    before = self._acked.get(message.sender, -1)
                    self._acked[message.sender] = max(before, message.index + message.count - 1)
            return
        if not isinstance(message, VoteResponse) or message.pre_vote:
            return
        if message.result is not VoteResult.ACCEPT:
            return
        sender = self._members[message.sender]
        key = (message.sender, message.round_term)
        demand(message.sender not in self.aside, "I37 an empty disk votes", key, message.target)
        known = self.votes.setdefault(key, message.target)
        demand(known == message.target, "I2 voted for two", key, known, message.target)
        needed = self._needed.get(message.sender)
        if needed is not None:
            store = sender.store
            assert store is not None
            holds = needed < store.first_index or (
                needed <= store.last_index and store.term_at(needed) == self.committed.get(needed)
            )
            demand(holds, "I13 votes without what it may have acknowledged", key, needed)
            del self._needed[message.sender]

    # -- after each event

    def check(self, member: SimMember) -> bool:
        """Checks what one event may have changed at one member.

        Returns:
            Whether term, commit index or end of its log are others than before.
        """
        raft = member.raft
        if raft is None or member.store is None:
            return False
        state = (raft.term, raft.commit_index, raft.last_index)
        self.first_indexes[member.id] = member.store.first_index
        is_leader = raft.role is Role.LEADER
        led_term = self._led_term(member, raft)
        before = self._seen.get(member.id)
        if before == state:
            if is_leader and self._leading.get(member.id) == raft.term:
                self._check_matches(member, raft)
                return False
            if not is_leader:
                return False
        old_term, old_commit, _ = before or (-1, -1, -1)
        demand(raft.term >= old_term, "I3 term falls", member.id, old_term, raft.term)
        demand(raft.commit_index >= old_commit, "I9 commit index falls", member.id, old_commit)
        demand(raft.commit_index <= raft.last_index, "I9 committed behind the end", member.id)
        if is_leader:
            known = self.leaders.setdefault(raft.term, member.id)
            demand(known == member.id, "I1 two leaders", raft.term, known, member.id)
            if self._leading.get(member.id) != raft.term:
                self._leading[member.id] = raft.term
                self._forget_matches(member)
                self._on_elected(member, raft)
            self._check_matches(member, raft)
        if raft.commit_index > old_commit:
            self._check_committed(member, raft, old_commit + 1, led_term)
        self._seen[member.id] = state
        return True

    def known_to(self, term: int) -> int:
        """Returns the last index that was committed in this term or before: what a leader of the
        term knows, which may not have heard of a later one.
        """
        index = self.commit_index
        while index >= 0 and self._commit_terms.get(index, -1) > term:
            index -= 1
        return index

    def look_last(self, member: SimMember) -> None:
        """A process ended in the middle of a step: what it had told others as committed counts,
        also when the same step ended its leadership.
        """
        raft = member.replica._raft if member.replica is not None else None
        before = self._seen.get(member.id)
        if raft is None or before is None:
            return
        led_term = self._led_term(member, raft)
        if led_term is not None:
            self._check_committed(member, raft, before[1] + 1, led_term)

    def _led_term(self, member: SimMember, raft: Raft) -> int | None:
        """The term that the member leads, or led when it was last looked at.

        A member that had a pause takes all that came meanwhile in one step: answers that commit an
        entry, and a higher term that ends its leadership.
        """
        if raft.role is not Role.LEADER:
            return self._led.pop(member.id, None)
        self._led[member.id] = raft.term
        return raft.term

    def _on_elected(self, member: SimMember, raft: Raft) -> None:
        """I6: what was committed in earlier terms is in a new leader's log."""
        self._hit("election")
        others = [
            other.raft
            for other in self._members.values()
            if other is not member and other.raft is not None
        ]
        if any(other.role is Role.LEADER and other.term != raft.term for other in others):
            self._hit("two leaders alive in different terms")
        store = member.store
        assert store is not None
        for index, entry_term in self.committed.items():
            if self._commit_terms[index] < raft.term and index >= store.first_index:
                demand(index <= store.last_index, "I6 leader lacks", member.id, raft.term, index)
                found = store.term_at(index)
                demand(found == entry_term, "I6 leader differs", member.id, index, found)

    def _check_committed(
        self, member: SimMember, raft: Raft, start_index: int, led_term: int | None
    ) -> None:
        """I7 on every member, I8 on a leader, also one that it was until this step."""
        store = member.store
        assert store is not None
        end_index = min(raft.commit_index, store.last_index) + 1
        has_old = False
        for index in range(max(start_index, raft._log.first_index), end_index):
            known = self.committed.get(index)
            try:
                term = raft._log.term_at(index)
            except CorruptStoreError:
                # We looked before the member did: its own look must tell.
                demand(member.id in self.losers, "I14 damage that nobody did", member.id, index)
                continue
            if known is not None:
                demand(known == term, "I7 committed entry differs", member.id, index, known, term)
                continue
            demand(led_term is not None, "I8 committed first by a follower", member.id, index)
            assert led_term is not None
            self._check_rule(raft, index, term, led_term)
            self.committed[index] = term
            self._commit_terms[index] = led_term
            self.commit_index = max(self.commit_index, index)
            self._acked[member.id] = max(self._acked.get(member.id, -1), index)
            has_old |= term < led_term
            self._on_committed(index, self.entries[index, term])
        if has_old:
            self._hit("old-term tail committed through an opening record")

    def _check_rule(self, leader: Raft, index: int, term: int, led_term: int) -> None:
        count = 0
        for member in self._members.values():
            is_gone = index < self.first_indexes.get(member.id, 0)
            count += is_gone or self._holds(leader, member, led_term, index, term)
        quorum = len(self._members) // 2 + 1
        demand(count >= quorum, "I8 no majority on disk", leader.config.self_id, index, count)
        last = leader.commit_index
        is_own = self._term_of(leader, last) == led_term
        demand(is_own or count == len(self._members), "I8 old-term entry counted", index, term)

    def _term_of(self, leader: Raft, index: int) -> int:
        return leader._log.term_at(index)

    def _forget_matches(self, leader: SimMember) -> None:
        """What it believed in another term must be true again before it counts."""
        for key in [key for key in self._matches if key[0] == leader.id]:
            del self._matches[key]

    def _check_matches(self, leader: SimMember, raft: Raft) -> None:
        """I11: what a leader believes of a follower's log is on that follower's disk, until another
        term begins there.
        """
        duty = raft._duty
        assert isinstance(duty, Leader)
        for peer_id, dispatcher in duty._dispatchers.items():
            match_index = dispatcher.match_index
            key = (leader.id, peer_id)
            known = self._matches.get(key, -1)
            self._matches[key] = match_index
            if match_index <= known or key in self._not_met:
                continue
            if self._seen.get(peer_id, (-1,))[0] > raft.term:
                # Answers that were on their way: a later leader may have cut what they told of.
                continue
            if match_index < self.first_indexes.get(peer_id, 0):
                continue
            store = leader.store
            if store is None or match_index < store.first_index:
                continue
            term = raft._log.term_at(match_index)
            is_true = self._holds(raft, self._members[peer_id], raft.term, match_index, term)
            demand(is_true, "I11 match index not true", key, match_index)

    # -- at the end

    def check_end(self) -> None:
        """I14: all members hold the same bytes, and all that is committed."""
        stores = {m.id: m.store for m in self._members.values() if m.store is not None}
        begin = max(store.first_index for store in stores.values())
        contents = {}
        for member_id, store in stores.items():
            last_index = store.last_index
            for index, term in self.committed.items():
                if index >= store.first_index:
                    demand(index <= last_index, "I14 committed entry is gone", member_id, index)
                    found = store.term_at(index)
                    demand(found == term, "I14 committed entry differs", member_id, index)
            contents[member_id] = _bytes_from(store, begin)
        first = next(iter(contents.values()))
        for member_id, content in contents.items():
            demand(content == first, "I14 files differ", member_id, begin)


def _bytes_from(store: DLedgerMmapFileStore, begin: int) -> tuple[bytes, ...]:
    """Returns all bytes of the data log from an entry on, blanks included, and its index units."""
    if begin > store.last_index:
        return ()
    position, end, segment_bytes = store.position_at(begin), store.end_position, store.segment_bytes
    parts = []
    while position < end:
        rest = segment_bytes - position % segment_bytes
        parts.append(store.data.read(position, min(rest, end - position)))
        position += rest
    for index in range(begin, store.last_index + 1):
        parts.append(repr(store._index.find(index)).encode())
    return tuple(parts)
