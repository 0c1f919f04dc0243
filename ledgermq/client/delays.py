"""Delays: the levels that brokers deliver after, and which of them a time means.

A broker knows 18 delays by number. What is asked for as a time gets the shortest of them that is
not shorter: a message comes late rather than early. Brokers may be set up with other delays
(`messageDelayLevel`); a program that uses such ones gives the level itself.

Source: MessageStoreConfig.messageDelayLevel.
"""

from bisect import bisect_left
from datetime import timedelta
from typing import Final

from ledgermq.client.errors import MessageError

_MINUTE: Final = 60
# Of the levels 1 to 18.
DELAYS_S: Final = (
    *(1, 5, 10, 30),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)


def level_of(delay: timedelta) -> int:
    """Returns the level of a delay; 0, which means at once, for none.

    Raises:
        MessageError: it is negative, or longer than the longest.
    """
    seconds = delay.total_seconds()
    if not 0 <= seconds <= DELAYS_S[-1]:
        longest = timedelta(seconds=DELAYS_S[-1])
        raise MessageError(f"a delay of {delay}; allowed: {timedelta()} to {longest}")
    return bisect_left(DELAYS_S, seconds) + 1 if seconds else 0
