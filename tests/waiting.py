"""Waiting for a condition of the outside world (a process, a socket, a file), up to a deadline.

For tests that run real processes only: a unit test moves its clock instead. A test never waits for
a time to pass, it waits for something to become true.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_INTERVAL_S = 0.02


def pause(seconds: float) -> None:
    """Lets time pass where nothing tells that enough of it has."""
    threading.Event().wait(seconds)


def wait_until(
    condition: Callable[[], T],
    *,
    what: str,
    deadline_s: float = 60.0,
    detail: Callable[[], str] = str,
) -> T:
    """Polls `condition` until its value is true, and returns that value.

    Args:
        condition: asked again every 20 ms; an exception of it ends the wait.
        what: what is waited for, as the failure names it.
        deadline_s: seconds until the wait fails.
        detail: more for the text of the failure.

    Raises:
        AssertionError: the deadline passed.
    """
    end_s = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() >= end_s:
            raise AssertionError(
                f"after {deadline_s} s still waiting for {what} {detail()}".rstrip()
            )
        pause(_POLL_INTERVAL_S)
    return value
