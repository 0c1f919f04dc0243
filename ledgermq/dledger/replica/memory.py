"""Memory that a member's disk and peers can make it use: what it is now, and its bounds."""

from typing import NamedTuple

from ledgermq.dledger.entry import HEAD_BYTES, OFFSET_BYTES, RUN_BYTES
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.dledger.replica.durability import ANSWER_BYTES, ANSWERS_MAX


class MemoryUse(NamedTuple):
    """Bytes in the memory of one member."""

    # Messages of peers that the core has not taken: a step of its last Ready waits for the disk.
    inbox_bytes: int
    # Answers to pushes that wait for a sync.
    answers_bytes: int
    # Entries: the newest ones, for followers that are a little behind, and all that the store may
    # lack or that no majority has confirmed.
    entries_bytes: int


def memory_bounds(config: ReplicaConfig) -> MemoryUse:
    """Returns what no part of a member's memory exceeds, whatever its disk and its peers do."""
    # What one Ready may hold: a follower appends what its inbox held, a leader what it may propose.
    # The next one gathers while the store may lack the last one.
    proposals_bytes = config.proposal_bytes_max + config.proposals_max * (
        RUN_BYTES + OFFSET_BYTES + HEAD_BYTES
    )
    ready_bytes = max(config.inbox_bytes_max, proposals_bytes)
    return MemoryUse(
        inbox_bytes=config.inbox_bytes_max,
        # What the running sync covers, and what the next one will.
        answers_bytes=2 * ANSWERS_MAX * ANSWER_BYTES,
        entries_bytes=config.core().recent_bytes_max + 2 * ready_bytes,
    )
