"""NamedTable: configurations by name, with a version: what topics and groups have in common. Pure.

Time is passed in. Whoever caches something about an entry compares `generation`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from ledgermq.state.data_version import DataVersion
from ledgermq.state.document import Document
from ledgermq.state.errors import InvalidRequestError, SystemBusyError
from ledgermq.state.json_values import is_name, objects
from ledgermq.state.ordered_names import OrderedNames

# Of all entries as JSON: below what a state file may have.
_BYTES_MAX: Final = 256 << 20
# Of a name or value in an error.
_SHOWN_CHARS_MAX: Final = 80


class Named(Protocol):
    """A configuration; two are equal when they say the same."""

    @property
    def name(self) -> str: ...

    @property
    def json_bytes(self) -> int:
        """At most what it takes as JSON, with its name."""

    def to_json(self) -> dict[str, Any]: ...


Config = TypeVar("Config", bound=Named)


class NamedTable(Generic[Config]):
    """All configurations of one kind on this broker.

    Invariant: `generation` grows with every change, so that whoever caches something can tell that
    it is stale by comparing one number.
    """

    def __init__(
        self,
        read: Callable[[str, Mapping[str, Any]], Config],
        *,
        noun: str,
        table_key: str,
        count_max: int,
        count_key: str,
        bytes_max: int = _BYTES_MAX,
    ) -> None:
        """Begins empty.

        Args:
            read: makes an entry of its name and upstream's object.
            noun: names one entry to people.
            table_key: of the entries in upstream's document.
            count_max: entries that may be there.
            count_key: the configuration's key for that.
            bytes_max: of all entries as JSON.
        """
        self._read = read
        self.noun = noun
        self._table_key = table_key
        self._count_max = count_max
        self._count_key = count_key
        self._entries: dict[str, Config] = {}
        self._names = OrderedNames()
        self._bytes_max = bytes_max
        # At most what the entries take as JSON.
        self.json_bytes = 0
        # What name servers, tools and other brokers compare.
        self.version = DataVersion()
        # Changes of this table in this process.
        self.generation = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def find(self, name: str) -> Config | None:
        """Returns the entry, or None."""
        return self._entries.get(name)

    def names(self) -> list[str]:
        """Returns the names of all entries, in order."""
        return list(self._names)

    def all(self) -> list[Config]:
        """Returns all entries in the order of their names."""
        return [self._entries[name] for name in self._names]

    def check_room(self, name: str, more: int = 0, *, more_bytes: int = 0) -> None:
        """Checks an entry that is to be added or replaced.

        Args:
            name: of the entry.
            more: other new entries that are on their way into the table.
            more_bytes: what it takes as JSON, and what those on their way take.

        Raises:
            SystemBusyError: it would pass a limit.
        """
        count = len(self._entries) + more
        known = self._entries.get(name)
        if known is None and count >= self._count_max:
            raise SystemBusyError(
                f"{self.noun}[{name}] not created: there are {count} {self.noun}s,"
                f" allowed are {self._count_max} (key {self._count_key})"
            )
        former_bytes = 0 if known is None else known.json_bytes
        size = self.json_bytes - former_bytes + more_bytes
        if more_bytes > former_bytes and size > self._bytes_max:
            raise SystemBusyError(
                f"{self.noun}[{name}] not stored: with it {count} {self.noun}s would take {size}"
                f" bytes, allowed are {self._bytes_max}"
            )

    def check_readable(self, entry: Config) -> None:
        """Raises InvalidRequestError for an entry that would not be the same when it is read."""
        written = entry.to_json()
        read = self._read(entry.name, written)
        if read == entry and is_name(entry.name):
            return
        kept = read.to_json()
        member = next((name for name in written if kept.get(name) != written[name]), "name")
        value = repr(written.get(member, entry.name))[:_SHOWN_CHARS_MAX]
        raise InvalidRequestError(
            f"cannot store {self.noun}[{entry.name[:_SHOWN_CHARS_MAX]}]: {member} is {value},"
            " which is too long, out of range or no UTF-8"
        )

    def put(self, entry: Config, now_ms: int) -> bool:
        """Adds or replaces an entry; returns False when it was there exactly so."""
        if self._entries.get(entry.name) == entry:
            return False
        self._put(entry)
        self._changed(now_ms)
        return True

    def remove(self, name: str, now_ms: int) -> bool:
        """Drops an entry; returns False when there was none."""
        if name not in self._entries:
            return False
        self._remove(name)
        self._changed(now_ms)
        return True

    def _put(self, entry: Config) -> None:
        former = self._entries.get(entry.name)
        if former is None:
            self._names.add(entry.name)
        else:
            self.json_bytes -= former.json_bytes
        self.json_bytes += entry.json_bytes
        self._entries[entry.name] = entry

    def _remove(self, name: str) -> None:
        self.json_bytes -= self._entries.pop(name).json_bytes
        self._names.remove(name)

    def _changed(self, now_ms: int) -> None:
        self.version = self.version.next(now_ms)
        self.generation += 1

    def follow(self, put: Iterable[Config], removed: Iterable[str], version: DataVersion) -> None:
        """Makes the changes that lead to a version."""
        for entry in put:
            self._put(entry)
        for name in removed:
            if name in self._entries:
                self._remove(name)
        self.version = version
        self.generation += 1

    def replace_all(self, entries: Iterable[Config], version: DataVersion) -> None:
        """Takes over a whole table."""
        self._entries = {entry.name: entry for entry in entries}
        self._names = OrderedNames(self._entries)
        self.json_bytes = sum(entry.json_bytes for entry in self._entries.values())
        self.version = version
        self.generation += 1

    # Piece by piece.

    def behind(self, after: str) -> Iterator[tuple[str, Any]]:
        """Yields the entries behind a name, in order, as upstream's objects."""
        for name in self._names.behind(after):
            yield name, self._entries[name].to_json()

    def replace_range(self, after: str, upto: str | None, put: Mapping[str, Config]) -> bool:
        """Has exactly `put` among the names behind `after`, up to `upto`.

        Returns:
            Whether something changed by it.
        """
        gone = [name for name in self._names.between(after, upto) if name not in put]
        for name in gone:
            self._remove(name)
            self.generation += 1
        return self.merge(put) or bool(gone)

    def merge(self, put: Mapping[str, Config]) -> bool:
        """Adds and replaces entries; returns whether something changed by it."""
        changed = [entry for name, entry in put.items() if self._entries.get(name) != entry]
        for entry in changed:
            self._put(entry)
            self.generation += 1
        return bool(changed)

    # As a document.

    def document(self) -> Document:
        """Returns upstream's document of the table."""
        return Document({"dataVersion": self.version.to_json()}, ((self._table_key, self.behind),))

    def to_json(self) -> dict[str, Any]:
        """Returns all of it at once."""
        return self.document().whole()

    def load_json(self, value: Mapping[str, Any]) -> None:
        """Takes over a document; what is no entry is left out."""
        self.replace_all(
            (self._read(name, entry) for name, entry in objects(value.get(self._table_key))),
            DataVersion.from_json(value.get("dataVersion")),
        )
