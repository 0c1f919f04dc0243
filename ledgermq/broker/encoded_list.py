"""EncodedList: the body of an answer that shows a whole table, kept until the table changes.

To write 20,000 topics as JSON takes a twentieth of a second; to send them again costs their bytes
alone. What an account may not see is left out, so there is a body for each account that asks.
"""

import time
from collections.abc import Callable, Hashable
from typing import Final

from ledgermq.broker.sight import Asker

# Bodies of accounts that are kept, of one table; with one more all are made anew.
_ACCOUNTS_MAX: Final = 8
# A table in flux is shown as it was for so many times the time that it took to encode.
_REST_FACTOR: Final = 10
_QUICK_S: Final = 0.005


class EncodedList:
    """The bodies of one table."""

    __slots__ = ("_bodies", "_clock_s", "_encode", "_kept_until_s", "_version", "_version_of")

    def __init__(
        self,
        encode: Callable[[Asker], bytes],
        version_of: Callable[[], Hashable] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Encodes nothing yet.

        Args:
            encode: writes what may be shown to who asks.
            version_of: another value after each change of the table; None for a table that changes
                all the time: then a body may be a little old, and encoding takes a tenth of the
                processor at most.
            clock_s: seconds, monotonic.
        """
        self._encode = encode
        self._version_of = version_of
        self._clock_s = clock_s
        # Each with what its asker sees; valid for this version, and, without one, until then.
        self._bodies: list[tuple[object, bytes]] = []
        self._version: Hashable = None
        self._kept_until_s = float("-inf")

    def body_for(self, asker: Asker) -> bytes:
        """Returns the body of the answer."""
        begun_s = self._clock_s()
        version = None if self._version_of is None else self._version_of()
        if version != self._version or (version is None and begun_s >= self._kept_until_s):
            self._version = version
            self._bodies.clear()
        sees = None if asker.sight is None else asker.sight.key
        for key, body in self._bodies:
            if key is sees:
                return body
        if len(self._bodies) >= _ACCOUNTS_MAX:
            self._bodies.clear()
        body = self._encode(asker)
        self._bodies.append((sees, body))
        ended_s = self._clock_s()
        took_s = ended_s - begun_s
        # What is quickly made is never old.
        self._kept_until_s = ended_s + (took_s * _REST_FACTOR if took_s >= _QUICK_S else 0.0)
        return body
