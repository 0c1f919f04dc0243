"""A simulated disk of one member: what survives a crash lives here, outside the member.

The log is a list of encoded entries. What was appended and not synced may be lost at a power cut,
from any entry on; a kill -9 loses nothing, for the page cache stays. Cuts, resets and the hard
state are durable on return, as the Protocols demand.
"""

import random
from collections.abc import Callable

from ledgermq.dledger.entry import EntryHead, EntrySlice, place
from ledgermq.dledger.errors import CompactedError, LedgerPositionError, OutOfRangeError
from ledgermq.dledger.storage import HardState

Watcher = Callable[[str, int], None]


class SimDisk:
    """LedgerStore and VoteStore of one member, and the faults they can have."""

    def __init__(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.first_index = 0
        self.last_index = -1
        self.first_position = 0
        # One run of one entry each, by index - first_index.
        self.entries: list[EntrySlice] = []
        self.synced_index = -1
        self.checkpoint = -1
        self.synced_checkpoint = -1
        self.hard_state: HardState | None = None
        # Told of each "append" and "truncate", with the first index concerned.
        self.watch: Watcher = _ignore

    @property
    def last_term(self) -> int:
        return self.entries[-1].last_term if self.entries else -1

    @property
    def last_chain_crc(self) -> int:
        return self.entries[-1].last_chain_crc if self.entries else 0

    @property
    def end_position(self) -> int:
        return self.entries[-1].end_position if self.entries else self.first_position

    def _at(self, index: int) -> EntrySlice:
        if index < self.first_index:
            raise CompactedError(index, self.first_index)
        if index > self.last_index:
            raise OutOfRangeError(index, self.first_index, self.last_index)
        return self.entries[index - self.first_index]

    def term_at(self, index: int) -> int:
        return self._at(index).first_term

    def head_at(self, index: int) -> EntryHead:
        return self._at(index).head_at(index)

    def position_at(self, index: int) -> int:
        return self._at(index).position

    def read(self, first_index: int, bytes_max: int) -> EntrySlice:
        first = self._at(first_index)
        parts = [first]
        total = len(first.data)
        for part in self.entries[first_index - self.first_index + 1 :]:
            total += len(part.data)
            if total > bytes_max or part.position != parts[-1].end_position:
                break
            parts.append(part)
        return EntrySlice(
            b"".join(bytes(part.data) for part in parts),
            [part.position - first.position for part in parts],
            first_index=first_index,
            first_term=first.first_term,
            last_term=parts[-1].last_term,
            position=first.position,
            last_chain_crc=parts[-1].last_chain_crc,
        )

    def append(self, entries: EntrySlice) -> None:
        if entries.first_index != self.last_index + 1:
            raise LedgerPositionError("index", self.last_index + 1, entries.first_index)
        size = entries.starts[1] if entries.count > 1 else len(entries.data)
        expected = place(self.end_position, size, self.segment_bytes)
        if self.entries and entries.position != expected:
            raise LedgerPositionError("position", expected, entries.position)
        assert entries.end_position % self.segment_bytes <= self.segment_bytes - 8
        for index in range(entries.first_index, entries.last_index + 1):
            self.entries.append(entries.slice_from(index).take(1, 1))
        self.last_index = entries.last_index
        self.watch("append", entries.first_index)

    def truncate(self, from_index: int) -> None:
        assert self.first_index <= from_index <= self.last_index
        self.watch("truncate", from_index)
        del self.entries[from_index - self.first_index :]
        self.last_index = from_index - 1
        self.synced_index = min(self.synced_index, self.last_index)

    def reset(self, first_index: int, position: int) -> None:
        self.watch("reset", first_index)
        self.entries.clear()
        self.first_index, self.last_index = first_index, first_index - 1
        self.first_position, self.synced_index = position, first_index - 1
        self.checkpoint = self.synced_checkpoint = first_index - 1

    def drop_before(self, position: int) -> int:
        """Removes whole segments below a position."""
        limit = position - position % self.segment_bytes
        count = 0
        while count < len(self.entries) - 1 and self.entries[count].end_position <= limit:
            count += 1
        del self.entries[:count]
        self.first_index += count
        self.first_position = self.entries[0].position if self.entries else self.first_position
        return self.first_index

    def sync(self) -> None:
        self.synced_index = self.last_index
        self.synced_checkpoint = self.checkpoint

    def read_checkpoint(self) -> int:
        return self.checkpoint

    def write_checkpoint(self, commit_index: int) -> None:
        self.checkpoint = commit_index

    def close(self) -> None:
        """Nothing is held."""

    def load(self) -> HardState | None:
        return self.hard_state

    def save(self, state: HardState) -> None:
        self.hard_state = state

    def lose_unsynced(self, rng: random.Random) -> None:
        """A power cut: of what was not synced, a part from the front survives."""
        kept = rng.randint(self.synced_index, self.last_index)
        del self.entries[kept + 1 - self.first_index :]
        self.last_index = self.synced_index = kept
        self.checkpoint = min(rng.choice([self.checkpoint, self.synced_checkpoint]), kept)

    def wipe(self) -> None:
        """The disk was replaced by an empty one."""
        watch = self.watch
        self.__init__(self.segment_bytes)  # type: ignore[misc]  # every field is set anew
        self.watch = watch


def _ignore(event: str, index: int) -> None:
    """No one watches."""
