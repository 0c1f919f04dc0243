"""Raft: the pure core of one member. Values in, one Ready out; no I/O, no clock, no randomness.

The face is six calls: `receive`, `propose`, `tick`, `take_ready`, `persisted`, `applied`, and
`deadline_ms`, which says when `tick` is due; `set_dialect`, `unreachable` and `peer_ended` tell
what the driver knows of connections. All effects leave in `Ready`, whose docstring is the driver's
contract.

Among LedgerMQ members this is Raft with pre-vote and check-quorum. As soon as one peer is known to
be Java, votes, heart beats and times follow DLedger 0.3.1.2, but for what its peers cannot tell
(docs/dledger.md).
"""

import random
from collections.abc import Sequence
from typing import assert_never

from ledgermq.dledger.birth import Birth, Standing
from ledgermq.dledger.census import Census
from ledgermq.dledger.config import NEVER, Config
from ledgermq.dledger.confirmations import Confirmations
from ledgermq.dledger.contradicting import ContradictingPeers
from ledgermq.dledger.election import LeaderElector
from ledgermq.dledger.entry import EntryCodec, EntryId, EntrySlice
from ledgermq.dledger.errors import ColdDataError, ContradictionError, NotLeaderError
from ledgermq.dledger.handler import EntryHandler
from ledgermq.dledger.leader import Leader, MakeOpening
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import (
    Candidate,
    Follower,
    MemberState,
    Outbox,
    Phase,
    Role,
    first_state,
)
from ledgermq.dledger.member_view import MemberView, view_of
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
    PushRequest,
    PushResponse,
    TransferRequest,
    TransferResponse,
    TruncateRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.pace import Pace, Wait
from ledgermq.dledger.ready import Ready, Told
from ledgermq.dledger.storage import HardState, LedgerStore
from ledgermq.dledger.strangers import is_stranger, needs_heart_beat, raises_term, refuse_heart_beat
from ledgermq.dledger.transfer import PreferredLeaders, Takeover, Transfer, refuse_transfer


