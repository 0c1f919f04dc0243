"""A disk in memory that knows every state in which a power cut may leave it.

What was synced is there after the cut. Of what was not, each 512-byte sector has on its own any of
the contents it had since the last sync of its file; a length that was not synced is the old or the
new one; each name that was made, renamed or removed without a sync of its directory is there or
not, one by one. `replace` and `create` go through the same steps as the real file system: a file
beside, its sync, the rename, the sync of the directory.

`on_point`, when set, is called before and behind each operation but a write, and between its steps:
a machine may stop there. What files contain is noted at each point.

A write may be done in parts, and a sync takes its time: both let go of the interpreter, and another
thread may run there (`on_let_go`). Of what was written after a sync began, the cut that follows
keeps any sectors or none.
"""

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence

from ledgermq.dledger.store.errors import DiskFullError

SECTOR_BYTES = 512
# The share of what was not synced that a cut keeps on one disk, drawn for each cut.
SURVIVALS = (0.0, 0.1, 0.5, 0.9, 1.0)
# Of the writes, how many are done in parts.
PARTED_SHARE = 0.5
# A file by path, after a cut.
State = dict[str, bytes]


class PowerCutError(OSError):
    """The machine is off: no operation comes through."""


class RecordedFile:
    """One file, whatever its names."""

    knows_cache = True

    def __init__(self, disk: "RecordingDisk", content: bytes, synced: bytes) -> None:
        self.disk = disk
        self.content = bytearray(content)
        # On the platter, and what it contained since, oldest first, with the time of each.
        self.synced = synced
        self.synced_at = 0
        self.history: list[tuple[int, bytes]] = []

    def note(self) -> None:
        """Takes down the content if it is a new one."""
        last = self.history[-1][1] if self.history else self.synced
        if last != self.content:
            self.history.append((self.disk.next_time(), bytes(self.content)))

    def read(self, offset: int, size_bytes: int) -> bytes:
        return bytes(self.content[offset : offset + size_bytes])

    def view(self, offset: int, size_bytes: int) -> memoryview:
        return memoryview(self.read(offset, size_bytes))

    def end_views(self) -> None:
        """There is no mapping."""

    def read_cached(self, offset: int, buffer: bytearray | memoryview) -> bool:
        found = self.content[offset : offset + len(buffer)]
        buffer[: len(found)] = found
        return len(found) == len(buffer)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        done = self.disk.first_part(len(data))
        if done:
            self.content[offset : offset + done] = data[:done]
            self.disk.point("part of a write")
            self.disk.let_go()
        self.content[offset + done : offset + len(data)] = data[done:]

    def sync(self) -> None:
        self.disk.point("sync")
        with self.disk.lock:
            self.note()
            captured, at = bytes(self.content), self.disk.next_time()
        self.disk.let_go()
        with self.disk.lock:
            self.disk.check_power()
            if at > self.synced_at:
                # Another sync that began later may have ended before.
                self.synced, self.synced_at = captured, at
                self.history = [entry for entry in self.history if entry[0] > at]
        self.disk.point("synced")

    def rewrite(self, offset: int, end: int) -> None:
        """No write of this disk fails and counts as done."""

    def written_ranges(self, offset: int) -> Iterator[tuple[int, int]]:
        yield offset, len(self.content)

    def close(self) -> None:
        """The content stays."""


class NameChange:
    """A name that was made (`file`), moved from another name, or removed; not yet synced."""

    def __init__(
        self, at: int, path: str, file: RecordedFile | None, moved_from: str | None = None
    ) -> None:
        self.at = at
        self.path = path
        self.file = file
        self.moved_from = moved_from

    def apply(self, names: dict[str, RecordedFile]) -> None:
        if self.moved_from is not None and names.get(self.moved_from) is self.file:
            del names[self.moved_from]
        if self.file is None:
            names.pop(self.path, None)
        else:
            names[self.path] = self.file


class Choice:
    """One thing that a cut decides: the time of each alternative, the oldest first."""

    def __init__(self, owner: object, part: int, times: list[int], values: list[bytes]) -> None:
        self.owner = owner
        # Offset of a sector; LENGTH; NAME.
        self.part = part
        self.times = times
        self.values = values


LENGTH, NAME = -1, -2


