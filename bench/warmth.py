"""When a group is warm: loads of a few seconds until their rate no longer rises.

A JVM compiles what it runs often, for up to a minute; until then it is another, slower program. Its
rate climbs by steps, so that it has to be loaded for longer before two equal windows say anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

WINDOW_S = 3.0
# The last two windows are as near as this to the best of all: the rate rises no more.
NEAR = 0.95
WINDOWS_MIN = 3
JVM_WINDOWS_MIN = 12
LIMIT_S = 60.0


def rises_no_more(rates: Sequence[float], windows_min: int = WINDOWS_MIN) -> bool:
    """Whether there are so many rates, and the last two are within a twentieth of the best."""
    return len(rates) >= windows_min and min(rates[-2:]) >= NEAR * max(rates)


def warm(
    run: Callable[[], float], limit_s: float = LIMIT_S, windows_min: int = WINDOWS_MIN
) -> dict[str, float]:
    """Runs a load until its rate rises no more, or the time is over.

    Returns:
        The seconds that it took, and how many windows; the first rate, the last, and the best; and
        1 when the last no longer rose, 0 when the time was over.
    """
    begun = time.perf_counter()
    rates = [run()]
    while not rises_no_more(rates, windows_min) and time.perf_counter() < begun + limit_s:
        rates.append(run())
    return {
        "s": time.perf_counter() - begun,
        "windows": len(rates),
        "first": rates[0],
        "last": rates[-1],
        "best": max(rates),
        "flat": float(rises_no_more(rates, windows_min)),
    }
