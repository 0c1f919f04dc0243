"""The table of what the faults took, and the limits that are checked."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import NamedTuple

from tests.fault.hosts.trial import Outcome

_HEADS = (
    "fault", "times", "no ack for s", "no delivery for s", "first ack after s", "healed after s",
    "new leader after s", "acks/s", "ends", "by hand",
)  # fmt: skip


class Limit(NamedTuple):
    """A time that may not be exceeded."""

    name: str
    column: str
    limit_s: float
    # Whether the median counts; else each.
    is_median: bool


LIMITS = (
    Limit("blackout", "first_s", 3.0, is_median=True),
    Limit("leader-cut", "replaced_s", 4.0, is_median=False),
    Limit("leader-cut-again", "replaced_s", 4.0, is_median=False),
)


def spread(values: Iterable[float | None]) -> str:
    """Median and range; a dash for none."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return "-"
    median = statistics.median(known)
    if len(known) == 1:
        return f"{median:.1f}"
    return f"{median:.1f} ({known[0]:.1f} to {known[-1]:.1f})"


def table(outcomes: list[Outcome]) -> list[str]:
    """Lines of text: a row for each kind of fault."""
    rows: list[tuple[str, ...]] = [_HEADS]
    # In the order in which they came first.
    for name in dict.fromkeys(outcome.name for outcome in outcomes):
        found = [outcome for outcome in outcomes if outcome.name == name]
        rows.append(
            (
                found[0].title,
                str(len(found)),
                spread(one.gap_s for one in found),
                spread(one.silent_s for one in found),
                spread(one.first_s for one in found),
                spread(one.healed_s for one in found),
                spread(one.replaced_s for one in found),
                f"{statistics.median(one.acks_s for one in found):.0f}",
                str(sum(one.end_count for one in found)),
                str(sum(one.by_hand for one in found)),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def exceeded(outcomes: list[Outcome]) -> list[str]:
    """What took longer than it may, or needed a restart by hand."""
    complaints = [
        f"{one.title}: healed by a restart by hand only" for one in outcomes if one.by_hand
    ]
    for name, column, limit_s, is_median in LIMITS:
        found = [outcome for outcome in outcomes if outcome.name == name]
        if not found:
            continue
        values = [getattr(one, column) for one in found]
        times = [float("inf") if value is None else value for value in values]
        worst = statistics.median(times) if is_median else max(times)
        if worst > limit_s:
            what = "median of the first acknowledgement" if is_median else "a new leader"
            complaints.append(f"{found[0].title}: {what} after {worst:.1f} s, limit {limit_s:g} s")
    return complaints
