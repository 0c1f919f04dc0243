"""The figures of `bench.peer`: kept by row and group, as JSON, and as a table with ratios."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from bench.page import machine_line, markdown

# Figures of one round, or under "failed" the reason why there are none.
Outcome = Mapping[str, Any]
# Of each figure: its name in the table, and its digits.
NAMES = {
    "messages_per_second": ("messages/s", 0),
    "mb_per_second": ("MB/s", 0),
    "read_per_second": ("messages/s read, all groups", 0),
    "p50_ms": ("p50 ms", 2),
    "p99_ms": ("p99 ms", 2),
    "p999_ms": ("p99.9 ms", 2),
    "mean_ms": ("mean ms", 2),
    "cpu_us": ("CPU µs a message, all members", 1),
    "mb": ("", 0),
    "s": ("", 2),
}
OF_LOAD = ("messages_per_second", "p50_ms", "p99_ms", "p999_ms", "cpu_us")
OF_PULL = ("messages_per_second", "mb_per_second", "p99_ms", "cpu_us")
OF_MIXED = ("messages_per_second", "read_per_second", "p99_ms", "cpu_us")
# Which figures of a row the table shows; a row that is not here is a load.
SHOWN = {
    "pull": OF_PULL,
    "cold": OF_PULL,
    "mixed-1": OF_MIXED,
    "mixed-4": OF_MIXED,
    "mixed-16": OF_MIXED,
    "producer": ("messages_per_second", "mean_ms"),
    "consumer": ("messages_per_second", "cpu_us"),
    "memory": ("mb",),
    "heap": ("mb",),
    "start": ("s",),
    "catch-up": ("s",),
    "kill": ("s",),
}
WARM_UP = "warm-up"


@dataclass
class Report:
    """What a run found."""

    groups: list[str]
    titles: dict[str, str]
    about: dict[str, Any] = field(default_factory=dict)
    # By row, by group: one outcome for each round.
    results: dict[str, dict[str, list[Outcome]]] = field(default_factory=dict)

    def add(self, key: str, group: str, outcome: Outcome) -> None:
        """Notes a round."""
        self.results.setdefault(key, {}).setdefault(group, []).append(outcome)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "about": self.about,
            "groups": self.groups,
            "titles": self.titles,
            "results": self.results,
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """From JSON."""
        return cls(document["groups"], document["titles"], document["about"], document["results"])

    def values(self, key: str, group: str, figure: str) -> list[float]:
        """One figure in all rounds that have it."""
        outcomes = self.results.get(key, {}).get(group, [])
        return [outcome[figure] for outcome in outcomes if figure in outcome]

    def failures(self, key: str, group: str) -> list[str]:
        """Why rounds have no figures."""
        outcomes = self.results.get(key, {}).get(group, [])
        return [outcome["failed"] for outcome in outcomes if "failed" in outcome]

    def ratios(self, key: str, group: str, other: str, figure: str) -> list[float]:
        """A group's figure in parts of another's, of each round in which both have it."""
        rounds = zip(
            self.results.get(key, {}).get(group, []),
            self.results.get(key, {}).get(other, []),
            strict=False,
        )
        return [a[figure] / b[figure] for a, b in rounds if figure in a and b.get(figure)]


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Median and, of several, lowest and highest."""
    if not values:
        return "-"
    middle, low, high = (
        f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    )
    return middle if len(values) == 1 else f"{middle} ({low}..{high})"


def cell(report: Report, key: str, group: str, figure: str, digits: int) -> str:
    """Median and spread, or that all rounds failed, or how many did."""
    values, failures = report.values(key, group, figure), report.failures(key, group)
    if not failures:
        return spread(values, digits)
    if not values:
        return "failed"
    return f"{spread(values, digits)}, {len(failures)} failed"


def rows_of(report: Report, peer: str) -> list[tuple[str, ...]]:
    """The rows of the table; the ratios are those to `peer`."""
    rows = []
    for key, title in report.titles.items():
        if key not in report.results:
            continue
        for number, figure in enumerate(SHOWN.get(key, OF_LOAD)):
            name, digits = NAMES[figure]
            cells = [cell(report, key, group, figure, digits) for group in report.groups]
            for group in report.groups:
                if group != peer:
                    cells.append(spread(report.ratios(key, group, peer, figure), 2))
            label = ": ".join(filter(None, (title, name))) if number == 0 else name
            rows.append((label, *cells))
    return rows


def notes_of(report: Report) -> list[str]:
    """What the table does not say: warm-ups, the heap that sufficed, and what failed."""
    notes = []
    for group in report.groups:
        seconds = report.values(WARM_UP, group, "s")
        if seconds:
            first, last = (
                statistics.median(report.values(WARM_UP, group, figure))
                for figure in ("first", "last")
            )
            flat = report.values(WARM_UP, group, "flat")
            notes.append(
                f"Warm-up of {group}: {spread(seconds)} s, {first:,.0f} messages/s in the first"
                f" window of 3 s, {last:,.0f} in the last; in {sum(flat):.0f} of {len(flat)} rounds"
                " the rate rose no more, in the others the time was over."
            )
        for heap in report.values("heap", group, "heap_mb"):
            notes.append(f"The smallest heap with which {group} carried the load: {heap:.0f} MiB.")
        for key in report.results:
            for reason in report.failures(key, group):
                notes.append(f"{group}, {report.titles.get(key, key)}: failed, {reason}")
    return notes


def text_of(report: Report) -> str:
    """The part of docs/performance.md."""
    about = report.about
    others = [name for name in report.groups if not name.startswith("LedgerMQ")]
    peer = others[0] if others else report.groups[0]
    head = machine_line(about)
    if others:
        head += f" {peer}: batch push, a heap of {about['heap_mb']} MiB each."
    head += (
        f" LedgerMQ: {about['flush']}. Groups of three, {about['rounds']} rounds, loads of"
        f" {about['seconds']:g} s; median (lowest..highest), ratios to {peer}."
    )
    measured = [name for name in report.groups if name != peer]
    ratios = ["ratio", *(f"ratio, {name.rpartition(', ')[2]}" for name in measured[1:])]
    columns = ("load", *report.groups, *ratios[: len(measured)])
    notes = "\n".join(f"- {note}" for note in notes_of(report))
    return f"{head}\n\n{markdown(columns, rows_of(report, peer))}\n\n{notes}".rstrip()
