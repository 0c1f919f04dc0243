"""What archive and replay ask of a table, whatever its format."""

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ledgermq.spark.errors import OptionError
from ledgermq.spark.tables.files import TableFile
from ledgermq.spark.tables.storage import Storage

# The module of each: its libraries are extras, so it is loaded when it is asked for.
FORMATS: Final = {
    "delta": "ledgermq.spark.tables.delta",
    "iceberg": "ledgermq.spark.tables.iceberg",
}
DEFAULT_TABLE: Final = "ledgermq.archive"
_PROPERTY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_PROPERTIES_MAX: Final = 200


class TablePlace(NamedTuple):
    """Which table is meant."""

    format: str
    storage: Storage
    # Of Iceberg: name in the catalog; a catalog of pyiceberg's configuration; else a SQLite file.
    table: str = DEFAULT_TABLE
    catalog: str | None = None
    catalog_file: Path | None = None


class ArchiveTable(Protocol):
    """A table that is open; each call sees what is committed by then."""

    def properties(self) -> tuple[str, ...]:
        """Returns the properties that are columns, in order."""
        ...

    def widen(self, properties: Sequence[str]) -> None:
        """Adds columns for properties; files that are there have null in them."""
        ...

    def holds(self, writer: str, batch: int) -> bool:
        """Tells whether a batch of a writer is committed."""
        ...

    def add(self, writer: str, batch: int, files: Sequence[TableFile]) -> bool:
        """Commits the files of a batch.

        Returns:
            Whether they are in the table; False when the batch came into it otherwise, by another
            driver of the same stream.

        Raises:
            TableCommitError: it is not known to be committed; ask holds() before the next try.
        """
        ...

    def files(self) -> list[TableFile]:
        """Returns all data files.

        Raises:
            TableFormatError: rows of them are not what the table holds: deleted or renamed
                elsewhere.
        """
        ...

    def replace(self, old: Sequence[TableFile], new: Sequence[TableFile]) -> None:
        """Commits files that hold the rows of others, which go.

        Raises:
            TableCommitError: somebody else changed them meanwhile.
        """
        ...

    def described(self) -> str:
        """Returns what a reader needs to find this state of the table."""
        ...


def open_table(place: TablePlace, *, create: bool) -> ArchiveTable:
    """Opens a table.

    Args:
        place: of it.
        create: make it where it is not there.

    Raises:
        MissingPackageError: the extra is not installed.
        FileNotFoundError: there is no table.
        TableFormatError: it is no archive.
    """
    module = importlib.import_module(FORMATS[place.format])
    table: ArchiveTable = module.open_archive(place, create=create)
    return table


def check_properties(option: str, names: Sequence[str]) -> None:
    """Checks names of properties that are to be columns.

    Raises:
        OptionError: one cannot be, or two would be the same column.
    """
    seen = set()
    for name in names:
        if not _PROPERTY.fullmatch(name):
            allowed = "letters, digits and _, at most 100, no digit in front"
            raise OptionError(option, name, allowed)
        if name.lower() in seen:
            raise OptionError(option, name, "names that differ in more than capitals")
        seen.add(name.lower())
    if len(names) > _PROPERTIES_MAX:
        raise OptionError(option, f"{len(names)} names", f"at most {_PROPERTIES_MAX}")
