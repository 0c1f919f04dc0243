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
    # Peers with another cluster id or member list, by id: the difference, with both values.
    rejected_peers: Mapping[str, str] = field(default_factory=dict)
    # Peers that contradict committed entries, by id: what they contradict, and the remedy.
    contradictions: Mapping[str, str] = field(default_factory=dict)

    @property
    def alarm(self) -> str | None:
        """All that an operator has to put right; None when there is nothing."""
        found = [*self.rejected_peers.items(), *self.contradictions.items()]
        # Sorting is stable: of one peer its membership comes first.
        found.sort(key=lambda one: one[0])
        return "; ".join(f"{peer_id} {text}" for peer_id, text in found) or None


def membership_report(raft: Raft | None, contradictions: Mapping[str, str]) -> MembershipReport:
    """Returns what is known now; `raft` is None before the member starts."""
    if raft is None:
        return MembershipReport()
    cluster_id, own = "", raft.birth
    if own is not None and is_agreed(own) and not raft.is_mixed:
        cluster_id = own.group_id
    return MembershipReport(
        cluster_id=cluster_id,
        bootstrap="" if cluster_id or raft.is_mixed else birth_text(raft),
        rejected_peers=rejected_peers(raft),
        contradictions=contradictions,
    )


def rejected_peers(raft: Raft) -> dict[str, str]:
    """Returns the peers that belong to a different group, by id, and how this is known."""
    own = raft.birth
    if own is None:
        return {}
    return {
        peer_id: f"belongs to a different cluster (cluster id {birth.group_id}, expected"
        f" {own.group_id}): one of the two members has the store directory of another group"
        for peer_id, birth in raft.census.strangers.items()
    }
