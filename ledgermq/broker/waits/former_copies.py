"""FormerCopies: the half messages that former leaders stored again, by the key of their message.

A producer ends a transaction by the offset that it got for its half message, which may have been
stored again meanwhile, at the end of the queue, to be asked about. The leader that did so knows; a
new one reads it here, from the part of the half queue that is not worked off: every copy that is
still open stands there. Two copies belong together when they have the same UNIQ_KEY, which every
producer gives its message, the same topic and the same account.
"""

from typing import Final

from ledgermq.broker.records.half_messages import HalfMessage, half_from
from ledgermq.broker.waits.delay import DelayQueues
from ledgermq.protocol.properties import UNIQUE_KEY
from ledgermq.state import names

_READ_MAX: Final = 512
# Open copies that are known; an end by the first offset of one beyond them is stored as it comes.
_KNOWN_MAX: Final = 200_000

# Unique key, real topic, mark of the account.
_Identity = tuple[str, str, str | None]


class FormerCopies:
    """What a new leader finds; it reads in parts."""

    def __init__(self, store: DelayQueues) -> None:
        self._store = store
        # Half messages below this offset were worked off by former leaders.
        self._begin = 0
        self._next = 0
        self._end = 0
        # Offset of the newest copy.
        self._offsets: dict[_Identity, int] = {}

    def begin(self, offset: int) -> None:
        """Forgets everything; the walk of this leader begins at `offset`."""
        self._offsets.clear()
        self._begin = self._next = offset
        self._end = self._store.max_offset(names.HALF_TOPIC, 0)

    @property
    def has_more(self) -> bool:
        """True while something is not read."""
        return self._next < self._end

    def read(self) -> None:
        """Reads the next part."""
        count = min(_READ_MAX, self._end - self._next)
        units = self._store.queue_units(names.HALF_TOPIC, 0, self._next, count)
        for offset, (physical_offset, _, _) in enumerate(units, self._next):
            raw = self._store.record_at(physical_offset)
            half = None if raw is None else half_from(raw)
            if half is not None and half.is_copy and len(self._offsets) < _KNOWN_MAX:
                identity = _identity(half)
                if identity is not None:
                    self._offsets[identity] = offset
        self._next = self._next + len(units) if units else self._end

    def concerns(self, half: HalfMessage) -> bool:
        """Whether a former leader may have stored a half message again."""
        return half.record.queue_offset < self._begin

    def find(self, half: HalfMessage) -> int | None:
        """Returns the offset of the newest copy by a former leader, None when there is none."""
        if not self.concerns(half):
            return None
        identity = _identity(half)
        return None if identity is None else self._offsets.get(identity)


def _identity(half: HalfMessage) -> _Identity | None:
    """What a half message has in common with its copies and with no other one.

    The unique key alone is whatever its sender says: an account could name that of another's half
    message, and end that instead of its own.
    """
    key = half.properties.get(UNIQUE_KEY)
    return (key, half.target.topic, half.account_mark) if key else None
