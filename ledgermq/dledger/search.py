"""MatchSearch: where two logs part, asked one entry at a time.

The leader asks its own last entry first, then back from the follower's end in steps that double,
then halves what is left. Equal entries have equal prefixes (Raft 5.3, Log Matching), so every
answer settles all entries on one side of it. DLedger goes back one entry a time; to the follower
there is no difference.

Pure arithmetic on indexes; which entry is sent and when is the dispatcher's business.
"""


class MatchSearch:
    """One search.

    Invariants: all entries up to `low` are common (`first_index - 1`: none is known to be); the
    entry `high` is not, or lies behind the log; `low < high <= conflict`.
    """

    __slots__ = ("conflict", "first_index", "high", "low", "step")

    def __init__(self, first_index: int, last_index: int) -> None:
        """Begins with nothing known.

        Args:
            first_index: of the leader's log.
            last_index: of the leader's log.
        """
        self.first_index = first_index
        self.low = first_index - 1
        self.high = last_index + 1
        # The first entry that is known to differ, or that the leader does not have. What merely
        # lies behind the follower's log may come to it while the search goes on, from requests
        # of an earlier leader that are still under way.
        self.conflict = last_index + 1
        # How far behind `high` the next entry to ask is.
        self.step = 1

    @property
    def is_over(self) -> bool:
        """Whether `low` is the last common entry; below `first_index` there is none."""
        return self.high - self.low <= 1

    def probe(self) -> int:
        """Tells which entry to ask next."""
        return max((self.low + self.high) // 2, self.high - self.step)

    def matched(self, index: int, end_index: int) -> None:
        """Takes the answer that an entry is common, of a follower whose log ends at `end_index`."""
        self.low = max(self.low, index)
        self.conflict = max(self.conflict, self.low + 1)
        if end_index == index:
            self.high = self.low + 1
        else:
            self.high = max(self.high, self.low + 1, min(end_index + 1, self.conflict))

    def differed(self, index: int, end_index: int) -> bool:
        """Takes the answer that an entry is not common.

        Returns:
            False when the follower ends before an entry it had: it lost entries, search anew.
        """
        if self.first_index <= self.low and end_index < self.low:
            return False
        if end_index < index:
            self.high = max(min(self.high, end_index + 1), self.low + 1)
            self.step = 1
        else:
            self.high = self.conflict = max(min(self.high, index), self.low + 1)
            self.step *= 2
        return True
