"""Claims: who works on which message of a shared queue. Pure: events in, the same state everywhere.

A shared queue has two topics of one queue each: the tasks, and a log of events about them. Every
member that takes part reads the whole log and computes the same state from it; the order of the
log decides, so no lock is needed and no two members are given the same message:

    take    give me up to `take` of the messages that nobody has, up to `end`
    done    these are done, whoever had them
    free    I give these back; those that are also `fatal` have ended me
    gone    these members are silent; what they have is free again
    bye     I go; what I have is free again
    purge   what lies before this offset and nobody works on is done

Each event has its writer and a number, so that one that a retry stored twice counts once. A member
that was declared gone is forgotten: its later events are void until it begins with a new name.

Of each message that is not done the state counts the members that ended with it: one for each that
was declared gone, which may have had other reasons, and FATAL_DEATHS for each that gave it back as
fatal, which names the reason. Who says `bye` or `free` has not ended with it.

Once in a while somebody writes a snapshot, so that a newcomer need not read everything. A snapshot
says up to where in the log it goes; what was written beside it is read again behind it. Who finds
no way in, as brokers have deleted what is old, writes a reset: a snapshot that is the state of all
who read on behind it, whatever they thought before.
"""

import heapq
import json
from dataclasses import dataclass, field
from typing import Any, Final

from ledgermq.celery.foreign import read_object

# Messages that members work on, of one queue. Beyond it nobody is given more: a snapshot of so many
# fits into a message.
HELD_MAX: Final = 100_000
# Offsets in one event, and names of members that are gone.
OFFSETS_MAX: Final = 1_000
# Messages that one event takes, however much room there is.
TAKE_MAX: Final = 256
# Members of one queue; further ones are not heard until some are gone.
OWNERS_MAX: Final = 10_000
# For how many members that are silent one counts that ended by this very message.
FATAL_DEATHS: Final = 10
# Ours have 32 characters. Whatever is beyond these bounds no member says: it is void.
_OWNER_CHARS_MAX: Final = 64
_NUMBER_MAX: Final = (1 << 63) - 1
_ENTRY_BYTES_MAX: Final = 4 << 20
_NOBODY: Final = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class Event:
    """What a member says."""

    owner: str
    # 1, 2, 3 and so on for each owner.
    number: int
    done: tuple[int, ...] = ()
    free: tuple[int, ...] = ()
    # Those of `free` that ended the worker which they were handed to.
    fatal: tuple[int, ...] = ()
    gone: tuple[str, ...] = ()
    # Done is all before it that nobody has.
    purge: int = 0
    is_bye: bool = False
    take: int = 0
    # The queue of tasks ends here as far as the writer knows.
    end: int = 0

    def encode(self) -> bytes:
        """Returns the body of the message in the log."""
        fields: dict[str, Any] = {"o": self.owner, "n": self.number}
        for name, value in (
            ("d", self.done), ("f", self.free), ("x", self.fatal), ("g", self.gone),
            ("p", self.purge), ("b", int(self.is_bye)), ("t", self.take), ("e", self.end),
        ):  # fmt: skip
            if value:
                fields[name] = value
        return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(slots=True, frozen=True, kw_only=True)
class Snapshot:
    """The state before the event at one offset of the log."""

    # True when it holds for all who read it, and goes up to where it stands.
    is_reset: bool = False
    # Offset of the first event that is not in it.
    log_offset: int
    next_offset: int
    # offset, owner, how often it was given to somebody
    held: tuple[tuple[int, str, int], ...]
    owners: dict[str, int]
    # The deaths with each of `held`; empty when there was none.
    deaths: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """Returns the body of the message in the log."""
        places = {owner: place for place, owner in enumerate(self.owners)}
        fields: dict[str, Any] = {
            "at": self.log_offset,
            "next": self.next_offset,
            "held": [(offset, places.get(who, -1), times) for offset, who, times in self.held],
            "owners": list(self.owners.items()),
            "reset": int(self.is_reset),
        }
        if self.deaths:
            fields["deaths"] = self.deaths
        return json.dumps(fields, separators=(",", ":")).encode()


