"""Whether a broker lives, is ready, has started, and may be stopped.

livez        the reactor turns and the disk answers. Never because of others: a member that
             waits for a majority is well, and a restart would make the wait longer
readyz       whole, and leads, or follows closely
startupz     its files are open and it takes part in its group
quorum-safe  the others are a majority without it
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

# A disk that does not answer for so long hangs.
_DISK_SECONDS_MAX: Final = 30.0
# A follower that is behind by more, in entries and in time, is not ready.
_BEHIND_ENTRIES_MAX: Final = 10_000
_BEHIND_SECONDS_MAX: Final = 10.0


class Member(NamedTuple):
    """Another member, as this one sees it.

    Attributes:
        is_live: it answers, or at least is connected.
        counts: a commit may count it; of the others only a leader knows that.
        behind_entries: behind this leader's log; 0 where it is not known.
    """

    member_id: str
    is_live: bool
    counts: bool
    behind_entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What health is judged by.

    Attributes:
        self_id: of this member.
        step: of the start or the stop, for people.
        done, total, unit: how far the step is; 0 and 0 when it is not known.
        is_started, is_stopping: how far it is.
        role, leader_id, is_serving: as Leadership tells.
        is_group: it has a ledger, and so other members may be there.
        failure, repair: why it stopped for good, what it lost; None when nothing.
        is_recovering: it neither votes nor counts.
        behind_entries: not applied of what the leader says is committed; -1: it says nothing.
        behind_seconds: since it had all that was committed then; None when longer than known.
        leader_silent_s: since a follower heard of its leader.
        disk_seconds: for which the disk has not answered; 0 when nothing waits for it.
        members: the others.
        quorum_count: members that make a majority.
    """

    self_id: str
    step: str
    done: int = 0
    total: int = 0
    unit: str = ""
    is_started: bool
    is_stopping: bool = False
    role: str
    leader_id: str | None = None
    is_serving: bool = False
    is_group: bool = True
    failure: str | None = None
    repair: str | None = None
    is_recovering: bool = False
    behind_entries: int = 0
    behind_seconds: float | None = 0.0
    leader_silent_s: float = 0.0
    disk_seconds: float = 0.0
    members: tuple[Member, ...] = ()
    quorum_count: int = 1


class Check(NamedTuple):
    """One thing that was looked at; `reason` is empty when it is well."""

    name: str
    reason: str


def live(facts: Facts) -> list[Check]:
    """Whoever is asked answers, so the reactor turns; it fails when a restart would help."""
    hangs = facts.disk_seconds > _DISK_SECONDS_MAX
    reason = f"the disk has not answered for {facts.disk_seconds:.0f} s" if hangs else ""
    return [Check("reactor", ""), Check("disk", reason)]


def started(facts: Facts) -> list[Check]:
    """Fails until files are open and the member takes part."""
    if facts.is_started:
        return [Check("start", "")]
    progress = f", {facts.done} of {facts.total} {facts.unit}" if facts.total else ""
    return [Check("start", f"{facts.step}{progress}".rstrip())]


def ready(facts: Facts) -> list[Check]:
    """Fails while clients are better served elsewhere."""
    return [
        *started(facts),
        Check("stop", "the broker is stopping" if facts.is_stopping else ""),
        Check("ledger", facts.failure or ""),
        Check("files", _files_reason(facts)),
        Check("group", _group_reason(facts)),
        Check("lag", _lag_reason(facts)),
    ]


def quorum_safe(facts: Facts) -> list[Check]:
    """Fails while the group would lose its majority with this member."""
    if not facts.is_group or not facts.members:
        # There is no majority to lose: whoever stops it wants that.
        return [Check("majority", "")]
    if not facts.is_started:
        # It is not counted yet; nobody knows of the others.
        return [Check("majority", "this member has not joined its group yet")]
    others = [one for one in facts.members if one.is_live and one.counts]
    others = [one for one in others if one.behind_entries <= _BEHIND_ENTRIES_MAX]
    if facts.leader_id is None:
        reason = "no leader is known: there may be no majority even with this member"
    elif len(others) < facts.quorum_count:
        missing = sorted({one.member_id for one in facts.members} - {o.member_id for o in others})
        reason = (
            f"without {facts.self_id} {len(others)} of {facts.quorum_count} needed members are"
            f" there; missing: {', '.join(missing)}"
        )
    else:
        reason = ""
    return [Check("majority", reason)]


def _files_reason(facts: Facts) -> str:
    if facts.repair is not None:
        return f"is repaired from its peers: {facts.repair}"
    return "has lost state and catches up before it counts" if facts.is_recovering else ""


def _group_reason(facts: Facts) -> str:
    if facts.failure is not None or not facts.is_started:
        return ""
    if facts.role == "LEADER":
        return (
            "" if facts.is_serving else "leads, and waits for a majority to commit its first entry"
        )
    if facts.leader_id is None:
        return f"is {facts.role} and knows no leader: a majority of the group is not there"
    return ""


def _lag_reason(facts: Facts) -> str:
    if facts.role != "FOLLOWER":
        return ""
    if facts.leader_silent_s > _BEHIND_SECONDS_MAX:
        return f"has not heard of its leader for {facts.leader_silent_s:.0f} s"
    is_near = facts.behind_entries <= _BEHIND_ENTRIES_MAX
    is_recent = facts.behind_seconds is not None and facts.behind_seconds <= _BEHIND_SECONDS_MAX
    return "" if is_near or is_recent else f"is {facts.behind_entries} entries behind its leader"
