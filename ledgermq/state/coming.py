"""Coming: entries of a table that a leader has proposed and not applied yet. Pure.

Whoever proposes one more must know of them: they count against the table's limits, and what is
stored for one of them stands behind it in the log.
"""

from typing import Generic

from ledgermq.state.errors import BrokerError, InvalidRequestError, is_refused
from ledgermq.state.named_table import Config, NamedTable
from ledgermq.state.records import entry_bytes_max
from ledgermq.state.under_way import OnCommitted


class Coming(Generic[Config]):
    """The entries on their way into one table.

    Invariant: of each name the one that was proposed last, until one of that name is applied or
    that one is refused.
    """

    def __init__(self, table: NamedTable[Config], body_bytes_max: int) -> None:
        """Nothing is on its way.

        Args:
            table: that they go into.
            body_bytes_max: of one record, in the log that they stand in.
        """
        self._table = table
        self._entry_bytes_max = entry_bytes_max(body_bytes_max)
        self._entries: dict[str, Config] = {}
        # Those of them that the table has not.
        self._new: set[str] = set()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: str) -> Config | None:
        """Returns the entry, or None when none of that name is on its way."""
        return self._entries.get(name)

    def check_room(self, entry: Config) -> None:
        """Checks an entry that is to be proposed, new or in place of another one.

        Raises:
            InvalidRequestError: it is too large for a record, or none can hold it as it is.
            SystemBusyError: with it, and with those on their way, the table would pass a limit.
        """
        self._table.check_readable(entry)
        if entry.json_bytes > self._entry_bytes_max:
            raise InvalidRequestError(
                f"{self._table.noun}[{entry.name}] not stored: it takes {entry.json_bytes} bytes,"
                f" allowed are {self._entry_bytes_max} (key mappedFileSizeCommitLog)"
            )
        coming = self._entries.get(entry.name)
        more_bytes = entry.json_bytes + self._bytes
        if coming is not None:
            more_bytes -= coming.json_bytes
        count = len(self._new) - (entry.name in self._new)
        self._table.check_room(entry.name, count, more_bytes=more_bytes)

    def begin(self, entry: Config, done: OnCommitted | None) -> OnCommitted:
        """Notes an entry that is proposed; returns what is to be told of its end."""
        self._forget(entry.name)
        self._entries[entry.name] = entry
        if entry.name not in self._table:
            self._new.add(entry.name)
        self._bytes += entry.json_bytes

        def ended(error: BrokerError | None) -> None:
            # One that takes long may come yet.
            if is_refused(error) and self._entries.get(entry.name) is entry:
                self._forget(entry.name)
            if done is not None:
                done(error)

        return ended

    def applied(self, name: str) -> None:
        """An entry of this name is in the table."""
        self._forget(name)

    def clear(self) -> None:
        """Forgets all: this member does not lead, or begins to."""
        self._entries.clear()
        self._new.clear()
        self._bytes = 0

    def _forget(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._new.discard(name)
            self._bytes -= entry.json_bytes
