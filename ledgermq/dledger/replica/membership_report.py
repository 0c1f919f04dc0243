"""What one member reports of its group's membership: to logs, metrics, `doctor` and the console."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledgermq.dledger.birth import is_agreed
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.replica.birth_log import birth_text


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipReport:
    """The state of one member's group; every text is complete without the others."""

    # Id drawn when the group was bootstrapped; empty before, and with a Java member in the group.
    cluster_id: str = ""
    # What the bootstrap waits for; empty when it is done, and where there is none.
    bootstrap: str = ""
    # Peers with another cluster id or member list, by id, and the difference, with both values.
    rejected_peers: Mapping[str, str] = field(default_factory=dict)
    # Peers that contradict committed entries, by id, what they contradict, and the remedy.
    contradictions: Mapping[str, str] = field(default_factory=dict)

    @property
    def alarm(self) -> str | None:
        """All that an operator has to put right; None when there is nothing."""
        return "; ".join((*self.rejected_peers.values(), *self.contradictions.values())) or None


def membership_report(
    raft: Raft | None, rejected_peers: Mapping[str, str], contradictions: Mapping[str, str]
) -> MembershipReport:
    """Returns what is known now; `raft` is None before the member starts."""
    if raft is None:
        return MembershipReport()
    cluster_id, own = "", raft.birth
    if own is not None and is_agreed(own) and not raft.is_mixed:
        cluster_id = own.group_id
    return MembershipReport(
        cluster_id=cluster_id,
        bootstrap="" if cluster_id or raft.is_mixed else birth_text(raft),
        rejected_peers=dict(sorted({**_other_clusters(raft), **rejected_peers}.items())),
        contradictions=contradictions,
    )


def _other_clusters(raft: Raft) -> dict[str, str]:
    """Peers whose messages carried another cluster id, by id."""
    own = raft.birth
    if own is None:
        return {}
    return {
        peer_id: f"{peer_id} belongs to a different cluster (cluster id {birth.group_id}, expected"
        f" {own.group_id})"
        for peer_id, birth in raft.census.strangers.items()
    }