class RecordingDisk:
    """A FileSystem."""

    def __init__(
        self,
        state: State | None = None,
        sync_s: float = 0.0,
        parts: random.Random | None = None,
    ) -> None:
        """Begins with files that are on the platter.

        Args:
            state: these files.
            sync_s: how long a sync takes, and a rest in the midst of a write.
            parts: draws which writes are done in parts; None: none is.
        """
        self.on_point: Callable[[str], None] | None = None
        # Whoever is at the disk lets go of the interpreter: another thread may run.
        self.on_let_go: Callable[[], None] | None = None
        self._parts = parts
        self.is_off = False
        self.free_bytes: int | None = None
        self.sync_s = sync_s
        self._clock = itertools.count(1)
        self.lock = threading.RLock()
        self._never = threading.Event()
        self.names_now = {
            path: RecordedFile(self, content, content) for path, content in (state or {}).items()
        }
        self.names_synced = dict(self.names_now)
        self.changes: list[NameChange] = []

    # What happens.

    def next_time(self) -> int:
        return next(self._clock)

    def let_go(self) -> None:
        """The operation takes its time, and others may run."""
        if self.on_let_go is not None:
            self.on_let_go()
        if self.sync_s:
            self._never.wait(self.sync_s)

    def first_part(self, size_bytes: int) -> int:
        """Returns after how much of a write others may run; 0: it is done in one piece."""
        parts = self._parts
        if parts is None or parts.random() >= PARTED_SHARE:
            return 0
        return parts.randrange(size_bytes + 1)

    def check_power(self) -> None:
        if self.is_off:
            raise PowerCutError("the power is off")

    def point(self, kind: str) -> None:
        """The machine may stop here."""
        self.check_power()
        if self.on_point is not None:
            self.note()
            self.on_point(kind)

    def note(self) -> None:
        for file in self._files():
            file.note()

    def _files(self) -> list[RecordedFile]:
        files = [*self.names_synced.values(), *self.names_now.values()]
        files += [change.file for change in self.changes if change.file is not None]
        return list(dict.fromkeys(files))

    def _change(self, path: str, file: RecordedFile | None, moved_from: str | None = None) -> None:
        with self.lock:
            change = NameChange(self.next_time(), path, file, moved_from)
            self.changes.append(change)
            change.apply(self.names_now)

    # FileSystem.

    def make_directory(self, path: str) -> None:
        self.point("make_directory")

    def add_directory(self, path: str) -> list[str]:
        self.point("add_directory")
        return []

    def names(self, directory: str) -> list[str]:
        inside = directory + "/"
        paths = [path[len(inside) :] for path in self.names_now if path.startswith(inside)]
        return sorted({name.partition("/")[0] for name in paths})

    def size_bytes(self, path: str) -> int:
        if path not in self.names_now:
            raise FileNotFoundError(path)
        return len(self.names_now[path].content)

    def modified_ms(self, path: str) -> int:
        return 0

    def reserve(self, path: str, size_bytes: int) -> RecordedFile:
        self.point("create")
        if self.free_bytes is not None and size_bytes > self.free_bytes:
            raise DiskFullError(path, size_bytes)
        directory, name = os.path.split(path)
        temporary = f"{directory}-{name}.tmp"
        file = RecordedFile(self, bytes(size_bytes), b"")
        self._change(temporary, file)
        self.point("allocated")
        self._change(path, file, temporary)
        self.point("created")
        return file

    def open(self, path: str) -> RecordedFile:
        if path not in self.names_now:
            raise FileNotFoundError(path)
        return self.names_now[path]

    def read(self, path: str) -> bytes | None:
        file = self.names_now.get(path)
        return bytes(file.content) if file is not None else None

    def replace(self, path: str, data: bytes) -> None:
        self.point("replace")
        if self.free_bytes is not None and len(data) > self.free_bytes:
            raise DiskFullError(path, len(data))
        file = RecordedFile(self, data, b"")
        self._change(path + ".tmp", file)
        self.point("written")
        file.sync()
        self._change(path, file, path + ".tmp")
        self.point("renamed")
        self.sync_directory(os.path.dirname(path))

    def remove(self, path: str) -> None:
        self.point("remove")
        self._change(path, None)
        self.point("removed")

    def sync_directory(self, directory: str) -> None:
        self.point("sync_directory")
        self.let_go()
        with self.lock:
            self.check_power()
            kept = []
            moved = set()
            for change in self.changes:
                if os.path.dirname(change.path) == directory:
                    change.apply(self.names_synced)
                    moved.add((change.moved_from, change.file))
                else:
                    kept.append(change)
            # A name that a durable rename took away cannot come back.
            self.changes = [
                change
                for change in kept
                if (change.path, change.file) not in moved or change.file is None
            ]
        self.point("synced_directory")

    # What a cut leaves.

    def content(self) -> State:
        """All files as programs see them: what a kill leaves."""
        return {path: bytes(file.content) for path, file in self.names_now.items()}

    def choices(self) -> list[Choice]:
        """What a cut at this moment decides."""
        self.note()
        found = [Choice(change, NAME, [0, change.at], [b"", b""]) for change in self.changes]
        for file in self._files():
            if not file.history:
                continue
            last = file.history[-1]
            if len(last[1]) != len(file.synced):
                found.append(Choice(file, LENGTH, [0, last[0]], [b"", b""]))
            length = max(len(last[1]), len(file.synced))
            for at in range(0, length, SECTOR_BYTES):
                times, values = [0], [_sector(file.synced, at)]
                for time_, content in file.history:
                    value = _sector(content, at)
                    if value not in values:
                        times.append(time_)
                        values.append(value)
                if len(values) > 1:
                    found.append(Choice(file, at, times, values))
        return found

    def state(self, choices: list[Choice], picks: tuple[int, ...]) -> State:
        """Returns the files after a cut that decided so."""
        names = dict(self.names_synced)
        taken: dict[object, dict[int, bytes]] = {}
        longer = set()
        for choice, pick in zip(choices, picks, strict=True):
            if choice.part == NAME:
                if pick:
                    assert isinstance(choice.owner, NameChange)
                    choice.owner.apply(names)
            elif choice.part == LENGTH:
                if pick:
                    longer.add(choice.owner)
            elif pick:
                taken.setdefault(choice.owner, {})[choice.part] = choice.values[pick]
        contents: State = {}
        for path, file in names.items():
            content = bytearray(file.synced)
            if file.history and len(file.history[-1][1]) != len(content):
                length = len(file.history[-1][1]) if file in longer else len(content)
                content = content[:length].ljust(length, b"\0")
            for at, value in taken.get(file, {}).items():
                room = content[at : at + SECTOR_BYTES]
                content[at : at + SECTOR_BYTES] = value[: len(room)].ljust(len(room), b"\0")
            contents[path] = bytes(content)
        return contents

    def cut_power(self, rng: random.Random, survivals: Sequence[float] = SURVIVALS) -> State:
        """Returns one state at random, with one of these shares of what was not synced; this disk
        does nothing from here on.
        """
        with self.lock:
            self.is_off = True
            choices = self.choices()
            return self.state(choices, random_picks(choices, rng, survivals))

    def states(self, count_max: int, rng: random.Random) -> Iterator[State]:
        """Yields different states, all of them when there are not more than `count_max`.

        Else: nothing kept, all kept, each prefix in time, each thing alone kept and alone lost,
        and then subsets at random.
        """
        choices = self.choices()
        seen: set[int] = set()
        for picks in _picks(choices, count_max, rng):
            state = self.state(choices, picks)
            key = hash(tuple(sorted(state.items())))
            if key in seen:
                continue
            seen.add(key)
            yield state
            if len(seen) >= count_max:
                return


def random_picks(
    choices: list[Choice], rng: random.Random, survivals: Sequence[float] = SURVIVALS
) -> tuple[int, ...]:
    survival = rng.choice(survivals)
    return tuple(
        rng.randrange(1, len(choice.times)) if rng.random() < survival else 0 for choice in choices
    )


def _picks(choices: list[Choice], count_max: int, rng: random.Random) -> Iterator[tuple[int, ...]]:
    total = 1
    for choice in choices:
        total *= len(choice.times)
    if total <= count_max:
        yield from itertools.product(*(range(len(choice.times)) for choice in choices))
        return
    oldest = tuple(0 for _ in choices)
    newest = tuple(len(choice.times) - 1 for choice in choices)
    yield oldest
    yield newest
    for moment in sorted({time_ for choice in choices for time_ in choice.times}):
        yield tuple(sum(t <= moment for t in choice.times) - 1 for choice in choices)
    for at in rng.sample(range(len(choices)), len(choices)):
        yield (*oldest[:at], newest[at], *oldest[at + 1 :])
        yield (*newest[:at], oldest[at], *newest[at + 1 :])
    for _ in range(4 * count_max):
        yield random_picks(choices, rng)


def _sector(content: bytes, at: int) -> bytes:
    return content[at : at + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
