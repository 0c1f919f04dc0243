"""Handing the leadership over: who gives it, who takes it, and when a leader does so by itself.

    leader                                      member that is to lead
    takes no more proposals
    its log is committed, and held there
        ──────────── TRANSFER ────────────────> waits until it has the named entry
                                                asks for votes in the next term, at once
        <─────────── VOTE ─────────────────────
    steps down   <── TRANSFER answer 200 ────── leads

Whatever fails ends in time: the leader takes proposals again, the other member goes on following.
Safety does not rest on any of this: the new leader is elected like every other.

Source: DLedgerLeaderElector.handleLeadershipTransfer, handleTakeLeadership, DLedgerServer's check
for preferred leaders; Raft thesis 3.10.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ledgermq.dledger.config import NEVER, Config
from ledgermq.dledger.member_state import MemberState, Outbox
from ledgermq.dledger.messages import DLedgerCode, TransferRequest, TransferResponse

# How often a leader looks for a preferred one (DLedgerServer.checkPreferredLeader).
PREFERENCE_INTERVAL_MS: Final = 1000
# A preferred member that lost the leadership, or did not take it, is left alone for so long; each
# time again doubles it.
PAUSE_MIN_MS: Final = 10_000
PAUSE_MAX_MS: Final = 600_000
# The same for a member that did not take it from a leader that cannot do its work: its reason may
# be the same one, and may pass sooner.
UNFIT_PAUSE_MIN_MS: Final = 5_000
UNFIT_PAUSE_MAX_MS: Final = 60_000


@dataclass(slots=True)
class Transfer:
    """A leader's attempt to hand over; whoever asked for it keeps it and looks at `code`."""

    # Of the leader that hands over.
    term: int
    target_id: str
    started_ms: float
    deadline_ms: float
    # Whether the target was asked: then its log holds all of the leader's, and all is committed.
    is_asked: bool = False
    # Why it failed; None while it is under way, and when the leader stepped down for a higher term.
    code: DLedgerCode | None = None


class Takeover:
    """The other side: this member was asked by its leader to lead the next term."""

    def __init__(self, config: Config, outbox: Outbox) -> None:
        """Nobody has asked."""
        self._config = config
        self._outbox = outbox
        self._request: TransferRequest | None = None
        self._has_stood = False
        # When this member stops waiting for the entry and tells the leader so.
        self.deadline_ms = NEVER

    def begin(self, request: TransferRequest, now_ms: float) -> None:
        """Notes the request of the present leader."""
        self.settle(DLedgerCode.TAKE_LEADERSHIP_FAILED, request.term)
        self._request = request
        self._has_stood = False
        self.deadline_ms = now_ms + self._config.takeover_wait_ms

    def takes_over(self, last_index: int, state: MemberState) -> bool:
        """Tells, once, that this member has what it waits for and is to ask for votes."""
        request = self._request
        if request is None or self._has_stood or last_index < request.last_index:
            return False
        if not state.may_vote:
            # Which group this is has to be agreed first: who leads knows that, or lies.
            self.settle(DLedgerCode.TAKE_LEADERSHIP_FAILED, state.term)
            return False
        self._has_stood = True
        self.deadline_ms = NEVER
        return True

    def settle(self, code: DLedgerCode, term: int) -> None:
        """Answers the leader, if it has asked."""
        request, self._request = self._request, None
        self.deadline_ms = NEVER
        if request is not None:
            self.answer(request, code, term)

    def answer(self, request: TransferRequest, code: DLedgerCode, term: int) -> None:
        """Answers a request, whether it was noted or not."""
        self._outbox.messages.append(
            TransferResponse(
                term=term,
                sender=self._config.self_id,
                target=request.sender,
                code=code,
                request_id=request.request_id,
            )
        )


class Standing(NamedTuple):
    """How a peer stands with its leader."""

    peer_id: str
    # Entries that it is not known to hold.
    lag_count: int
    # It counts, and was heard of lately.
    is_live: bool


class _Record:
    """What a member has made of the leadership, or of its offer, so far."""

    __slots__ = ("fail_count", "pause_end_ms")

    def __init__(self) -> None:
        self.fail_count = 0
        self.pause_end_ms = float("-inf")

    def failed(self, now_ms: float, pause_min_ms: int, pause_max_ms: int) -> None:
        """Gives it a pause, twice as long as the last one."""
        self.fail_count += 1
        self.pause_end_ms = now_ms + _pause_ms(self.fail_count, pause_min_ms, pause_max_ms)


