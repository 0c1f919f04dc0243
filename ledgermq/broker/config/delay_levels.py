"""DelayLevels: how long a message of each delay level waits, as the key messageDelayLevel says.

    1s 5s 10s 30s 1m 2m ...         level 1 is the first; units are s, m, h and d

Source: `ScheduleMessageService.parseDelayLevel`.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"([0-9]{1,9})([smhd])")
# Each level is a queue, and is looked at from time to time.
LEVELS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delays in ms; level n is at place n - 1."""

    text: str
    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the value of the key.

        Raises:
            ValueError: it is not a list of delays.
        """
        delays = []
        for part in text.split():
            found = _LEVEL.fullmatch(part)
            if found is None:
                raise ValueError(f"{part!r} is no delay")
            delays.append(int(found.group(1)) * _UNITS_MS[found.group(2)])
        if not 0 < len(delays) <= LEVELS_MAX:
            raise ValueError(f"{len(delays)} delays")
        return cls(" ".join(text.split()), tuple(delays))

    def __str__(self) -> str:
        return self.text

    @property
    def level_max(self) -> int:
        """The highest level; a message that asks for more gets this one."""
        return len(self.delays_ms)

    def level_of(self, value: str | None) -> int:
        """Returns the level that a property DELAY asks for, 0 for none."""
        if value is None:
            return 0
        try:
            level = int(value)
        except ValueError:
            return 0
        return max(0, min(level, self.level_max))
