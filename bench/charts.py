"""Draws docs/charts/*.png from the figures beside them, which the benchmarks wrote as JSON.

python -m bench.charts      after `bench.peer --json docs/charts/peer.json` and
                            `bench.growth --json docs/charts/growth.json`

A bar or point is the median of the rounds; its line reaches from the lowest to the highest.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.page import CHARTS
from bench.peer_table import Report
from bench.peers import OURS, PURE

DPI = 100
# Readable for those who see few colors: ours, ours again, and any other group.
OUR_COLORS = {OURS: "#0072b2", PURE: "#56b4e9"}
OTHER_COLOR = "#d55e00"
SENDS = {
    "100b-256": "100 B",
    "1k-256": "1 KiB",
    "10k-256": "10 KiB",
    "batch": "1 KiB,\nbatches of 32",
    "1k-16": "1 KiB,\n16 in flight",
    "1k-1": "1 KiB,\none in flight",
    "producer": "Apache's\nproducer",
}
READS = {"pull": "from memory", "cold": "from the disk"}
MIXED = {"mixed-1": "1", "mixed-4": "4", "mixed-16": "16"}
PERCENTILES = {"p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9"}
# A bar: the row and the figure that it shows.
Bar = tuple[str, str]


def bars(axes: Axes, report: Report, labels: Sequence[str], shown: Sequence[Bar]) -> None:
    """Draws one bar for each group beside each label; a group without figures has none."""
    width = 0.8 / len(report.groups)
    for number, group in enumerate(report.groups):
        for place, (key, figure) in enumerate(shown):
            values = report.values(key, group, figure)
            if not values:
                continue
            middle = statistics.median(values)
            drawn = axes.bar(
                place + (number - (len(report.groups) - 1) / 2) * width,
                middle,
                width,
                yerr=[[middle - min(values)], [max(values) - middle]],
                color=OUR_COLORS.get(group, OTHER_COLOR),
                error_kw={"linewidth": 0.8},
                # One entry of the legend for all bars of a group.
                label=group if group not in axes.get_legend_handles_labels()[1] else None,
            )
            shape = "{:,.0f}" if middle >= 10 else "{:.2f}"
            axes.bar_label(drawn, fmt=shape, fontsize=6, padding=1)
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_axisbelow(True)
    axes.grid(axis="y", linewidth=0.3)
    axes.tick_params(axis="y", labelsize=8)


def logarithmic(axes: Axes) -> None:
    """Makes the y axis one of powers of ten, with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    # Room for the numbers above the bars.
    axes.margins(y=0.15)


def one(title: str, width: float = 8.0) -> tuple[Figure, Axes]:
    """A figure with one picture."""
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=10)
    return figure, axes


def of_sends(title: str, figure_name: str) -> Callable[[Any], Figure]:
    """One figure of each way to send that has it."""

    def draw(document: Any) -> Figure:
        figure, axes = one(title)
        report = Report.of(document)
        shown = {
            key: label
            for key, label in SENDS.items()
            if any(report.values(key, group, figure_name) for group in report.groups)
        }
        bars(axes, report, [*shown.values()], [(key, figure_name) for key in shown])
        logarithmic(axes)
        axes.legend(fontsize=8)
        return figure

    return draw


def latency(document: Any) -> Figure:
    """How long a send takes."""
    report = Report.of(document)
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    figure.suptitle("Time to the acknowledgement of 1 KiB, ms", fontsize=10)
    first: Axes | None = None
    for number, key in enumerate(("1k-1", "1k-16", "1k-256")):
        axes = first = figure.add_subplot(1, 3, number + 1, sharey=first)
        bars(axes, report, [*PERCENTILES.values()], [(key, name) for name in PERCENTILES])
        axes.set_title(report.titles[key].partition(", ")[2], fontsize=9)
        logarithmic(axes)
    figure.axes[0].legend(fontsize=7)
    return figure


def reads(document: Any) -> Figure:
    """Pulls, and pulls while messages are sent."""
    report = Report.of(document)
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    for number, (title, labels, name) in enumerate(
        (
            ("Pulls of 32, MB/s", READS, "mb_per_second"),
            ("Sent while N groups read, msg/s", MIXED, "messages_per_second"),
            ("Read by N groups, msg/s", MIXED, "read_per_second"),
        )
    ):
        axes = figure.add_subplot(1, 3, number + 1)
        bars(axes, report, [*labels.values()], [(key, name) for key in labels])
        axes.set_title(title, fontsize=9)
    figure.axes[0].legend(fontsize=7)
    return figure


def footprint(document: Any) -> Figure:
    """Memory, start and failover."""
    report = Report.of(document)
    figure = Figure(figsize=(8.0, 3.0), layout="constrained")
    for number, (title, key, name) in enumerate(
        (
            ("Memory of the leader, MB", "memory", "mb"),
            ("Start of a group, s", "start", "s"),
            ("Until writable after kill -9, s", "kill", "s"),
        )
    ):
        axes = figure.add_subplot(1, 3, number + 1)
        bars(axes, report, [""], [(key, name)])
        axes.set_title(title, fontsize=9)
    figure.axes[0].legend(fontsize=7)
    return figure


def growth(document: Any) -> Figure:
    """Cost of a message beside the first row of its kind."""
    parts: dict[str, dict[str, list[dict[str, float]]]] = document["parts"]
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    figure.suptitle("CPU µs a message, 1 KiB", fontsize=10)
    for number, part in enumerate(parts.values()):
        axes = figure.add_subplot(1, len(parts), number + 1)
        for color, name in (("#0072b2", "leader_us"), ("#d55e00", "follower_us")):
            columns = [[x[name] for x in rounds if name in x] for rounds in part.values()]
            if not all(columns):
                continue
            middles = [statistics.median(column) for column in columns]
            below = [middle - min(c) for middle, c in zip(middles, columns, strict=True)]
            above = [max(c) - middle for middle, c in zip(middles, columns, strict=True)]
            label = name.partition("_")[0]
            axes.errorbar(
                range(len(part)), middles, [below, above], color=color, marker="o", label=label
            )
        axes.set_xticks(
            range(len(part)), [label.replace(" ", "\n", 1) for label in part], fontsize=8
        )
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", linewidth=0.3)
    figure.axes[0].legend(fontsize=8, loc="lower center")
    return figure


# Of each picture: the figures that it is made from, and how.
DRAWN: dict[str, tuple[str, Callable[[Any], Figure]]] = {
    "throughput": (
        "peer",
        of_sends("Replicated sends, messages/s", "messages_per_second"),
    ),
    "cpu": (
        "peer",
        of_sends(
            "Processor time of all three members, µs a message",
            "cpu_us",
        ),
    ),
    "latency": ("peer", latency),
    "reads": ("peer", reads),
    "footprint": ("peer", footprint),
    "growth": ("growth", growth),
}


def picture(name: str, folder: Path = CHARTS) -> Figure:
    """Draws one picture from the figures in a directory."""
    source, make = DRAWN[name]
    return make(json.loads((folder / f"{source}.json").read_text()))


def main() -> int:
    """Makes all pictures."""
    for name in DRAWN:
        path = CHARTS / f"{name}.png"
        picture(name).savefig(path, dpi=DPI)
        print(f"{path}: {path.stat().st_size / 1000:.0f} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