def decode_entry(body: bytes) -> Event | Snapshot | None:
    """Returns what a message of the log says; None when it is none of ours."""
    if len(body) > _ENTRY_BYTES_MAX:
        return None
    try:
        fields = read_object(body)
        if "at" in fields:
            owners = _some(fields["owners"], OWNERS_MAX)
            names = [_owner(owner) for owner, _ in owners]
            deaths = tuple(map(_number, _some(fields.get("deaths", ()), HELD_MAX)))
            if deaths and len(deaths) != len(fields["held"]):
                raise ValueError("deaths are of other messages than are held")
            return Snapshot(
                is_reset=bool(fields["reset"]),
                log_offset=_number(fields["at"]),
                next_offset=_number(fields["next"]),
                held=tuple(
                    (_number(offset), names[place] if place >= 0 else _NOBODY, _number(times))
                    for offset, place, times in _some(fields["held"], HELD_MAX)
                ),
                owners={owner: _number(number) for owner, number in owners},
                deaths=deaths,
            )
        return Event(
            owner=_owner(fields["o"]),
            number=_number(fields["n"]),
            done=tuple(map(_number, _some(fields.get("d", ()), OFFSETS_MAX))),
            free=tuple(map(_number, _some(fields.get("f", ()), OFFSETS_MAX))),
            fatal=tuple(map(_number, _some(fields.get("x", ()), OFFSETS_MAX))),
            gone=tuple(map(_owner, _some(fields.get("g", ()), OFFSETS_MAX))),
            purge=_number(fields.get("p", 0)),
            is_bye=bool(fields.get("b", 0)),
            take=_number(fields.get("t", 0), TAKE_MAX),
            end=_number(fields.get("e", 0)),
        )
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        return None


def _some(values: Any, count_max: int) -> Any:
    if len(values) > count_max:
        raise ValueError(f"{len(values)} values, allowed are {count_max}")
    return values


def _number(value: Any, most: int = _NUMBER_MAX) -> int:
    number = int(value)
    if not 0 <= number <= most:
        raise ValueError(f"{number} is not from 0 to {most}")
    return number


