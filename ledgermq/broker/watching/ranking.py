"""Which topics and groups have series of their own, so that a page has a bound."""

import heapq
from collections.abc import Mapping
from typing import Final, TypeVar

OTHER: Final = "_other"

_Key = TypeVar("_Key")


def most_active(activity: Mapping[_Key, int], count_max: int) -> frozenset[_Key] | None:
    """Returns the keys with the most activity; None when all of them have room.

    Args:
        activity: a number for each key.
        count_max: keys that may be.
    """
    if len(activity) <= count_max:
        return None
    return frozenset(heapq.nlargest(count_max, activity, key=activity.__getitem__))
