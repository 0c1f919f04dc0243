"""DataVersion: the version of a table that name servers and other brokers compare for equality.

Source: `DataVersion.java`. A change takes the time and counts one up; there is no order between
versions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from ledgermq.state.json_values import INT64, whole_number

_COUNTER_MAX: Final = INT64.stop - 1


@dataclass(frozen=True, slots=True)
class DataVersion:
    """One version of the topic or group table."""

    # Time of the last change, ms since 1970.
    timestamp_ms: int = 0
    # Changes since the table was first made.
    counter: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """Returns the version after one more change."""
        return DataVersion(now_ms, (self.counter + 1) & _COUNTER_MAX)

    def to_json(self) -> dict[str, int]:
        """Returns upstream's object."""
        return {"counter": self.counter, "timestamp": self.timestamp_ms}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Reads upstream's object; anything else is the version of a table that never changed."""
        if not isinstance(value, Mapping):
            return cls()
        return cls(
            whole_number(value, "timestamp", 0, INT64), whole_number(value, "counter", 0, INT64)
        )
