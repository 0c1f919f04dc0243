"""Claims: how far the log is on disk for certain, as the mark on disk may say.

Everything here is the keeper's thread's alone: jobs are done one by one, so that a sync and a cut
never cross. A cut below what was claimed takes the claim back on disk before it wipes anything.
"""

from ledgermq.dledger.store.marks import Marks, Start


class Claims:
    """The durable mark of one store while it is open."""

    def __init__(self, marks: Marks, generation: int, durable_index: int) -> None:
        """Takes what was found at the opening; -1: nothing is known to be on disk."""
        self._marks = marks
        # Raised by each cut; a claim on disk of a lower generation than that of `start` is void.
        self._generation = generation
        # Up to which index the log is on disk for certain.
        self.synced_index = durable_index
        # The highest index that the marks on disk may name.
        self._claimed_index = durable_index

    def covered(self, last_index: int) -> None:
        """Notes a completed sync of the log up to this index."""
        self.synced_index = last_index

    def write(self, commit_index: int) -> None:
        """Writes checkpoint and mark: what is synced, and what of it is committed.

        Raises:
            DiskFullError: the marks on disk are as before.
        """
        self._claimed_index = max(self._claimed_index, self.synced_index)
        committed = min(commit_index, self.synced_index)
        self._marks.write_claim(self._generation, self.synced_index, committed)

    def void(self, durable_index: int, first_index: int, first_position: int) -> None:
        """Begins the next generation: claims above `durable_index` hold no more, on disk either.

        Raises:
            DiskFullError: nothing was taken back; it may be tried again.
        """
        self._generation += 1
        if self._claimed_index > durable_index:
            self._write_start(durable_index, first_index, first_position)
            self._claimed_index = durable_index
        self.synced_index = durable_index

    def write_start(self, first_index: int, first_position: int) -> None:
        """Replaces the mark `start`; durable on return.

        Raises:
            DiskFullError: the mark is as before.
        """
        # It is a claim, too, where `durable` is of an earlier generation.
        self._write_start(self.synced_index, first_index, first_position)

    def _write_start(self, durable_index: int, first_index: int, first_position: int) -> None:
        self._claimed_index = max(self._claimed_index, durable_index)
        self._marks.write_start(
            Start(
                first_index=first_index,
                first_position=first_position,
                generation=self._generation,
                durable_index=durable_index,
            )
        )
