"""A table of Delta Lake, committed by deltalake."""

import json
import time
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from ledgermq.spark.errors import MissingPackageError, TableCommitError, TableFormatError
from ledgermq.spark.tables.arrow_schema import (
    arrow_schema,
    check_columns,
    check_takes_rows,
    properties_of,
)
from ledgermq.spark.tables.files import (
    PARTITIONED_BY,
    TableFile,
    check_below,
    commit_patiently,
    is_to_be_replaced,
    reading_table,
)
from ledgermq.spark.tables.formats import TablePlace
from ledgermq.spark.tables.storage import Storage

try:
    import deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
except ImportError as error:
    raise MissingPackageError(
        "a table of Delta Lake", "deltalake", "lake", "on the driver"
    ) from error

# What is raised where the log is damaged, or the store does not answer.
_FAILURES: Final = (DeltaError, OSError)
# What of the protocol tells that rows of a file are not rows of the table.
_REFUSED: Final = {
    "columnMapping": "delta.columnMapping.mode",
    "deletionVectors": "delta.enableDeletionVectors",
}

# Of the settings that hold what each row must be like.
_CONSTRAINT: Final = "delta.constraints."


def open_archive(place: TablePlace, *, create: bool) -> "DeltaArchive":
    """Opens a table; see open_table."""
    storage = place.storage
    options = storage.delta_options()
    # A path of this machine stays one: a URL would be decoded.
    root = storage.directory if storage.is_local else storage.root
    with reading_table(storage.root, *_FAILURES):
        try:
            table = deltalake.DeltaTable(root, storage_options=options)
        except TableNotFoundError:
            if create:
                table = deltalake.DeltaTable.create(
                    root,
                    _delta_schema(()),
                    mode="ignore",
                    partition_by=list(PARTITIONED_BY),
                    storage_options=options,
                )
            else:
                table = None
    if table is None:
        raise FileNotFoundError(f"{storage.root} is no table of Delta Lake")
    return DeltaArchive(table, storage)


class DeltaArchive:
    """An archive as a table of Delta Lake; see ArchiveTable."""

    def __init__(self, table: "deltalake.DeltaTable", storage: Storage) -> None:
        self._table = table
        self._where, self._storage = storage.root, storage
        partitioned_by = tuple(table.metadata().partition_columns)
        if partitioned_by != PARTITIONED_BY:
            found = ", ".join(partitioned_by) or "nothing"
            raise TableFormatError(
                self._where, f"is partitioned by {found}, not by {', '.join(PARTITIONED_BY)}"
            )
        check_columns(self._where, self._arrow())

    def _arrow(self) -> Any:
        return pa.schema(self._table.schema().to_arrow())

    def properties(self) -> tuple[str, ...]:
        return properties_of(self._arrow())

    def widen(self, properties: Sequence[str]) -> None:
        known = {field.name for field in self._table.schema().fields}
        missing = [f for f in _delta_schema(properties).fields if f.name not in known]
        if missing:
            with reading_table(self._where, *_FAILURES):
                self._table.alter.add_columns(missing)
            self._look()

    def _look(self) -> None:
        with reading_table(self._where, *_FAILURES):
            self._table.update_incremental()

    def holds(self, writer: str, batch: int) -> bool:
        self._look()
        done = self._table.transaction_version(writer)
        return done is not None and done >= batch

    def add(self, writer: str, batch: int, files: Sequence[TableFile]) -> bool:
        actions = [_added(file, changes=True) for file in files]
        noted = [Transaction(writer, batch)]

        def commit() -> None:
            self._check_takes_rows()
            self._commit(actions, noted)

        return commit_patiently(lambda: not self.holds(writer, batch), commit)

    def _check_takes_rows(self) -> None:
        """Checks what who writes has to keep, since nobody else looks at the rows."""
        check_takes_rows(self._where, self._arrow())
        names = [n for n in self._table.metadata().configuration if n.startswith(_CONSTRAINT)]
        if names:
            name = names[0].removeprefix(_CONSTRAINT)
            raise TableFormatError(self._where, f"has the constraint {name}, which is not checked")

    def replace(self, old: Sequence[TableFile], new: Sequence[TableFile]) -> None:
        now_ms = int(time.time() * 1000)
        gone = [
            RemoveAction(
                path=file.path,
                data_change=False,
                deletion_timestamp=now_ms,
                size=file.size_bytes,
                partition_values=_values(file),
            )
            for file in old
        ]
        actions = [*gone, *(_added(file, changes=False) for file in new)]

        def look() -> bool:
            known = {file.path for file in self.files()}
            return is_to_be_replaced(self._where, old, known, [file.path for file in new])

        commit_patiently(look, lambda: self._commit(actions, []))

    def _commit(self, actions: list[Any], noted: list[Any]) -> None:
        # The library itself would put it behind a commit that came in between, although that
        # removed the same files: it has one try, on the state that was looked at.
        properties = CommitProperties(app_transactions=noted, max_commit_retries=0)
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                partition_by=list(PARTITIONED_BY),
                commit_properties=properties,
            )
        except (CommitFailedError, DeltaError, OSError) as error:
            raise TableCommitError(self._where, str(error)) from error
        self._look()

    def files(self) -> list[TableFile]:
        self._look()
        settings = self._table.metadata().configuration
        features = set(self._table.protocol().reader_features or ())
        for name, setting in _REFUSED.items():
            if settings.get(setting, "none") not in ("none", "false") or name in features:
                raise TableFormatError(self._where, f"uses {name}, which a replay cannot read")
        actions = pa.table(self._table.get_add_actions(flatten=False)).to_pylist()
        found = [
            TableFile(
                # As in a URL; the library writes it so again when the file is to go.
                path=unquote(action["path"]),
                size_bytes=action["size_bytes"],
                modified_ms=action["modification_time"],
                rows=action["num_records"] or 0,
                topic=action["partition"]["topic"],
                day=_day(action["partition"]["date"]),
                ranges={},
            )
            for action in actions
        ]
        check_below(self._storage, found)
        return found

    def described(self) -> str:
        return f"{self._where}, version {self._table.version()}"


def _delta_schema(properties: Sequence[str]) -> "deltalake.Schema":
    return deltalake.Schema.from_arrow(arrow_schema(properties))


def _day(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(str(value))


def _values(file: TableFile) -> dict[str, str | None]:
    return {"topic": file.topic, "date": file.day.isoformat()}


def _added(file: TableFile, *, changes: bool) -> Any:
    stats = {
        "numRecords": file.rows,
        "minValues": {name: least_text(values[0]) for name, values in file.ranges.items()},
        "maxValues": {name: largest_text(values[1]) for name, values in file.ranges.items()},
    }
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=_values(file),
        modification_time=file.modified_ms,
        data_change=changes,
        stats=json.dumps(stats),
    )


def least_text(value: Any) -> Any:
    """Returns a least value as statistics hold it: of a time no more than milliseconds."""
    if not isinstance(value, datetime):
        return value
    return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def largest_text(value: Any) -> Any:
    """Returns a largest value as statistics hold it: of a time the next whole millisecond."""
    if not isinstance(value, datetime):
        return value
    return least_text(value + timedelta(microseconds=-value.microsecond % 1000))
