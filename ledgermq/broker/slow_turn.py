"""SlowTurn: what is told of messages that took long."""

from typing import NamedTuple


class SlowTurn(NamedTuple):
    """Messages that took long; times are monotonic, in ms.

    Attributes:
        message_count: of messages that clients sent, in this turn and in others that were slow.
        read_ms: when the first of the turn had been read.
        checked_ms: when all had been checked, and their append began.
        appended_ms: when they were in the log.
        committed_ms: when it was known that a majority has them.
    """

    message_count: int
    read_ms: float
    checked_ms: float
    appended_ms: float
    committed_ms: float
