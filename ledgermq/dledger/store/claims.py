"""Claims: how far the log is on disk for certain, told by one thread and voided by another.

The thread that syncs claims the last index it covered; the thread that appends truncates below it.
A generation, raised by each truncation and reset, tells a claim of the log before from one of now.
No lock is needed: each side writes its own value before it reads the other's, so that of a claim
and a truncation that cross, one sees the other:

    sync:        note the claim, then compare the generation, then write the mark
    truncation:  raise the generation, then look at the noted claim, then write `start` if needed
"""

from ledgermq.dledger.store.marks import Marks, Start


class Claims:
    """The durable mark of one store while it is open."""

    def __init__(self, marks: Marks, generation: int, durable_index: int) -> None:
        """Takes what was found at the opening; -1: nothing is known to be on disk."""
        self._marks = marks
        # Raised by each truncation and reset.
        self.generation = generation
        # Generation and last index that the latest sync covered.
        self._synced = (generation, durable_index)
        # What is left of it when that generation is over.
        self._floor = durable_index
        # The highest index that the mark on disk may name.
        self._claimed_index = durable_index

    @property
    def synced_index(self) -> int:
        """Up to which index the log is on disk for certain."""
        generation, index = self._synced
        return index if generation == self.generation else self._floor

    def covered(self, generation: int, last_index: int) -> None:
        """Notes a sync that began in this generation, with this last index."""
        if self.generation == generation:
            self._synced = (generation, last_index)

    def write(self, generation: int, last_index: int, commit_index: int) -> bool:
        """Writes checkpoint and mark after such a sync; False when a truncation came between.

        The checkpoint names no more than what is on this disk.
        """
        self._claimed_index = max(self._claimed_index, last_index)
        if self.generation != generation:
            return False
        self._marks.write_claim(generation, last_index, min(commit_index, last_index))
        return True

    def void(self, durable_index: int, first_index: int, first_position: int) -> None:
        """Begins the next generation; claims above `durable_index` hold no more, on disk either."""
        self._floor = durable_index
        self.generation += 1
        if self._claimed_index > durable_index:
            self.write_start(durable_index, first_index, first_position)
            self._claimed_index = durable_index

    def write_start(self, durable_index: int, first_index: int, first_position: int) -> None:
        """Replaces the mark `start`; durable on return."""
        # It is a claim, too, where `durable` is of an earlier generation.
        self._claimed_index = max(self._claimed_index, durable_index)
        self._marks.write_start(
            Start(
                first_index=first_index,
                first_position=first_position,
                generation=self.generation,
                durable_index=durable_index,
            )
        )