class PreferredLeaders:
    """To whom a leader should hand over by itself, and for how long it should not try.

    DLedger tries each second, for ever, also with a member that cannot keep what it gets (its disk
    is full, it cannot be reached from elsewhere): the group then has no leader for most of the
    time. Here a member that lost or refused the leadership gets a pause, which doubles while it
    goes on so. Each member watches for itself, whatever its role.

    A leader that cannot do its work (its disk is full) prefers everybody else. It asks one after
    the other, until somebody can; when nobody can, it leads on, and asks ever more rarely.
    """

    def __init__(self, config: Config) -> None:
        """Nothing was seen yet."""
        self._config = config
        self._records = {peer_id: _Record() for peer_id in config.preferred_leader_ids}
        self._leader_id: str | None = None
        self._since_ms = 0.0
        # Whom this member has asked while it could not do a leader's work.
        self._asked: dict[str, _Record] = {}
        # The driver has a reason for this member not to lead: it takes no leadership over.
        self.is_unfit = False
        # When a leader should look for another one; never, when there is none to look for.
        self.next_look_ms = NEVER

    def set_unfit(self, is_unfit: bool, now_ms: float) -> None:
        """Takes whether this member cannot do a leader's work: if it leads, it looks at once."""
        self.is_unfit = is_unfit
        if is_unfit:
            self.next_look_ms = now_ms
        else:
            self._asked.clear()

    def will_look(self, now_ms: float) -> None:
        """Sets the time of the next look: this member begins to lead, or has just looked."""
        is_preferred = not self._records or self._config.self_id in self._records
        wants_another = self.is_unfit or not is_preferred
        self.next_look_ms = now_ms + PREFERENCE_INTERVAL_MS if wants_another else NEVER

    def leader_changed(self, leader_id: str | None, now_ms: float) -> None:
        """Takes that the group has another leader now, or none that this member knows."""
        if leader_id == self._leader_id:
            return
        record = self._records.get(self._leader_id or "")
        if record is not None:
            if now_ms - self._since_ms >= _pause_ms(
                record.fail_count + 1, PAUSE_MIN_MS, PAUSE_MAX_MS
            ):
                record.fail_count = 0
            self._failed(record, now_ms)
        self._leader_id, self._since_ms = leader_id, now_ms

    def not_taken(self, peer_id: str, now_ms: float) -> None:
        """Takes that a peer was offered the leadership in vain."""
        if self.is_unfit:
            record = self._asked.setdefault(peer_id, _Record())
            record.failed(now_ms, UNFIT_PAUSE_MIN_MS, UNFIT_PAUSE_MAX_MS)
            self.next_look_ms = now_ms
        elif peer_id in self._records:
            self._failed(self._records[peer_id], now_ms)

    def find_target(self, standings: Sequence[Standing], now_ms: float) -> str | None:
        """Returns the peer that is nearest to the leader of those that may be asked now: preferred
        ones, and all of them when this leader is not fit.
        """
        records = {s.peer_id: self._asked.get(s.peer_id, _Record()) for s in standings}
        if not self.is_unfit:
            records = self._records
        fit = [
            standing
            for standing in standings
            if standing.is_live
            and standing.lag_count < self._config.transfer_lag_max
            and standing.peer_id in records
            and records[standing.peer_id].pause_end_ms <= now_ms
        ]
        return min(fit, key=lambda standing: standing.lag_count).peer_id if fit else None

    def _failed(self, record: _Record, now_ms: float) -> None:
        record.failed(now_ms, PAUSE_MIN_MS, PAUSE_MAX_MS)


def refuse_transfer(
    request: TransferRequest, term: int, is_leader_s: bool, may_lead: bool
) -> DLedgerCode | None:
    """Returns why a member does not take over; None when it does, as soon as its log is as long.

    Args:
        request: as it came.
        term: of this member.
        is_leader_s: whether it follows whoever asks.
        may_lead: whether it can do a leader's work, and votes.
    """
    if request.term != term:
        return DLedgerCode.INCONSISTENT_TERM
    if not is_leader_s:
        return DLedgerCode.INCONSISTENT_LEADER
    return None if may_lead else DLedgerCode.TAKE_LEADERSHIP_FAILED


def _pause_ms(fail_count: int, pause_min_ms: int, pause_max_ms: int) -> int:
    return min(pause_min_ms << min(fail_count - 1, 20), pause_max_ms)
