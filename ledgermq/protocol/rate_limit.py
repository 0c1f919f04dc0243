"""RateLimit: so many events a second for each key, with room for a burst.

Pure: the time is passed in. A key's allowance is refilled evenly and never above the burst; a key
that has its whole allowance is forgotten, so the table holds only those that were active lately.
"""

from collections.abc import Hashable
from typing import Final

# Keys above which the table is looked through for those that may be forgotten.
_KEYS_MAX: Final = 10_000


class RateLimit:
    """The allowances of all keys.

    Invariant: an allowance is between 0 and `burst`; after a look through the table there are only
    keys that took something within the time that refills a whole burst.
    """

    __slots__ = ("_allowances", "_looked_at_s", "burst", "per_second")

    def __init__(self, per_second: int, burst: int) -> None:
        """Begins with whole allowances.

        Args:
            per_second: events that a key is allowed in the long run.
            burst: events at once after a pause.
        """
        assert per_second > 0 and burst > 0
        self.per_second = per_second
        self.burst = burst
        # Key -> what was left, and when.
        self._allowances: dict[Hashable, tuple[float, float]] = {}
        self._looked_at_s = float("-inf")

    def __len__(self) -> int:
        return len(self._allowances)

    def take(self, key: Hashable, now_s: float) -> bool:
        """Takes one event from a key's allowance; False when there is none left.

        Args:
            key: whose event it is.
            now_s: seconds on a clock; going back it adds nothing.
        """
        left, since_s = self._allowances.get(key, (float(self.burst), now_s))
        elapsed_s = max(now_s - since_s, 0.0)
        left = min(left + elapsed_s * self.per_second, float(self.burst))
        if left < 1.0:
            if now_s < since_s:
                # A clock that was set back: what is missing comes as fast as ever from here on.
                self._allowances[key] = (left, now_s)
            return False
        if key not in self._allowances and len(self._allowances) >= _KEYS_MAX:
            self._forget_idle(now_s)
        self._allowances[key] = (left - 1.0, now_s)
        return True

    def _forget_idle(self, now_s: float) -> None:
        refill_s = self.burst / self.per_second
        # One look in that time is enough: before, hardly any key can be forgotten.
        if now_s - self._looked_at_s < refill_s:
            return
        self._looked_at_s = now_s
        self._allowances = {
            key: (left, since_s)
            for key, (left, since_s) in self._allowances.items()
            if now_s - since_s < refill_s
        }


class Allowance:
    """So many a second, of which some may be borrowed: whoever uses more owes time.

    Invariant: what is left is at most what one second brings; it is negative while there is a debt.
    """

    __slots__ = ("_left", "_since_s", "per_second")

    def __init__(self, per_second: float) -> None:
        """Begins with what one second brings."""
        assert per_second > 0
        self.per_second = per_second
        self._left = float(per_second)
        # Seconds on the clock; None before the first look at it.
        self._since_s: float | None = None

    def debt_s(self, now_s: float) -> float:
        """Returns the seconds until nothing is owed; going back, the clock adds nothing."""
        elapsed_s = 0.0 if self._since_s is None else max(now_s - self._since_s, 0.0)
        self._since_s = now_s
        self._left = min(self._left + elapsed_s * self.per_second, self.per_second)
        return max(-self._left / self.per_second, 0.0)

    def use(self, count: int, now_s: float) -> float:
        """Takes so many, whether they are there or not; returns `debt_s` after that."""
        self.debt_s(now_s)
        self._left -= count
        return max(-self._left / self.per_second, 0.0)
