"""Troubles: what goes wrong again and again is told once in a while, and loudly.

Python shows warnings by default, and nothing below. A client that tries again says so at that level
the first time, and then ever more rarely while it lasts; what lies between is told at level info.
"""

import logging
from typing import Final

# Until the same trouble is loud again; doubled each time, up to the longest.
_PAUSE_S: Final = 60.0
_PAUSE_S_MAX: Final = 3600.0
# Different ones that are remembered; then the oldest is forgotten, and may be told once more.
_KEPT_MAX: Final = 256


class Troubles:
    """Which troubles were told, and when each is due again. It knows no clock."""

    def __init__(self) -> None:
        # What -> when it is loud again, and the pause after that.
        self._told: dict[str, tuple[float, float]] = {}

    def level_of(self, what: str, now_s: float) -> int:
        """Returns the level at which a trouble is told now."""
        due_s, pause_s = self._told.get(what, (now_s, _PAUSE_S))
        if now_s < due_s:
            return logging.INFO
        self._told.pop(what, None)
        if len(self._told) >= _KEPT_MAX:
            del self._told[next(iter(self._told))]
        self._told[what] = (now_s + pause_s, min(pause_s * 2, _PAUSE_S_MAX))
        return logging.WARNING

    def is_over(self, what: str) -> bool:
        """Forgets a trouble that is over; True when it was told."""
        return self._told.pop(what, None) is not None
