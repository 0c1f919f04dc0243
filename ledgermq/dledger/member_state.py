"""MemberState: what one member knows of term, vote, role and leader."""

from enum import Enum


class Role(Enum):
    """Raft's three roles, under DLedger's names (MemberState.Role)."""

    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"
