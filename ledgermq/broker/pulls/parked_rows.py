"""Parked pulls as rows of numbers: small, and quick to choose from."""

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import compress
from math import ceil, inf
from typing import Any, Final

from msgspec import Struct

from ledgermq.broker.selectors.filters import Matcher

# Rows of one block: what is taken out of it costs a fraction of a millisecond.
BLOCK_ROWS: Final = 1024
# Tags codes that each condition is asked about; of messages with more, any may match.
_CODES_MAX: Final = 16


# Without the collector of cycles: it would look at all of them again and again, and whoever parked
# one is told to forget it when its connection is lost.
class ParkedPull(Struct, gc=False):
    """One pull that waits, for who parks it or runs it again."""

    connection: Any
    # Whatever the pull processor needs to run it again, besides what stands here.
    request: Any
    topic: str
    queue_id: int
    # First offset it wants.
    queue_offset: int
    matcher: Matcher | None
    deadline_ms: float
    # Of the request: its number on the connection, and how its answer is written.
    opaque: int = 0
    serialize_type: int = 0
    # Bytes that its text takes, and what was made of it.
    weight_bytes: int = 0


class Asked:
    """What pulls of a connection have in common; see `ParkedPull`. Only the same one is equal."""

    __slots__ = ("connection", "matcher", "request", "serialize_type", "weight_bytes")

    def __init__(self, pull: ParkedPull) -> None:
        self.connection = pull.connection
        self.request = pull.request
        self.matcher = pull.matcher
        self.serialize_type = pull.serialize_type
        self.weight_bytes = pull.weight_bytes

    def is_of(self, pull: ParkedPull) -> bool:
        """Tells whether a pull of the same connection asks for this."""
        return (
            self.request is pull.request
            and self.matcher is pull.matcher
            and self.serialize_type == pull.serialize_type
            and self.weight_bytes == pull.weight_bytes
        )


class Arrived:
    """What came to one queue in one turn: however many messages, they are looked at once."""

    __slots__ = ("_codes", "_ends", "code", "end")

    def __init__(self, ends: Mapping[int, int]) -> None:
        """Takes, for each tags code, the offset behind the last message that has it."""
        # Behind all of them.
        self.end = max(ends.values())
        self._codes, self._ends = list(ends), list(ends.values())
        # The only one, None where there are several.
        self.code = self._codes[0] if len(ends) == 1 else None

    def end_for(self, matcher: Matcher | None) -> int:
        """Returns the offset behind the last message that may be wanted, -1 where none may.

        With very many codes that is the last one of all: to be woken for nothing costs a pull less
        than to be asked about each of them.
        """
        if matcher is None or len(self._codes) > _CODES_MAX:
            return self.end
        if self.code is not None:
            return self.end if matcher(self.code) else -1
        return max(compress(self._ends, map(matcher, self._codes)), default=-1)


class ParkedRows(Collection[ParkedPull]):
    """A block of pulls of one queue, in the order in which they were parked."""

    __slots__ = ("asked", "deadlines_ms", "due_ms", "offset_min", "offsets", "opaques", "queue_id",
                 "topic")  # fmt: skip

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        # Columns: what it has in common with others, the first offset that is wanted, and so on.
        self.asked: list[Asked] = []
        self.offsets, self.deadlines_ms, self.opaques = array("q"), array("q"), array("q")
        # The least of their columns, or less.
        self.offset_min = self.due_ms = inf

    def __len__(self) -> int:
        return len(self.asked)

    def __iter__(self) -> Iterator[ParkedPull]:
        topic, queue_id = self.topic, self.queue_id
        columns = (self.asked, self.offsets, self.deadlines_ms, self.opaques)
        for asked, offset, deadline_ms, opaque in zip(*columns, strict=True):
            yield ParkedPull(
                asked.connection, asked.request, topic, queue_id, offset, asked.matcher,
                deadline_ms, opaque, asked.serialize_type, asked.weight_bytes,
            )  # fmt: skip

    def __contains__(self, pull: object) -> bool:
        return any(pull == own for own in self)

    def append(self, asked: Asked, pull: ParkedPull) -> None:
        """Adds a pull that asks for the same as others."""
        deadline_ms = ceil(pull.deadline_ms)
        self.asked.append(asked)
        self.offsets.append(pull.queue_offset)
        self.deadlines_ms.append(deadline_ms)
        self.opaques.append(pull.opaque)
        self.offset_min = min(self.offset_min, pull.queue_offset)
        self.due_ms = min(self.due_ms, deadline_ms)

    def extend(self, other: "ParkedRows") -> None:
        """Adds those of another block of the same queue."""
        self.asked += other.asked
        self.offsets += other.offsets
        self.deadlines_ms += other.deadlines_ms
        self.opaques += other.opaques
        self.offset_min = min(self.offset_min, other.offset_min)
        self.due_ms = min(self.due_ms, other.due_ms)

    def some(self, chosen: Sequence[bool]) -> "ParkedRows":
        """Returns the rows for which there is True, in order."""
        rows = ParkedRows(self.topic, self.queue_id)
        rows.asked.extend(compress(self.asked, chosen))
        rows.offsets.extend(compress(self.offsets, chosen))
        rows.deadlines_ms.extend(compress(self.deadlines_ms, chosen))
        rows.opaques.extend(compress(self.opaques, chosen))
        rows.offset_min = min(rows.offsets, default=inf)
        rows.due_ms = min(rows.deadlines_ms, default=inf)
        return rows

    def wanting(self, arrived: Arrived) -> Sequence[bool]:
        """Tells of each row whether some of the messages that came may satisfy it; empty: none."""
        if arrived.end <= self.offset_min:
            return ()
        if (code := arrived.code) is not None:
            end = arrived.end
            return [
                offset < end and (asked.matcher is None or asked.matcher(code))
                for asked, offset in zip(self.asked, self.offsets, strict=True)
            ]
        # The same condition is asked once, whoever has it.
        ends = {asked.matcher: 0 for asked in self.asked}
        for matcher in ends:
            ends[matcher] = arrived.end_for(matcher)
        return [
            offset < ends[asked.matcher]
            for asked, offset in zip(self.asked, self.offsets, strict=True)
        ]

    def late_or_behind(self, now_ms: float, max_offset: int) -> Sequence[bool]:
        """Tells of each row whether its time is over, or its queue longer than it knew; empty:
        none.
        """
        if now_ms < self.due_ms and max_offset <= self.offset_min:
            return ()
        return [
            deadline_ms <= now_ms or offset < max_offset
            for offset, deadline_ms in zip(self.offsets, self.deadlines_ms, strict=True)
        ]
