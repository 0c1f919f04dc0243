"""MemberView: what one member knows of its group at a moment, for whoever watches it.

Pure reading: nothing here changes what a member does.
"""

from typing import NamedTuple

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.leader import Leader
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.member_state import Candidate, Follower, MemberState
from ledgermq.measures.histogram import Histogram


class FollowerView(NamedTuple):
    """What a leader knows of one follower.

    Attributes:
        match_index: last entry that it durably holds, as far as it is known; -1 if it is not.
        behind_bytes: of the leader's log, behind that entry.
        silent_ms: since it last answered.
        counts: whether a commit may count it: it has not lost what it promised.
        is_live: it was heard of within two heart beats.
        round_trips: seconds from each push to its answer, since this term began; goes on counting.
    """

    peer_id: str
    match_index: int
    behind_bytes: int
    silent_ms: float
    counts: bool
    is_live: bool
    round_trips: Histogram


class MemberView(NamedTuple):
    """What one member knows.

    Attributes:
        first_index, last_index: ends of its log.
        told_index: how far its leader says that the log is committed; -1 when it did not say.
        leader_silent_ms: since a follower last heard of its leader; None for all others.
        is_recovering: it has lost state, and neither votes nor counts.
        quorum_count: members that make a majority.
        followers: known to a leader alone.
    """

    first_index: int
    last_index: int
    told_index: int
    leader_silent_ms: float | None
    is_recovering: bool
    birth: Birth | None
    quorum_count: int
    followers: tuple[FollowerView, ...]


def view_of(
    state: MemberState, log: RaftLog, duty: Follower | Candidate | Leader, now_ms: float
) -> MemberView:
    """Returns what the member knows.

    Args:
        duty: what it is at the moment.
        now_ms: the time of the core.
    """
    follower = duty if isinstance(duty, Follower) else None
    return MemberView(
        first_index=log.first_index,
        last_index=log.last_index,
        told_index=-1 if follower is None else follower.told_index,
        leader_silent_ms=None if follower is None else max(now_ms - follower.silence.since_ms, 0.0),
        is_recovering=state.recovering,
        birth=state.birth,
        quorum_count=state.config.quorum_count,
        followers=tuple(
            FollowerView(
                peer_id=peer_id,
                match_index=duty.match_index(peer_id),
                behind_bytes=log.end_position - log.end_before(duty.match_index(peer_id) + 1),
                silent_ms=duty.silent_ms(peer_id, now_ms),
                counts=duty.counts(peer_id),
                is_live=duty.is_live(peer_id, now_ms),
                round_trips=duty.round_trips(peer_id),
            )
            for peer_id in state.dialects
        )
        if isinstance(duty, Leader)
        else (),
    )
