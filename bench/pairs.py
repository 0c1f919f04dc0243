"""This checkout beside another one: both groups run at once and are loaded in turns.

python -m bench.pairs DIR [--pairs 9] [--seconds 2] [--only ROW ...] [--flush SYNC_FLUSH]

DIR is the other checkout, its kernel built. On a machine that others use, too, speeds change within
a minute by more than any commit: only two loads one right after the other can be compared. So the
groups live side by side, an idle one costs next to nothing, and a pair is one load on each; who is
first changes from pair to pair, and each row has pairs from the whole time of the run. The row
`sync` loads one broker alone that syncs before it answers.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import page
from bench.peer_rows import FULL, LOADS, SYNC, TOPIC, Figures, Load, run_json, words_of
from bench.peers import BEFORE, OURS, ROOT, Peer, ours

QUEUES = 4
WARM_UP_S = 3.0
NAMES = (OURS, BEFORE)
ROWS = (*LOADS, SYNC)
DEFAULT = ("1k-256", "1k-1", "10k-256", "batch", SYNC)


class Side:
    """One checkout: its group of three, and its broker that syncs."""

    def __init__(self, three: Peer | None, synced: Peer | None) -> None:
        """Takes running groups, and makes their topics."""
        self._three = three
        self._synced = synced
        for peer in (three, synced):
            if peer is not None:
                peer.create_topic(TOPIC, QUEUES)
                self._run(peer, FULL, WARM_UP_S)

    def run(self, key: str, seconds: float) -> Figures:
        """Loads the group that a row is of.

        Raises:
            RuntimeError: messages were refused, or the row's group was not started.
        """
        peer = self._synced if key == SYNC else self._three
        if peer is None:
            raise RuntimeError(f"no group was started for {key}")
        return self._run(peer, FULL if key == SYNC else LOADS[key], seconds)

    def _run(self, peer: Peer, load: Load, seconds: float) -> Figures:
        return run_json("load", *words_of(peer, load, TOPIC, seconds))


def measure(
    sides: Sequence[Side], keys: Sequence[str], pairs: int, seconds: float
) -> dict[str, list[tuple[Figures, Figures]]]:
    """Runs the pairs; returns those of each row, this checkout's figures first."""
    found: dict[str, list[tuple[Figures, Figures]]] = {key: [] for key in keys}
    for number in range(pairs):
        for key in keys:
            order = (0, 1) if number % 2 else (1, 0)
            figures = {at: sides[at].run(key, seconds) for at in order}
            found[key].append((figures[0], figures[1]))
            rates = [f"{figures[at]['messages_per_second']:,.0f}" for at in (0, 1)]
            print(f"pair {number + 1}, {key}: {' / '.join(rates)}", file=sys.stderr, flush=True)
    return found


def table(found: dict[str, list[tuple[Figures, Figures]]]) -> str:
    """The rows in Markdown: medians of both, and of the pairs' ratios with their range."""
    lines = []
    for key, pairs in found.items():
        ratios = sorted(a["messages_per_second"] / b["messages_per_second"] for a, b in pairs)
        waits = sorted(a["p50_ms"] / b["p50_ms"] for a, b in pairs)
        rates = [
            statistics.median(pair[at]["messages_per_second"] for pair in pairs) for at in (0, 1)
        ]
        lines.append(
            (
                "one broker, SYNC_FLUSH" if key == SYNC else LOADS[key].name,
                *(f"{rate:,.0f}" for rate in rates),
                f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})",
                f"{statistics.median(waits):.2f} ({waits[0]:.2f}..{waits[-1]:.2f})",
            )
        )
    return page.markdown(
        ("", "now, messages/s", "before", "ratio", "ratio of the median wait"), lines
    )


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="this checkout beside another one, in pairs")
    parser.add_argument("before", type=Path, metavar="DIR", help="another checkout, built")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one load")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=DEFAULT, metavar="ROW",
                        help=" ".join(ROWS))  # fmt: skip
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH",
                        help="of the groups of three")  # fmt: skip
    return parser.parse_args()


def main() -> int:
    """Measures and prints the table."""
    options = parsed()
    with contextlib.ExitStack() as groups:
        sides = []
        for name, checkout in zip(NAMES, (ROOT, options.before), strict=True):
            three = synced = None
            if set(options.only) - {SYNC}:
                flush = f"flushDiskType={options.flush}"
                three = groups.enter_context(ours(flush, name=name, checkout=checkout))
            if SYNC in options.only:
                one = ours("flushDiskType=SYNC_FLUSH", members=1, name=name, checkout=checkout)
                synced = groups.enter_context(one)
            sides.append(Side(three, synced))
        print(page.machine_line(page.machine()))
        print(table(measure(sides, options.only, options.pairs, options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
