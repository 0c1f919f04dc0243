"""Outcomes: what a listener says about a message, beside consuming it or raising.

    return retry(delay=timedelta(minutes=5))
    return BURY

Returning nothing means DONE. A listener that takes batches returns nothing, or one outcome for each
message in their order; raising means that all of them failed.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final

from ledgermq.client.delays import level_of


class Kind(Enum):
    """What is to become of a message."""

    # It is consumed.
    DONE = "done"
    # It comes again, later.
    RETRY = "retry"
    # It goes to the dead letters of the group.
    BURY = "bury"


@dataclass(slots=True, frozen=True)
class Outcome:
    """What a listener says about one message; made by DONE, BURY and retry()."""

    kind: Kind
    # Before it comes again; None as the mode has it.
    delay: timedelta | None = None
    # What the listener raised, when it did not say so itself.
    error: Exception | None = None


DONE: Final = Outcome(Kind.DONE)
BURY: Final = Outcome(Kind.BURY)


def retry(*, delay: timedelta | None = None) -> Outcome:
    """Returns the outcome of a message that is to come again.

    Args:
        delay: after how long, at most 2 hours. From a broker it comes after the shortest of its
            delays (1 s, 5 s, 10 s, 30 s, 1 to 10, 20, 30 min, 1 h, 2 h) that is not shorter. None:
            after a delay that grows with each time.

    Raises:
        MessageError: the delay is negative or too long.
    """
    if delay is not None:
        level_of(delay)
    return Outcome(Kind.RETRY, delay)


def failed(error: Exception) -> Outcome:
    """Returns the outcome of a message whose listener raised."""
    return Outcome(Kind.RETRY, None, error)
