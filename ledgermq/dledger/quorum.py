"""QuorumAckChecker: majority arithmetic. How far is the log committed, and does a majority answer?

Pure functions of a few numbers; DLedger's class of the same name also completed futures, which is
the driver's work here.
"""

from collections.abc import Callable, Sequence


def majority_index(indexes: Sequence[int], quorum_count: int) -> int:
    """Returns the highest index that at least `quorum_count` of the members hold."""
    return sorted(indexes, reverse=True)[quorum_count - 1]


class QuorumAckChecker:
    """The commit rule of one group.

    Source: Raft 5.3 and 5.4.2; DLedgerEntryPusher.QuorumAckChecker, which counts old-term entries
    too (figure 8 of the paper). Here an entry commits by counting only when it is of the leader's
    term, or when every member holds it: then no later leader can lack it.
    """

    def __init__(self, quorum_count: int) -> None:
        self._quorum_count = quorum_count

    def commit_index(
        self,
        match_indexes: Sequence[int],
        *,
        commit_index: int,
        term: int,
        term_at: Callable[[int], int],
    ) -> int:
        """Returns the new commit index of a leader; never less than the old one.

        Args:
            match_indexes: of all members, the leader's own durable index included; -1 for a member
                that may not be counted.
            commit_index: the old one.
            term: of the leader.
            term_at: tells the term of an entry of the leader's log.
        """
        by_majority = majority_index(match_indexes, self._quorum_count)
        if by_majority > commit_index and term_at(by_majority) == term:
            return by_majority
        return max(commit_index, min(match_indexes))

    def silence_deadline_ms(self, heard_ms: Sequence[float], timeout_ms: float) -> float:
        """Returns until when a leader may still claim a majority (check-quorum, thesis 6.2).

        Args:
            heard_ms: when each peer that counts was last heard of.
            timeout_ms: silence that a peer is allowed.
        """
        others_count = self._quorum_count - 1
        if others_count == 0:
            return float("inf")
        if len(heard_ms) < others_count:
            return float("-inf")
        return sorted(heard_ms, reverse=True)[others_count - 1] + timeout_ms
