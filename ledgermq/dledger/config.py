"""Config: identity, members, timers and limits of one member, checked when it is made.

Two sets of timers: groups of LedgerMQ members detect a dead leader in about a second and a half;
as soon as one member is known to be Java, the member keeps DLedger's own times, which Java peers
expect of it.
"""

from dataclasses import dataclass, field
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
# A deadline that does not come.
NEVER: Final = float("inf")


def _check(holds: bool, key: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{key} is {value!r}, allowed: {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of heart beats and elections, in milliseconds (DLedgerConfig)."""

    # Time between two heart beats of a leader (heartBeatTimeIntervalMs).
    heart_beat_ms: int
    # So many missed heart beats make a follower ask for votes and a leader step down
    # (maxHeartBeatLeak).
    heart_beats_missed_max: int
    # Wait between two rounds of votes, drawn anew each time (min/maxVoteIntervalMs).
    vote_wait_min_ms: int
    vote_wait_max_ms: int
    # Upper bound of one round of votes; a random part of up to `vote_wait_max_ms` is added.
    vote_round_ms: int
    # A member that has no time, or is answered late, waits up to so many times as long (pace.py).
    stretch_max: int = 10

    def __post_init__(self) -> None:
        _check(self.heart_beat_ms >= 10, "heart_beat_ms", self.heart_beat_ms, "10 or more")
        missed = self.heart_beats_missed_max
        _check(1 <= missed <= 100, "heart_beats_missed_max", missed, "1 to 100")
        _check(self.vote_wait_min_ms > 0, "vote_wait_min_ms", self.vote_wait_min_ms, "1 or more")
        waits = (self.vote_wait_min_ms, self.vote_wait_max_ms)
        _check(waits[0] < waits[1], "vote_wait_max_ms", waits[1], f"more than {waits[0]}")
        _check(self.vote_round_ms > 0, "vote_round_ms", self.vote_round_ms, "1 or more")
        _check(1 <= self.stretch_max <= 100, "stretch_max", self.stretch_max, "1 to 100")

    @property
    def election_timeout_ms(self) -> int:
        """Silence of a leader, or of a leader's majority, that ends its leadership."""
        return self.heart_beat_ms * self.heart_beats_missed_max

    @property
    def excused_max_ms(self) -> int:
        """Time that a member was not there itself, and does not count as silence of others."""
        return self.election_timeout_ms * self.stretch_max


# Members of LedgerMQ only.
FAST_TIMING: Final = Timing(
    heart_beat_ms=500,
    heart_beats_missed_max=3,
    vote_wait_min_ms=150,
    vote_wait_max_ms=450,
    vote_round_ms=300,
)
# DLedger's own, used while a Java member is known (DLedgerConfig, DLedgerLeaderElector).
JAVA_TIMING: Final = Timing(
    heart_beat_ms=2000,
    heart_beats_missed_max=3,
    vote_wait_min_ms=300,
    vote_wait_max_ms=1000,
    vote_round_ms=2000,
    # Its members themselves wait no longer than ever.
    stretch_max=3,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a member is told when it starts; nothing of it changes later."""

    # Name of the group; every message on the wire carries it.
    group: str
    self_id: str
    # Ids of all members, this one included; equal on all of them (DLedger has no membership
    # changes).
    members: tuple[str, ...]
    timing: Timing = field(default=FAST_TIMING)
    timing_with_java: Timing = field(default=JAVA_TIMING)
    # Largest entry, head included. Java cannot encode more than 4 MiB (DLedgerEntryCoder's buffer).
    entry_bytes_max: int = 4 * MIB
    # Uncommitted entries and bytes a leader holds before it refuses more (maxPendingRequestsNum).
    proposals_max: int = 10_000
    proposal_bytes_max: int = 64 * MIB
    # Window of one LedgerMQ follower: frames in flight, and the size of one.
    push_frames_max: int = 4
    push_bytes_max: int = 256 * KIB
    # Window of one Java follower; a frame is a batchEntry of at most so many bytes.
    java_push_frames_max: int = 64
    java_push_bytes_max: int = 64 * KIB
    # A follower that lacks this much gets so many bytes a second (peerPushThrottlePoint,
    # peerPushQuota).
    throttle_far_bytes: int = 300 * MIB
    throttle_quota_bytes: int = 20 * MIB
    # A push that was not answered is sent again after this (maxPushTimeOutMs).
    push_timeout_ms: int = 1000
    # An idle Java follower hears the commit index this often (DLedgerEntryPusher).
    commit_interval_ms: int = 1000
    # Whether entries count when they are synced (SYNC_FLUSH): as a leader, only synced copies count
    # for the commit index. Without, what the checkpoint of an earlier run calls committed may be
    # lost: the other members may have lost it with their power.
    is_sync_flush: bool = True
    # Members that found a new group, all of them together (dLegerFounderIds); none named: all.
    founder_ids: tuple[str, ...] = ()
    # Members that should lead when they can (preferredLeaderIds); may be empty.
    preferred_leader_ids: tuple[str, ...] = ()
    # A follower that lacks this many entries is not asked to lead (maxLeadershipTransferWaitIndex).
    transfer_lag_max: int = 1000
    # A leader that hands over refuses proposals for so long at most (DLedger: its RPC's 3 s).
    transfer_timeout_ms: int = 3000
    # A follower that was asked to lead waits so long for the entries it lacks
    # (leadershipTransferWaitTimeout).
    takeover_wait_ms: int = 1000
    # Entries kept in memory for followers that are a little behind.
    recent_bytes_max: int = 8 * MIB

    def __post_init__(self) -> None:
        _check(self.group != "", "group", self.group, "a name")
        members = self.members
        _check(len(members) > 0, "members", members, "at least one id")
        _check(all(members), "members", members, "ids that are not empty")
        _check(len(set(members)) == len(members), "members", members, "different ids")
        _check(self.self_id in members, "self_id", self.self_id, f"one of {members}")
        founders = self.founders
        is_member = all(founder_id in members for founder_id in founders)
        _check(is_member, "founder_ids", founders, f"ids of {members}")
        is_majority = len(set(founders)) >= self.quorum_count
        _check(is_majority, "founder_ids", founders, f"{self.quorum_count} or more of {members}")
        preferred = self.preferred_leader_ids
        is_member = all(peer_id in members for peer_id in preferred)
        _check(is_member, "preferred_leader_ids", preferred, f"ids of {members}")
        for key, low in (
            ("entry_bytes_max", 49),
            ("proposals_max", 1),
            ("proposal_bytes_max", 1),
            ("push_frames_max", 1),
            ("push_bytes_max", 1),
            ("java_push_frames_max", 1),
            ("java_push_bytes_max", 1),
            ("push_timeout_ms", 1),
            ("commit_interval_ms", 1),
            ("recent_bytes_max", 0),
            ("throttle_far_bytes", 0),
            ("throttle_quota_bytes", 1),
            ("transfer_lag_max", 1),
            ("transfer_timeout_ms", 1),
            ("takeover_wait_ms", 1),
        ):
            value = getattr(self, key)
            _check(value >= low, key, value, f"{low} or more")

    @property
    def founders(self) -> tuple[str, ...]:
        """Members that found a new group."""
        return self.founder_ids or self.members

    @property
    def peer_ids(self) -> tuple[str, ...]:
        """All members but this one, sorted."""
        return tuple(sorted(set(self.members) - {self.self_id}))

    @property
    def quorum_count(self) -> int:
        """Members that make a majority (MemberState.isQuorum)."""
        return len(self.members) // 2 + 1