def _owner(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _OWNER_CHARS_MAX:
        raise ValueError("this is no name of a member")
    return value


@dataclass(slots=True)
class Held:
    """A message that was given to somebody and is not done."""

    # Empty when it was given back.
    owner: str
    # How often it was given to somebody.
    times: int
    # The members that ended with it, counted as said above.
    deaths: int = 0


@dataclass(slots=True)
class Given:
    """What an event gave to its writer, and how many it found done (for a purge)."""

    offsets: list[int] = field(default_factory=list)
    purged: int = 0


class Claims:
    """The state of one shared queue.

    Invariants: all of `held` lies below `next_offset`; what lies below and is not held is done;
    each message has one owner at most.
    """

    def __init__(self, next_offset: int = 0) -> None:
        """Nothing was taken yet, and all before an offset is done."""
        # The lowest offset that was never given to anybody.
        self.next_offset = next_offset
        self.held: dict[int, Held] = {}
        # Owner -> number of its last event.
        self.owners: dict[str, int] = {}
        # Offsets that were given back; may hold some that are not free any more.
        self._free: list[int] = []

    @classmethod
    def restored(cls, snapshot: Snapshot) -> "Claims":
        """Returns the state that a snapshot tells."""
        claims = cls(snapshot.next_offset)
        claims.owners = dict(snapshot.owners)
        deaths = snapshot.deaths or (0,) * len(snapshot.held)
        for (offset, owner, times), count in zip(snapshot.held, deaths, strict=True):
            claims.held[offset] = Held(owner, times, count)
            if owner == _NOBODY:
                heapq.heappush(claims._free, offset)
        return claims

    def snapshot(self, log_offset: int) -> Snapshot:
        """Returns the state as it is, all events before `log_offset` being in it."""
        held = tuple((offset, one.owner, one.times) for offset, one in sorted(self.held.items()))
        deaths = tuple(one.deaths for _, one in sorted(self.held.items()))
        return Snapshot(
            log_offset=log_offset,
            next_offset=self.next_offset,
            held=held,
            owners=dict(self.owners),
            deaths=deaths if any(deaths) else (),
        )

    def floor(self) -> int:
        """Returns the offset before which everything is done."""
        return min(self.held, default=self.next_offset)

    def ready_count(self, end_offset: int) -> int:
        """Returns how many messages before an offset wait for somebody."""
        free = sum(1 for one in self.held.values() if one.owner == _NOBODY)
        return free + max(0, end_offset - self.next_offset)

    def has_work(self, end_offset: int) -> bool:
        """Tells whether a take would be given something."""
        if len(self.held) >= HELD_MAX:
            return self._find_free() is not None
        return end_offset > self.next_offset or self._find_free() is not None

    def busy_owners(self) -> set[str]:
        """Returns the members that work on something."""
        return {one.owner for one in self.held.values()} - {_NOBODY}

    def apply(self, event: Event) -> Given | None:
        """Takes the next event of the log.

        Returns:
            What its writer has now; None when the event is void: told before, of a member that
            was declared gone, or of one too many.
        """
        last = self.owners.get(event.owner, 0)
        is_new = event.owner not in self.owners
        if event.number <= last or (is_new and event.number != 1):
            return None
        if is_new and len(self.owners) >= OWNERS_MAX:
            return None
        self.owners[event.owner] = event.number
        given = Given()
        for offset in event.done:
            self.held.pop(offset, None)
        fatal = frozenset(event.fatal)
        for offset in event.free:
            if offset in self.held and self.held[offset].owner == event.owner:
                self._give_back(offset, deaths=FATAL_DEATHS if offset in fatal else 0)
        for owner in event.gone:
            if owner != event.owner:
                self._forget(owner, has_died=True)
        if event.purge:
            given.purged = self._purge(event.purge)
        if event.is_bye:
            self._forget(event.owner, has_died=False)
        else:
            given.offsets = self._take(event.owner, event.take, event.end)
        return given

    def _take(self, owner: str, count: int, end_offset: int) -> list[int]:
        offsets: list[int] = []
        while len(offsets) < count and (offset := self._find_free()) is not None:
            heapq.heappop(self._free)
            one = self.held[offset]
            one.owner = owner
            one.times += 1
            offsets.append(offset)
        fresh = min(count - len(offsets), end_offset - self.next_offset, HELD_MAX - len(self.held))
        for offset in range(self.next_offset, self.next_offset + max(0, fresh)):
            self.held[offset] = Held(owner, 1)
            offsets.append(offset)
        self.next_offset += max(0, fresh)
        return offsets

    def _find_free(self) -> int | None:
        """The lowest offset that was given back and is still free, on top of the heap."""
        while self._free:
            one = self.held.get(self._free[0])
            if one is not None and one.owner == _NOBODY:
                return self._free[0]
            heapq.heappop(self._free)
        return None

    def _give_back(self, offset: int, *, deaths: int) -> None:
        one = self.held[offset]
        one.owner = _NOBODY
        one.deaths += deaths
        heapq.heappush(self._free, offset)

    def _forget(self, owner: str, *, has_died: bool) -> None:
        if self.owners.pop(owner, None) is not None:
            for offset, one in self.held.items():
                if one.owner == owner:
                    self._give_back(offset, deaths=int(has_died))

    def _purge(self, end_offset: int) -> int:
        free = [
            offset
            for offset, one in self.held.items()
            if one.owner == _NOBODY and offset < end_offset
        ]
        for offset in free:
            del self.held[offset]
        fresh = max(0, end_offset - self.next_offset)
        self.next_offset += fresh
        return len(free) + fresh
