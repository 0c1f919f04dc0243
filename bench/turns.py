"""Turns of a reactor as they were measured in a broker's process, and what is said of them.

A turn lasts from the return of one wait for events to the next wait: nobody is served meanwhile.
Its wall time is told apart: waiting for a processor (other processes have it), computing, and
standing still for anything else, as for a disk. A thread stands still, too, while another one of
its process has the interpreter and waits for a processor itself: as much of it as others waited
so counts as waiting for a processor.
Times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Turn(NamedTuple):
    """One turn."""

    end_s: float
    wall_ms: float
    # The thread could have run, and no processor was free.
    waiting_ms: float
    # The thread computed.
    computing_ms: float
    # Other threads of the process could have run, and no processor was free: one of them may have
    # had the interpreter.
    others_waiting_ms: float
    # Pages that had to be read from the disk.
    faults: int
    # Where the thread stood when it was looked at, or asked for the disk; "" for a short turn.
    place: str
    # Syncs, and names of files made, changed and removed, in the turn.
    syncs: int
    names: int
    # Files were opened or closed in it: the process serves nobody yet, or no more.
    is_exempt: bool

    @property
    def own_ms(self) -> float:
        """What it would have lasted with a processor of its own."""
        return max(0.0, self.wall_ms - self.waiting_ms - min(self._gap_ms, self.others_waiting_ms))

    @property
    def still_ms(self) -> float:
        """It neither computed nor waited for a processor."""
        return max(0.0, self._gap_ms - self.others_waiting_ms)

    @property
    def _gap_ms(self) -> float:
        return max(0.0, self.wall_ms - self.waiting_ms - self.computing_ms)


class Stop(NamedTuple):
    """A process was stopped by a signal: what its turn lasted meanwhile says nothing."""

    pid: int
    begin_s: float
    end_s: float


class Phase(NamedTuple):
    """What the program did to the brokers, and when."""

    name: str
    begin_s: float
    end_s: float


class Summary(NamedTuple):
    """All turns of a phase, in all processes."""

    count: int
    # Each None when there was no turn.
    longest: Turn | None
    longest_own: Turn | None
    longest_still: Turn | None
    # In turns: 0 where the reactor waits for no disk.
    syncs: int
    names: int
    faults: int
    # Of the work that was counted: by name.
    done: Mapping[str, int]


class Written(NamedTuple):
    """What one process wrote in a quarter of a second."""

    pid: int
    end_s: float
    count: int
    # The turns that may be the longest of anything.
    turns: Sequence[Turn]
    done: Mapping[str, int]


def write_line(written: Written) -> str:
    """One line of a process's file."""
    document = written._asdict() | {"turns": [list(turn) for turn in written.turns]}
    return json.dumps(document) + "\n"


def read_lines(path: Path) -> Iterator[Written]:
    """What a process wrote; a line that a kill left half written is left out."""
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            document = json.loads(line)
            document["turns"] = [Turn(*fields) for fields in document["turns"]]
            yield Written(**document)


def worth_telling(turns: Iterable[Turn]) -> list[Turn]:
    """The turns of one file's line: the longest of each kind, and all that asked for the disk."""
    turns = list(turns)
    kept = {turn for turn in turns if turn.syncs or turn.names or turn.faults or turn.is_exempt}
    judged = [turn for turn in turns if not turn.is_exempt]
    if judged:
        kept.add(max(judged, key=lambda turn: turn.wall_ms))
        kept.add(max(judged, key=lambda turn: turn.own_ms))
        kept.add(max(judged, key=lambda turn: turn.still_ms))
    return sorted(kept)


def summarize(lines: Iterable[Written], phase: Phase, stops: Sequence[Stop]) -> Summary:
    """All that was written while a phase lasted; stopped turns, openings and closings left out."""
    count, turns, done = 0, [], dict[str, int]()
    for line in lines:
        if not phase.begin_s < line.end_s <= phase.end_s:
            continue
        count += line.count
        turns += [turn for turn in line.turns if not _is_left_out(line.pid, turn, stops)]
        for name, times in line.done.items():
            done[name] = done.get(name, 0) + times
    return Summary(
        count,
        max(turns, key=lambda turn: turn.wall_ms, default=None),
        max(turns, key=lambda turn: turn.own_ms, default=None),
        max(turns, key=lambda turn: turn.still_ms, default=None),
        sum(turn.syncs for turn in turns),
        sum(turn.names for turn in turns),
        sum(turn.faults for turn in turns),
        done,
    )


def _is_left_out(pid: int, turn: Turn, stops: Sequence[Stop]) -> bool:
    begin_s = turn.end_s - turn.wall_ms / 1000
    return turn.is_exempt or any(
        stop.pid == pid and begin_s <= stop.end_s and stop.begin_s <= turn.end_s for stop in stops
    )


HEAD = (
    "| what happened | turns | longest ms | without waiting for a processor | standing still"
    " | syncs | files made, renamed, removed | page faults with a read | jobs"
    " | where the longest was |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def table_row(name: str, summary: Summary) -> str:
    """One line of the table."""
    longest, own, still = summary.longest, summary.longest_own, summary.longest_still
    if longest is None or own is None or still is None:
        return f"| {name} | 0 | | | | | | | | |"
    done = ", ".join(f"{times} {what}" for what, times in sorted(summary.done.items()) if times)
    return (
        f"| {name} | {summary.count:,} | {longest.wall_ms:.1f} | {own.own_ms:.1f}"
        f" | {still.still_ms:.1f} | {summary.syncs} | {summary.names}"
        f" | {summary.faults} | {done} | {own.place} |"
    )
