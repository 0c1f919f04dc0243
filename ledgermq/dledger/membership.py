"""Membership: which members vote in a group, and how two members compare what they know of it.

The members that bootstrap a group agree on its cluster id and on the ids of all members; both are
durable on each of them (`store/vote_file.py`) and do not change afterwards. Addresses are not part
of the membership. HELLO carries the id and the list, so that both ends can name the difference;
votes, heartbeats and bootstrap reports carry a digest of the list. Members with different lists
have different majorities, so neither counts for the other, whatever else they agree on. Pure.
"""

from collections.abc import Collection
from hashlib import sha256
from typing import Final, NamedTuple

# Of a sender whose list is not known: a Java member, or one of DLedger's tools.
NO_DIGEST: Final = 0
# A digest is a positive signed 64-bit number on the wire.
_DIGEST_MASK: Final = (1 << 63) - 1


class Cluster(NamedTuple):
    """What one member knows of its group."""

    # Agreed at bootstrap; empty before.
    cluster_id: str
    # Ids of all members, sorted.
    members: tuple[str, ...]


def members_digest(members: Collection[str]) -> int:
    """Returns a number that is the same for the same ids in any order; never NO_DIGEST."""
    digest = sha256(";".join(sorted(members)).encode()).digest()
    return (int.from_bytes(digest[:8], "big") & _DIGEST_MASK) or 1


def members_text(members: Collection[str]) -> str:
    """Returns a member list as it appears in errors and logs."""
    return ", ".join(sorted(members))


def find_mismatch(peer_id: str, peer: Cluster, own: Cluster) -> str | None:
    """Compares what a peer says in HELLO or its answer with what this member knows.

    Returns:
        Why neither may count for the other, for the log of both ends; None when they may.
    """
    if set(peer.members) != set(own.members):
        return (
            f"{peer_id} has another member list: {members_text(peer.members)};"
            f" expected {members_text(own.members)} (key dLegerPeers)"
        )
    if peer.cluster_id and own.cluster_id and peer.cluster_id != own.cluster_id:
        return (
            f"{peer_id} belongs to a different cluster"
            f" (cluster id {peer.cluster_id}, expected {own.cluster_id})"
        )
    return None
