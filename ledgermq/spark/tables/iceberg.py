"""A table of Apache Iceberg, committed by pyiceberg.

Its catalog is a file of SQLite beside the checkpoint, for one driver at a time, or one that
pyiceberg's own configuration names (REST, Hive, Glue, a database). Which batches are in the table
stands in its properties, which change in the same commit as its files.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, Final

from ledgermq.spark.errors import (
    MissingPackageError,
    OptionError,
    TableCommitError,
    TableFormatError,
    TableReadError,
)
from ledgermq.spark.tables.arrow_schema import check_columns, check_takes_rows, properties_of
from ledgermq.spark.tables.files import (
    PARTITIONED_BY,
    TableFile,
    check_below,
    columns_of,
    commit_patiently,
    is_to_be_replaced,
    reading_table,
)
from ledgermq.spark.tables.formats import TablePlace
from ledgermq.spark.tables.storage import Storage

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        CommitStateUnknownException,
        NoSuchTableError,
        RESTError,
        ValidationError,
        ValidationException,
    )
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table, Transaction
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import (
        BinaryType,
        DateType,
        IcebergType,
        IntegerType,
        LongType,
        MapType,
        NestedField,
        StringType,
        TimestamptzType,
    )
    from sqlalchemy.exc import SQLAlchemyError
except ImportError as error:
    raise MissingPackageError(
        "a table of Iceberg", "pyiceberg[sql-sqlite]", "lake", "on the driver"
    ) from error

# What is raised where metadata is damaged, or the store or the catalog does not answer.
_FAILURES: Final = (OSError, ValueError, ValidationError, RESTError, SQLAlchemyError)
_TOTAL: Final = "total-records"
_BATCH: Final = "ledgermq.batch."
_CATALOG: Final = "ledgermq"
_EPOCH: Final = date(1970, 1, 1)
# Below it are fields of rows.
_FIRST_PARTITION_ID: Final = 1000
_NAME_MAPPING: Final = "schema.name-mapping.default"
_SETTINGS: Final = {
    # Each try is one commit, on the state that was looked at.
    "commit.retry.num-retries": "0",
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_TYPES: Final = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
}


def open_archive(place: TablePlace, *, create: bool) -> "IcebergArchive":
    """Opens a table; see open_table."""
    storage = place.storage
    with reading_table(storage.root, *_FAILURES):
        catalog = _catalog(place)
        table = _loaded(catalog, place)
        if table is None and create:
            table = _created(catalog, place)
    if table is None:
        where = place.catalog or place.catalog_file
        raise FileNotFoundError(f"the catalog {where} knows no table {place.table}")
    if table.location().rstrip("/") != storage.root:
        allowed = f"{table.location()}, where the table {place.table} of this catalog is"
        raise OptionError("--path", storage.root, allowed)
    return IcebergArchive(table, storage)


def _loaded(catalog: Catalog, place: TablePlace) -> Table | None:
    try:
        return catalog.load_table(place.table)
    except NoSuchTableError:
        return None


def _created(catalog: Catalog, place: TablePlace) -> Table:
    schema = _schema(())
    fields = [
        PartitionField(schema.find_field(name).field_id, 1000 + number, IdentityTransform(), name)
        for number, name in enumerate(PARTITIONED_BY)
    ]
    catalog.create_namespace_if_not_exists(place.table.rpartition(".")[0])
    return catalog.create_table_if_not_exists(
        place.table,
        schema,
        place.storage.root,
        PartitionSpec(*fields),
        properties={**_SETTINGS, _NAME_MAPPING: schema.name_mapping.model_dump_json()},
    )


def _catalog(place: TablePlace) -> Catalog:
    properties = place.storage.iceberg_properties()
    if place.catalog is not None:
        return load_catalog(place.catalog, **properties)
    file = place.catalog_file
    if file is None:
        allowed = "a file of this machine for the catalog, or --catalog with one that is configured"
        raise OptionError("--catalog-file", None, allowed)
    file.parent.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(_CATALOG, uri=f"sqlite:///{file}", **properties)


class IcebergArchive:
    """An archive as a table of Iceberg; see ArchiveTable."""

    def __init__(self, table: Table, storage: Storage) -> None:
        self._table = table
        self._where = storage.root
        self._storage = storage
        check_columns(self._where, table.schema().as_arrow())
        self._check_spec(table.spec())

    def _check_spec(self, spec: PartitionSpec) -> None:
        found = tuple(f"{field.transform} of {field.name}" for field in spec.fields)
        if found != tuple(f"identity of {name}" for name in PARTITIONED_BY):
            text = ", ".join(found) or "nothing"
            raise TableFormatError(self._where, f"is partitioned by {text}, not by topic and date")

    def properties(self) -> tuple[str, ...]:
        return properties_of(self._table.schema().as_arrow())

    def widen(self, properties: Sequence[str]) -> None:
        known = set(self._table.schema().column_names)
        missing = [name for name in columns_of(properties) if name not in known]
        if missing:
            with (
                reading_table(self._where, *_FAILURES),
                self._table.update_schema() as change,
            ):
                for name in missing:
                    change.add_column(name, StringType())

    def _look(self) -> None:
        with reading_table(self._where, *_FAILURES):
            self._table.refresh()

    def _listed(self) -> list[FileScanTask]:
        """Returns what the table lists now, which must be all of it: a list may be cut."""
        self._look()
        with reading_table(self._where, *_FAILURES):
            found = list(self._table.scan().plan_files())
        snapshot = self._table.current_snapshot()
        told = None if snapshot is None or snapshot.summary is None else snapshot.summary[_TOTAL]
        rows = sum(task.file.record_count for task in found)
        if told is not None and int(told) != rows:
            reason = f"its lists have files of {rows} rows, its last snapshot {told}"
            raise TableReadError(self._where, reason)
        return found

    def holds(self, writer: str, batch: int) -> bool:
        self._look()
        done = self._table.properties.get(_BATCH + writer)
        return done is not None and int(done) >= batch

    def add(self, writer: str, batch: int, files: Sequence[TableFile]) -> bool:
        def commit() -> None:
            check_takes_rows(self._where, self._table.schema().as_arrow())
            with _Commit(self._table, self._where) as change:
                if files:
                    # Folders have names of their own: that no file is there twice is known
                    # without reading all that the table lists.
                    paths = [self._whole(file) for file in files]
                    change.add_files(paths, check_duplicate_files=False)
                change.set_properties({_BATCH + writer: str(batch)})

        return commit_patiently(lambda: not self.holds(writer, batch), commit)

    def replace(self, old: Sequence[TableFile], new: Sequence[TableFile]) -> None:
        gone = {file.path for file in old}
        known: list[DataFile] = []

        def look() -> bool:
            known[:] = [task.file for task in self._listed()]
            names = {data_file.file_path for data_file in known}
            return is_to_be_replaced(self._where, old, names, [self._whole(file) for file in new])

        def commit() -> None:
            with (
                _Commit(self._table, self._where) as change,
                change.update_snapshot().overwrite() as snapshot,
            ):
                for data_file in known:
                    if data_file.file_path in gone:
                        snapshot.delete_data_file(data_file)
                for file in new:
                    path = self._whole(file)
                    snapshot.append_data_file(
                        parquet_file_to_data_file(self._table.io, change.table_metadata, path)
                    )

        commit_patiently(look, commit)

    def _whole(self, file: TableFile) -> str:
        return f"{self._storage.root}/{file.path}"

    def files(self) -> list[TableFile]:
        found = []
        for task in self._listed():
            if task.delete_files:
                reason = (
                    "has rows that were deleted without a rewrite, which a replay cannot leave out"
                )
                raise TableFormatError(self._where, reason)
            file = task.file
            self._check_spec(self._table.specs()[file.spec_id])
            topic, day = file.partition[0], file.partition[1]
            found.append(
                TableFile(
                    path=file.file_path,
                    size_bytes=file.file_size_in_bytes,
                    modified_ms=0,
                    rows=file.record_count,
                    topic=topic,
                    day=_EPOCH + timedelta(days=day) if isinstance(day, int) else day,
                    ranges={},
                )
            )
        check_below(self._storage, found)
        return found

    def described(self) -> str:
        return f"{self._where}, metadata {self._table.metadata_location}"


class _Commit:
    """A transaction whose failure has a name and a place."""

    def __init__(self, table: Table, where: str) -> None:
        self._transaction = table.transaction()
        self._where = where

    def __enter__(self) -> Transaction:
        return self._transaction.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._transaction.__exit__(kind, error, trace)
        except (
            CommitFailedException,
            CommitStateUnknownException,
            ValidationException,
            *_FAILURES,
        ) as failure:
            raise TableCommitError(self._where, str(failure)) from failure


def _schema(properties: Sequence[str]) -> Schema:
    columns = columns_of(properties)
    number = len(columns)
    fields = []
    for place, (name, kind) in enumerate(columns.items(), 1):
        text = kind.simpleString()
        found: IcebergType
        if text in _TYPES:
            found = _TYPES[text]
        else:
            found = MapType(
                number + 1, StringType(), number + 2, StringType(), value_required=False
            )
            number += 2
        fields.append(NestedField(place, name, found, required=False))
    return Schema(*fields)
