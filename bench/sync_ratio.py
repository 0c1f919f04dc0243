"""SYNC_FLUSH beside ASYNC_FLUSH: two groups side by side, loaded in turns.

python -m bench.sync_ratio [7] [3]      so many pairs, of so many seconds each

Only the ratio of two runs close in time says something on a machine that others use, too.
"""

from __future__ import annotations

import contextlib
import statistics
import sys

from bench.cluster import cluster
from bench.end_to_end import TOPIC, Row, measure

LOAD = Row("1 KiB, 4 x 64 in flight")
FLUSHES = ("ASYNC_FLUSH", "SYNC_FLUSH")


def row(pairs: int, seconds: float) -> str:
    """Runs the pairs; returns one line."""
    rates: dict[str, list[float]] = {flush: [] for flush in FLUSHES}
    with contextlib.ExitStack() as groups:
        running = {}
        for flush in FLUSHES:
            running[flush] = groups.enter_context(cluster(3, (f"flushDiskType={flush}",)))
            running[flush].create_topic(TOPIC, 4)
            measure(LOAD, running[flush], 1.0)
        for number in range(pairs):
            # Neither kind is always the first.
            for flush in FLUSHES if number % 2 else reversed(FLUSHES):
                result = measure(LOAD, running[flush], seconds)
                rates[flush].append(result["messages_per_second"])
    ratios = sorted(
        sync / without for without, sync in zip(*(rates[f] for f in FLUSHES), strict=True)
    )
    without, sync = (statistics.median(rates[flush]) for flush in FLUSHES)
    return (
        f"SYNC_FLUSH / ASYNC_FLUSH, {pairs} pairs: {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f}..{ratios[-1]:.2f}); {sync:,.0f} of {without:,.0f} messages/s"
    )


def main() -> None:
    """Prints one line."""
    words = sys.argv[1:]
    print(row(int(words[0]) if words else 7, float(words[1]) if len(words) > 1 else 3.0))


if __name__ == "__main__":
    main()
