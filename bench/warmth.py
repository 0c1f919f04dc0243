"""When a group is warm: loads of a few seconds until their rate no longer rises.

A JVM compiles what it runs often, for up to a minute; until then it is another, slower program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

WINDOW_S = 3.0
# The last two windows are as near as this to the best of all: the rate rises no more.
NEAR = 0.95
WINDOWS_MIN = 3
LIMIT_S = 60.0


def rises_no_more(rates: Sequence[float]) -> bool:
    """Whether the last two of some rates are within a twentieth of the best."""
    return len(rates) >= WINDOWS_MIN and min(rates[-2:]) >= NEAR * max(rates)


def warm(run: Callable[[], float], limit_s: float = LIMIT_S) -> dict[str, float]:
    """Runs a load until its rate rises no more, or the time is over.

    Returns:
        The seconds that it took, and how many windows; the first rate, the last, and the best; and
        1 when the last no longer rose, 0 when the time was over.
    """
    begun = time.perf_counter()
    rates = [run()]
    while not rises_no_more(rates) and time.perf_counter() < begun + limit_s:
        rates.append(run())
    return {
        "s": time.perf_counter() - begun,
        "windows": len(rates),
        "first": rates[0],
        "last": rates[-1],
        "best": max(rates),
        "flat": float(rises_no_more(rates)),
    }
