"""SegmentAges: the segments of a log that retention may look at, and how old they are."""

from ledgermq.commitlog.dispatch import Dispatcher
from ledgermq.commitlog.look_up import LookUp
from ledgermq.commitlog.queue_ends import ToldEnds
from ledgermq.commitlog.retention import SegmentAge
from ledgermq.dledger.storage import LedgerStore


class SegmentAges:
    """Knows what a log must not begin behind.

    Invariant: a segment is named only while the mark on disk names an entry behind it, and while
    the log behind it tells where queues go on whose last message goes with it.
    """

    def __init__(self, store: LedgerStore, dispatcher: Dispatcher, look_up: LookUp) -> None:
        """Reads what its owner has opened."""
        self._store = store
        self._dispatcher = dispatcher
        self._look_up = look_up
        # Position behind the last entry that the mark on disk names.
        self.flushed_position = 0
        # What records of queue ends told that are in the log.
        self.told_ends = ToldEnds()

    def oldest_first(self, state_index: int | None) -> list[SegmentAge]:
        """Return the segments that are full, dispatched and told again behind.

        Args:
            state_index: see MessageStore.decide_clean.
        """
        segment_bytes = self._store.segment_bytes
        position = self._store.first_position
        limit = self._limit(state_index)
        ages: list[SegmentAge] = []
        while True:
            position += segment_bytes - position % segment_bytes
            if position >= self._dispatcher.dispatched_position or position > limit:
                return ages
            # A segment's last record is about as old as the first of the next one.
            stored = self._look_up.store_time_from(position)
            if stored is None:
                return ages
            ages.append(SegmentAge(position, stored))

    def _limit(self, state_index: int | None) -> int:
        """Return the position that no log may begin behind.

        What is kept must tell where queues go on whose last message is dropped: by the mark to this
        member, by a record to one that begins there.
        """
        ends_index = self.told_ends.index
        is_told = ends_index >= self._store.first_index
        ends_position = self._store.position_at(ends_index) if is_told else 0
        limit = min(self.flushed_position, ends_position)
        if state_index is None:
            return limit
        is_there = self._store.first_index <= state_index <= self._store.last_index
        return min(limit, self._store.position_at(state_index) if is_there else 0)