class Raft:
    """One member of a group.

    Invariants, asserted on entry and exit of `receive`:
    1. `term` never falls.
    2. `commit_index` never falls.
    3. `applied_index <= commit_index <= last_index`.
    4. The vote of a term is given once.
    """

    def __init__(
        self,
        config: Config,
        store: LedgerStore,
        codec: EntryCodec,
        hard_state: HardState | None,
        rng: random.Random,
        now_ms: float,
        opening_body: MakeOpening | None = None,
        recovering: bool = False,
        is_new: bool = False,
    ) -> None:
        """Starts a member as a candidate that waits.

        Args:
            config: identity, times, limits.
            store: recovered, and synced: what it holds counts as durable.
            codec: makes entries of proposals.
            hard_state: as saved; None when there is none.
            rng: source of election jitter.
            now_ms: monotonic time.
            opening_body: makes the record that opens a term this member leads; None: there is none.
            recovering: it has lost state: it gives no votes, does not stand for election and tells
                leaders not to count it, until it has caught up (`end_recovery`). A log without a
                hard state to match makes it so, too.
            is_new: it holds no entry and no agreed birth, and has voted for nobody: it waits for
                the birth of its group, or for a leader that brings it.
        """
        state, is_lost = first_state(hard_state, store)
        recovering = recovering or is_lost
        self.config = config
        self._opening_body = opening_body
        self._segment_bytes = store.segment_bytes
        self._now_ms = now_ms
        self._outbox = Outbox()
        self._state = MemberState(config, state, recovering, is_saved=hard_state is not None)
        self._state.is_new = is_new
        self._log = RaftLog(store, codec, config.recent_bytes_max)
        self._pace = Pace(now_ms)
        # The driver tells it whether this member can do a leader's work.
        self.preferred = PreferredLeaders(config)
        self._elector = LeaderElector(
            self._state, self._log, rng, self._outbox, self._pace, self.preferred
        )
        self._handler = EntryHandler(self._state, self._log, self._outbox)
        self.census = Census(self._state, self._log, rng, self._outbox)
        self._takeover = Takeover(config, self._outbox)
        self._contradicting = ContradictingPeers()
        self.reads = Confirmations(self._state, self._log)
        # Under a Java leader, a committed entry of a later term than this ends the recovery: the
        # term of the first leader that was met, None before.
        self._recovery_term: int | None = None
        first_round_ms = now_ms if len(config.members) == 1 else self._elector.next_round_ms(now_ms)
        self._duty: Follower | Candidate | Leader = Candidate(
            Phase.WAITING, NEVER if recovering and not is_new else first_round_ms
        )
        # What retention has removed was committed.
        checkpoint = store.read_checkpoint() if config.is_sync_flush else -1
        self.commit_index = min(max(checkpoint, store.first_index - 1), store.last_index)
        self.applied_index = -1
        self._told = Told(self.commit_index, self.role, self.term)
        # When the driver was told to call at the latest; None when it was not since its last call.
        self._due_told_ms: float | None = None
        # Something was called since the last Ready that may have had effects.
        self._has_news = True

    # -- what is to be seen

    @property
    def role(self) -> Role:
        if isinstance(self._duty, Follower):
            return Role.FOLLOWER
        return Role.LEADER if isinstance(self._duty, Leader) else Role.CANDIDATE

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def leader_id(self) -> str | None:
        return self._state.leader_id

    @property
    def recovering(self) -> bool:
        return self._state.recovering

    @property
    def birth(self) -> Birth | None:
        return self._state.birth

    @property
    def is_mixed(self) -> bool:
        return self._state.is_mixed

    @property
    def contradicting(self) -> frozenset[str]:
        """Peers that contradicted a committed entry and have not shown another log since."""
        return self._contradicting.ids

    @property
    def last_index(self) -> int:
        return self._log.last_index

    @property
    def entries_bytes(self) -> int:
        """What the entries that are kept in memory take there."""
        return self._log.recent_bytes

    @property
    def opening_index(self) -> int | None:
        """Index of the record that opened this leader's term; None for all others."""
        return self._duty.opening_index if isinstance(self._duty, Leader) else None

    @property
    def is_ready_leader(self) -> bool:
        """Whether this member leads and all that older leaders left is committed (Raft 8)."""
        return isinstance(self._duty, Leader) and self.commit_index >= self._duty.ready_index

    def needed_index(self, now_ms: float) -> int:
        """Tells the first entry that retention should keep while the disk allows it: what is not
        committed, and what a live follower lacks, which would begin its log anew without it.
        """
        if isinstance(self._duty, Leader):
            return self._duty.needed_index(self.commit_index, now_ms)
        return self.commit_index + 1

    def view(self, now_ms: float) -> MemberView:
        """Tells what this member knows of its group."""
        return view_of(self._state, self._log, self._duty, now_ms)

    def deadline_ms(self) -> float:
        """Tells when `tick` is due: within a heart beat, so that lateness is measured (pace.py)."""
        due_ms = min(self._due_ms(), self._pace.seen_ms + self._state.timing.heart_beat_ms)
        self._due_told_ms = due_ms
        return due_ms

    def _due_ms(self) -> float:
        """Tells when the present role has something to do."""
        duty = self._duty
        if isinstance(duty, Follower):
            timing = self._state.timing
            end_ms = duty.silence_end_ms(timing, self._pace.stretch(timing))
            return min(end_ms, self._takeover.deadline_ms)
        return duty.deadline_ms if isinstance(duty, Candidate) else duty.deadline_ms()

    def _enter(self, now_ms: float) -> None:
        """Begins a call: if it comes late, others are not blamed for that time."""
        self._has_news = True
        self._now_ms = now_ms
        if now_ms <= self._pace.seen_ms:
            return
        due_ms = self.deadline_ms() if self._due_told_ms is None else self._due_told_ms
        self._due_told_ms = None
        late_ms = self._pace.enter(now_ms, due_ms)
        if late_ms > 0:
            self._duty.excuse(late_ms, now_ms, self._state.timing)

    # -- what goes in

    def receive(self, message: Message, now_ms: float) -> None:
        """Takes one message of a peer.

        Raises:
            ContradictionError: a leader contradicts what is committed; nothing of it was taken, and
                nothing of it is for a while: no vote, no heartbeat answer (contradicting.py).
        """
        self._enter(now_ms)
        term, commit_index, voted_for = self.term, self.commit_index, self._state.voted_for
        assert self.applied_index <= commit_index <= self._log.last_index
        if message.target == self.config.self_id and not self._is_rejected(message):
            self._enter_higher_term(message)
            try:
                self._dispatch(message)
            except ContradictionError:
                self._reject(message.sender)
                raise
        assert self.term >= term, (self.term, term)
        assert self.commit_index >= commit_index, (self.commit_index, commit_index)
        assert self.applied_index <= self.commit_index <= self._log.last_index
        assert self.term > term or voted_for in (None, self._state.voted_for), (term, voted_for)

    def propose(self, bodies: Sequence[bytes], now_ms: float) -> list[EntrySlice]:
        """Appends bodies as entries of the leader's term; they are not committed yet.

        Args:
            bodies: one for each entry, in order.
            now_ms: monotonic time.

        Returns:
            The entries: one run, or one for each segment they touch; none for no bodies.

        Raises:
            NotLeaderError, ProposalDroppedError, EntryTooLargeError: nothing was appended.
        """
        self._enter(now_ms)
        if not isinstance(self._duty, Leader):
            raise NotLeaderError(self.leader_id, self.term)
        if not bodies:
            return []
        return self._duty.propose(bodies, self.commit_index, self._segment_bytes, now_ms)

    def transfer(self, target_id: str, now_ms: float) -> Transfer:
        """Begins to hand the leadership to a follower; proposals are refused meanwhile.

        Args:
            target_id: a member that is alive and lacks few entries.
            now_ms: monotonic time.

        Returns:
            The attempt. It has failed when its `code` is set; it is over, too, when this member
            leads its term no longer.

        Raises:
            NotLeaderError, TransferRefusedError: nothing was begun.
        """
        self._enter(now_ms)
        if not isinstance(self._duty, Leader):
            raise NotLeaderError(self.leader_id, self.term)
        return self._duty.transfer(target_id, now_ms)

    def tick(self, now_ms: float) -> None:
        """Does what time asks for: elections, heart beats, second attempts."""
        self._enter(now_ms)
        duty = self._duty
        if isinstance(duty, Leader):
            if duty.tick(self.commit_index, now_ms):
                duty.serve_recovering(self.commit_index, self.applied_index)
            else:
                self._become_candidate(self.term)
            return
        if now_ms < self._due_ms():
            return
        if now_ms >= self._takeover.deadline_ms:
            self._takeover.settle(DLedgerCode.TAKE_LEADERSHIP_FAILED, self.term)
            if now_ms < self._due_ms():
                return
        if isinstance(duty, Follower):
            duty = self._become_candidate(self.term)
            if self.recovering or self.preferred.is_unfit:
                return
        if not self._state.may_vote:
            self.census.ask()
            duty.deadline_ms = self._elector.next_round_ms(now_ms)
            return
        if duty.phase is Phase.WAITING:
            is_elected = self._elector.start_round(duty, now_ms)
        else:
            is_elected = self._elector.judge_round(duty, now_ms, is_last_call=True)
        if is_elected:
            self._become_leader()

    def persisted(self, entry_id: EntryId) -> None:
        """Takes the report that a Ready's entries are durable, named by its `persist_id`."""
        self._log.persisted(entry_id)
        duty, commit_index = self._duty, self.commit_index
        if isinstance(duty, Leader):
            self._commit_to(duty.find_commit_index(commit_index))
            duty.serve_recovering(self.commit_index, self.applied_index)
            # Mostly the peers' copies are what is waited for.
            self._has_news |= self.commit_index > commit_index or bool(self._outbox.messages)

    def persists_with_next(self, entry_id: EntryId) -> None:
        """Takes that the entries of a Ready will be reported as durable together with those of the
        Ready taken behind it, by that one's `persist_id` alone.
        """
        self._log.report_with_next(entry_id)

    def applied(self, index: int) -> None:
        """Takes the report that all entries up to `index` are applied."""
        assert self.applied_index <= index <= self.commit_index, (index, self.commit_index)
        self.applied_index = index
        self._has_news = True
        if isinstance(self._duty, Leader):
            self._duty.serve_recovering(self.commit_index, index)

    def set_dialect(self, peer_id: str, dialect: PeerDialect) -> None:
        """Takes how a peer speaks, as soon as its connection shows it."""
        self._has_news = True
        self._state.set_dialect(peer_id, dialect)
        self._elector.way_changed(peer_id)
        self.census.way_opened(peer_id)
        if isinstance(self._duty, Leader):
            self._duty.set_dialect(peer_id, dialect)
        elif isinstance(self._duty, Candidate):
            self._elector.way_opened(self._duty, peer_id)

    def unreachable(self, peer_id: str) -> None:
        """Takes the news that the connection to a peer broke: its window is paused."""
        self._has_news = True
        self._elector.way_changed(peer_id)
        self.census.way_closed(peer_id)
        if isinstance(self._duty, Leader):
            self._duty.unreachable(peer_id, self._now_ms)

    def peer_ended(self, peer_id: str, now_ms: float) -> None:
        """Takes the news that the process of a peer has ended: a dead leader is not waited for.

        Whoever still hears of it refuses the pre-vote: a mistake costs nothing. With a Java member
        in the group there is no pre-vote, and the times are DLedger's. Its next process may run on
        another directory, so what this one contradicted no longer counts.
        """
        self._contradicting.clear(peer_id)
        is_followed = isinstance(self._duty, Follower) and self.leader_id == peer_id
        if is_followed and not self._state.is_mixed:
            self._enter(now_ms)
            self._become_candidate(self.term)

    def resign(self, now_ms: float) -> None:
        """Gives the leadership up, when the driver could not do a leader's work for a while."""
        if isinstance(self._duty, Leader):
            self._has_news = True
            self._now_ms = now_ms
            self._become_candidate(self.term)

    def set_unfit(self, is_unfit: bool, now_ms: float) -> None:
        """Takes whether this member cannot do a leader's work: it hands over while it leads, takes
        no leadership over, and asks for votes after all others.
        """
        self._has_news = True
        self._now_ms = now_ms
        begins = is_unfit and not self.preferred.is_unfit
        self.preferred.set_unfit(is_unfit, now_ms)
        duty = self._duty
        if begins and isinstance(duty, Candidate) and duty.phase is Phase.WAITING:
            duty.deadline_ms = max(duty.deadline_ms, self._elector.next_round_ms(now_ms))

    def take_ready(self) -> Ready | None:
        """Hands out all effects since the last call; None when there are none."""
        if not self._has_news:
            return None
        self._has_news = False
        if isinstance(self._duty, Leader):
            self._duty.make_pushes(self.commit_index, self._now_ms)
        committed = self._told.take_committed(self.commit_index, self._log.first_index)
        changes = self._log.take_changes()
        hard_state = self._state.take_hard_state()
        role = self._told.take_role(
            self.role, self.term, self.leader_id, is_ready=self.is_ready_leader
        )
        if role is not None:
            self.preferred.leader_changed(role.leader_id, self._now_ms)
        return Ready.gather(self._outbox, changes, hard_state, committed, role)

    # -- peers that contradict a committed entry

    def _is_rejected(self, message: Message) -> bool:
        """Whether a message comes from a peer whose log contradicts what is committed here.

        A majority holds each committed entry, so such a peer can complete its log only when the
        operator removes its directory: a message of a member that lost its log ends the rejection.
        """
        if not self._contradicting.is_ignored(message.sender, self._now_ms):
            return False
        match message:
            case BirthReport():
                has_lost_log = message.standing is not Standing.OLDER
            case HeartBeatResponse() | PushResponse():
                has_lost_log = message.recovering
            case _:
                has_lost_log = False
        if has_lost_log:
            self._contradicting.clear(message.sender)
        return not has_lost_log

    def _reject(self, peer_id: str) -> None:
        """Takes nothing of a peer for a while; if it led this member, another leader is needed."""
        timeout_ms = self._state.timing.election_timeout_ms
        self._contradicting.reject(peer_id, timeout_ms, self._now_ms)
        if self.leader_id == peer_id:
            self._become_candidate(self.term)

    def take_cold(self) -> list[tuple[str, ColdDataError]]:
        """Returns what the next pushes lack in memory, by peer; `loaded` must follow for each."""
        return self._duty.take_cold() if isinstance(self._duty, Leader) else []

    def loaded(self, peer_id: str) -> None:
        """Takes that what a push to this peer lacked was read into memory."""
        self._has_news = True
        if isinstance(self._duty, Leader):
            self._duty.loaded(peer_id)

    # -- terms and roles

    def _enter_higher_term(self, message: Message) -> None:
        """The one place where a message of any kind raises the term (Raft 5.1)."""
        is_known = message.sender in self._state.dialects
        if message.term > self.term and is_known and raises_term(message, self._state):
            self._become_candidate(message.term)

    def _dispatch(self, message: Message) -> None:
        match message:
            case PushResponse():
                self._on_push_response(message)
            case AppendRequest() | CompareRequest() | TruncateRequest() | CommitRequest():
                self._on_push(message)
            case VoteRequest():
                self._on_vote_request(message)
            case VoteResponse():
                self._on_vote_response(message)
            case HeartBeatRequest():
                self._on_heart_beat(message)
            case HeartBeatResponse():
                self._on_heart_beat_response(message)
            case TransferRequest():
                self._on_transfer_request(message)
            case BirthReport():
                self.census.receive(message)
            case TransferResponse():
                if isinstance(self._duty, Leader) and message.sender in self._state.dialects:
                    self._duty.on_transfer_response(message, self._now_ms)
            case _:
                assert_never(message)

    def _become_candidate(self, term: int) -> Candidate:
        """Knows no leader; the next round of votes is a random wait away."""
        state = self._state
        if term > state.term:
            state.raise_term(term)
        state.leader_id = None
        self._duty = Candidate(Phase.WAITING, self._elector.next_round_ms(self._now_ms))
        return self._duty

    def _become_follower(self, leader_id: str) -> Follower:
        state = self._state
        state.leader_id = leader_id
        if state.is_new:
            # Others elected this leader: the group is older than this disk, or it came late. A
            # Java leader counts every member, and Java peers want its vote.
            state.is_new, state.recovering = False, state.recovering or not state.is_mixed
        self._takeover.settle(DLedgerCode.TAKE_LEADERSHIP_FAILED, self.term)
        self._elector.end()
        if self._recovery_term is None:
            self._recovery_term = self.term
        jitter_ms = self._elector.draw_patience_ms()
        self._duty = Follower(Wait(self._now_ms), jitter_ms, verified_index=self.commit_index)
        return self._duty

    def _become_leader(self) -> None:
        """Leads the term: opens it with a record of its own, and says so (Raft 5.2, 8)."""
        state, now_ms = self._state, self._now_ms
        state.leader_id = self.config.self_id
        state.take_part()
        duty = self._duty
        assert isinstance(duty, Candidate)
        leader = Leader(
            state,
            self._log,
            self._outbox,
            self.preferred,
            self.reads,
            self._pace,
            [id_ for id_, (result, _) in duty.tally.items() if result is VoteResult.ACCEPT],
            self.commit_index,
            now_ms,
            self._opening_body,
        )
        self._takeover.settle(DLedgerCode.SUCCESS, self.term)
        self._elector.end()
        self._duty = leader
        leader.open_term()
        leader.tick(self.commit_index, now_ms)

    def _follow(self, sender: str) -> Follower | None:
        """Accepts the sender as the leader of the present term; None when another one is known."""
        duty = self._duty
        if isinstance(duty, Follower):
            if self.leader_id != sender:
                return None
            duty.silence.begin(self._now_ms)
            return duty
        return None if isinstance(duty, Leader) else self._become_follower(sender)

    def _commit_to(self, index: int) -> None:
        """Raises the commit index, and ends a recovery that has caught up."""
        if index <= self.commit_index:
            return
        self.commit_index = index
        if self.recovering and self._recovery_term is not None:
            from_java = self._state.dialects.get(self.leader_id or "") is PeerDialect.JAVA
            if from_java and self._log.term_at(index) > self._recovery_term:
                self._state.end_recovery()

    # -- elections and heart beats

    def _on_vote_request(self, request: VoteRequest) -> None:
        self.census.note_birth(request.sender, request.birth)
        if is_stranger(request, self._state):
            self._elector.refuse(request)
            return
        duty = self._duty
        has_live_leader = duty.has_live_leader(self._now_ms, self._state.timing)
        verdict = self._elector.answer(request, has_live_leader=has_live_leader)
        if verdict.raise_term_to is not None:
            self._become_candidate(verdict.raise_term_to)
        elif verdict.result is VoteResult.ACCEPT and not request.pre_vote:
            if isinstance(duty, Candidate) and duty.phase is Phase.WAITING:
                # Raft 5.2: who gave a vote waits for that election first.
                wait_ms = self._elector.next_round_ms(self._now_ms)
                duty.deadline_ms = max(duty.deadline_ms, wait_ms)

    def _on_vote_response(self, response: VoteResponse) -> None:
        if isinstance(self._duty, Candidate) and response.sender in self._state.dialects:
            if self._elector.record(response, self._duty, self._now_ms):
                self._become_leader()

    def _on_heart_beat(self, request: HeartBeatRequest) -> None:
        """Follows the leader of the term (Raft 5.2; DLedgerLeaderElector.handleHeartBeat).

        One of a higher term comes here only with a Java member in the group: it is answered 416 as
        in DLedger, but the term is entered at once.
        """
        self.census.note_birth(request.sender, request.birth)
        code, term = refuse_heart_beat(request, self._state)
        if code is DLedgerCode.TERM_NOT_READY:
            self._become_candidate(request.term)
        elif code is DLedgerCode.SUCCESS:
            self.census.meet(request.birth)
            self.census.ask()
            follower = self._follow(request.sender)
            if follower is None:
                code = DLedgerCode.INCONSISTENT_LEADER
            elif request.commit_index is not None:
                follower.told_index = request.commit_index
                self._commit_to(min(request.commit_index, follower.verified_index))
                is_known = self.recovering and request.life == self.census.life
                if is_known and self.commit_index >= request.commit_index:
                    self._state.end_recovery()
        self._outbox.messages.append(
            HeartBeatResponse(
                term=term,
                sender=self.config.self_id,
                target=request.sender,
                code=code,
                round=request.read_round,
                recovering=self.recovering,
                life=self.census.life,
                birth=self.birth,
                members_digest=self._state.members_digest,
            )
        )

    def _on_heart_beat_response(self, response: HeartBeatResponse) -> None:
        duty = self._duty
        if not isinstance(duty, Leader) or response.sender not in self._state.dialects:
            return
        self.census.note_birth(response.sender, response.birth)
        if response.term != self.term or is_stranger(response, self._state):
            return
        if duty.on_heart_beat_response(response, self._now_ms):
            self._commit_to(duty.find_commit_index(self.commit_index))
        else:
            self._become_candidate(self.term)

    # -- handing over

    def _on_transfer_request(self, request: TransferRequest) -> None:
        """Notes that the leader wants this member to lead (handleTakeLeadership)."""
        is_leader_s = isinstance(self._duty, Follower) and self.leader_id == request.sender
        may_lead = self._state.may_vote and not self.preferred.is_unfit
        refusal = refuse_transfer(request, self.term, is_leader_s, may_lead)
        if refusal is not None:
            self._takeover.answer(request, refusal, request.term)
            return
        self._takeover.begin(request, self._now_ms)
        self._take_over_if_due()

    def _take_over_if_due(self) -> None:
        """Stands for election when the leader has asked for it and the log is long enough."""
        if self._takeover.takes_over(self._log.last_index, self._state):
            duty = self._become_candidate(self.term)
            duty.is_transferee = True
            if self._elector.start_round(duty, self._now_ms):
                self._become_leader()

    # -- replication

    def _on_push(self, request: PushRequest) -> None:
        """Answers a push (Raft 5.3; DLedgerEntryPusher.EntryHandler)."""
        state, follower = self._state, None
        if request.sender in state.dialects and request.term >= self.term:
            # A push does not tell of its sender's birth: a heart beat comes first.
            is_known = isinstance(self._duty, Follower)
            if is_known or not needs_heart_beat(request.sender, state):
                follower = self._follow(request.sender)
        if follower is None:
            self._handler.refuse(request, is_leader=isinstance(self._duty, Leader))
            return
        code = self._handler.handle(request, follower, self.commit_index)
        # A log that was begun anew says that what is before it was committed.
        self.commit_index = max(self.commit_index, self._log.first_index - 1)
        if code is DLedgerCode.SUCCESS:
            if not isinstance(request, CommitRequest):
                self._contradicting.clear(request.sender)
            self._commit_to(min(request.commit_index, follower.verified_index))
        self._handler.answer(request, code, request.term)
        self._take_over_if_due()

    def _on_push_response(self, response: PushResponse) -> None:
        duty = self._duty
        if not isinstance(duty, Leader) or response.sender not in self._state.dialects:
            return
        if response.term == self.term:
            duty.on_push_response(response, self._now_ms)
            # What is committed anyway raises nothing.
            if duty.match_index(response.sender) > self.commit_index:
                self._commit_to(duty.find_commit_index(self.commit_index))
            duty.serve_recovering(self.commit_index, self.applied_index)
