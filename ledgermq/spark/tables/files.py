"""The data files of a table: written and read by Spark, described by their own footers.

Rows are cut by topic and date into slots, which are hashes of both, so that no name of a topic
gets into a path. A file holds rows of one slot; its footer tells which topic and date that is.
"""

import math
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import (
    broadcast,
    coalesce,
    col,
    concat,
    lit,
    raise_error,
    regexp_extract,
    to_date,
    xxhash64,
)
from pyspark.sql.functions import hex as hex_of
from pyspark.sql.types import (
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from ledgermq.spark.errors import (
    CorruptDataError,
    TableCommitError,
    TableFormatError,
    TableReadError,
)
from ledgermq.spark.paths import literal
from ledgermq.spark.schema import COLUMNS
from ledgermq.spark.tables.storage import Storage, StoredFile
from ledgermq.spark.values.limits import shortened

PARTITIONED_BY: Final = ("topic", "date")
# Of this column and this one engines skip files by least and largest value.
_RANGED: Final = ("queueOffset", "storeTimestamp")
_FOOTERS_AT_ONCE: Final = 16
_SLOT: Final = "slot"
# Of a commit that another one comes before.
_TRIES: Final = 10
# The last directory and the name of a file, in signs that every engine leaves as they are.
_SHORT_NAME: Final = r"[A-Za-z0-9._=-]+/[A-Za-z0-9._=-]+$"


class TableFile(NamedTuple):
    """A data file."""

    # Below the root, or whole, which is below it, too (`check_below`).
    path: str
    size_bytes: int
    modified_ms: int
    rows: int
    topic: str
    day: date
    # Least and largest value by column.
    ranges: Mapping[str, tuple[Any, Any]]


def columns_of(properties: Sequence[str]) -> dict[str, DataType]:
    """Returns the columns of a table: of a message, its date, and some of its properties."""
    more = {f"property_{name}": StringType() for name in properties}
    return {**COLUMNS, "date": DateType(), **more}


def write_rows(
    rows: DataFrame, storage: Storage, folder: str, properties: Sequence[str]
) -> list[TableFile]:
    """Writes messages into a folder of their own: what another try wrote is never touched.

    Args:
        rows: columns of a message.
        storage: root of the table.
        folder: below it; must not be there.
        properties: of messages, which become columns.

    Returns:
        What is in the folder now.
    """
    dated = rows.withColumn("date", to_date(col("storeTimestamp")))
    for name in properties:
        dated = dated.withColumn(f"property_{name}", col("properties")[name])
    slotted = dated.select(*columns_of(properties)).withColumn(_SLOT, _slot())
    writer = slotted.write.mode("error").partitionBy(_SLOT)
    writer.parquet(f"{storage.spark_root}/{folder}")
    return look(storage, folder)


def _slot() -> Any:
    return hex_of(xxhash64(*(col(name) for name in PARTITIONED_BY)))


def look(storage: Storage, folder: str) -> list[TableFile]:
    """Returns the data files of a folder, by their footers."""
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        found = pool.map(lambda file: _described(storage, file), storage.parquet_files(folder))
        return [file for file in found if file.rows]


def _described(storage: Storage, file: StoredFile) -> TableFile:
    try:
        footer = pq.read_metadata(f"{storage.directory}/{file.path}", filesystem=storage.files)
    except pa.ArrowInvalid as error:
        raise CorruptDataError(file.path, f"is no whole file of Parquet: {error}") from error
    names = (*PARTITIONED_BY, *_RANGED)
    ranges = {name: _range(footer, name, file.path) for name in names} if footer.num_rows else {}
    if not ranges:
        return TableFile(*file, 0, "", date.min, {})
    for name in PARTITIONED_BY:
        least, largest = ranges[name]
        if least != largest:
            raise CorruptDataError(file.path, f"holds {name} {least!r} to {largest!r}, must be one")
    topic, day = (ranges.pop(name)[0] for name in PARTITIONED_BY)
    return TableFile(*file, footer.num_rows, topic, day, ranges)


def _range(footer: Any, name: str, path: str) -> tuple[Any, Any]:
    """Returns the least and the largest value of a column over all row groups."""
    # Its number among the leaves: a map has two of them.
    leaves = range(footer.num_columns)
    leaf = next((n for n in leaves if footer.schema.column(n).path == name), None)
    groups = range(footer.num_row_groups) if leaf is not None else ()
    found = [footer.row_group(number).column(leaf).statistics for number in groups]
    if not found or not all(one is not None and one.has_min_max for one in found):
        raise CorruptDataError(path, f"its footer does not tell the range of {name}")
    return min(one.min for one in found), max(one.max for one in found)


def read_files(
    spark: SparkSession, storage: Storage, files: Sequence[TableFile], properties: Sequence[str]
) -> DataFrame:
    """Returns the rows of data files.

    Topic and date are taken from the table, as other engines write files without them; a column
    that came later is null in the files before it.

    Raises:
        FileNotFoundError: there is none.
        TableFormatError: two files have the same name.
    """
    if not files:
        raise FileNotFoundError(f"the table {storage.root} holds no messages")
    columns = columns_of(properties)
    frame = _joined_with(spark, storage, files, columns, _partitions(files))
    return frame.select(*columns)


def join_small(
    spark: SparkSession,
    storage: Storage,
    files: Sequence[TableFile],
    properties: Sequence[str],
    target_bytes: int,
) -> tuple[list[TableFile], list[TableFile]]:
    """Writes neighboring small files of a partition into larger ones.

    Args:
        spark: runs the copying.
        storage: root of the table.
        files: all of it.
        properties: which are columns.
        target_bytes: files of half of this size and more are left alone.

    Returns:
        The files that are to go, and those that take their place; the table knows nothing yet.
    """
    bins = _bins(files, target_bytes)
    old = [file for group in bins for file in group]
    if not old:
        return [], []
    numbers = [number for number, group in enumerate(bins) for _ in group]
    columns = columns_of(properties)
    values = {**_partitions(old), _SLOT: (LongType(), numbers)}
    frame = _joined_with(spark, storage, old, columns, values).select(*columns, _SLOT)
    # All of a bin in one task, thus in one file.
    frame = frame.repartition(len(bins), _SLOT)
    frame = frame.sortWithinPartitions(_SLOT, "brokerName", "queueId", "queueOffset")
    folder = f"data/joined-{uuid.uuid4()}"
    frame.write.mode("error").partitionBy(_SLOT).parquet(f"{storage.spark_root}/{folder}")
    new = look(storage, folder)
    before, after = sum(file.rows for file in old), sum(file.rows for file in new)
    if before != after:
        raise CorruptDataError(folder, f"holds {after} rows of {before} that were joined")
    return old, new


def _partitions(files: Sequence[TableFile]) -> dict[str, tuple[DataType, list[Any]]]:
    """Returns the columns that the table itself knows, with a value for each file."""
    return {
        "topic": (StringType(), [file.topic for file in files]),
        "date": (DateType(), [file.day for file in files]),
    }


def _joined_with(
    spark: SparkSession,
    storage: Storage,
    files: Sequence[TableFile],
    columns: Mapping[str, DataType],
    known: Mapping[str, tuple[DataType, list[Any]]],
) -> DataFrame:
    """Returns rows of files, with columns of which each file has one value that is known."""
    names = [_short_name(storage, file) for file in files]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableFormatError(storage.root, f"has two files {twice}")
    in_files = [StructField(name, kind) for name, kind in columns.items() if name not in known]
    schema = StructType(in_files)
    rows = spark.read.schema(schema).parquet(*(spark_file(storage, file.path) for file in files))
    rows = rows.withColumn("_file", regexp_extract(col("_metadata.file_path"), _SHORT_NAME, 0))
    table = list(zip(names, *(values for _, values in known.values()), strict=True))
    fields = [StructField(name, kind) for name, (kind, _) in known.items()]
    by_file = StructType([StructField("_file", StringType()), *fields])
    joined = rows.join(broadcast(spark.createDataFrame(table, by_file)), "_file", "left")
    # Rows are never left out for a name that is not found.
    unknown = raise_error(concat(lit(f"{storage.root} does not list "), col("_file")))
    return joined.withColumn("topic", coalesce(col("topic"), unknown.cast("string")))


def _short_name(storage: Storage, file: TableFile) -> str:
    """Returns a file's name with its directory: one task writes files of one name into several.

    Raises:
        TableFormatError: it has signs that a URL may write in another way.
    """
    found = re.search(_SHORT_NAME, f"/{file.path}")
    if found is None:
        raise TableFormatError(storage.root, f"has a file whose name is not plain: {file.path}")
    return found[0]


def spark_file(storage: Storage, path: str) -> str:
    """Returns a file as Spark's readers take it: nothing in it is a pattern."""
    if "://" in path:
        path = path.replace("s3://", "s3a://", 1)
    elif path.startswith("/"):
        path = f"file://{path}"
    else:
        path = f"{storage.spark_root}/{path}"
    return literal(path)


def check_below(storage: Storage, files: Sequence[TableFile]) -> None:
    """Checks that the files that a table lists lie where the table does.

    A table is read with the rights of who reads it, and its list is for whoever writes the table:
    a name elsewhere would give others what they cannot read themselves.

    Raises:
        TableFormatError: one lies elsewhere.
    """
    for file in files:
        if not _is_below(storage, file.path):
            raise TableFormatError(
                storage.root, f"lists a file that lies outside of it: {shortened(file.path, 200)}"
            )


def _is_below(storage: Storage, path: str) -> bool:
    scheme, colon, rest = path.partition(":/")
    base = storage.directory.strip("/")
    if not colon or "/" in scheme:
        scheme = "file" if path.startswith("/") else ""
        rest = path if scheme else f"{base}/{path}"
    allowed = ("", "file") if storage.is_local else ("", "s3", "s3a")
    if storage.is_local:
        # file:/data is file:///data.
        rest = rest.lstrip("/")
    elif scheme:
        rest = rest.removeprefix("/")
    parts = rest.split("/")
    is_plain = not any(part in ("", ".", "..") for part in parts)
    return scheme in allowed and is_plain and rest.startswith(f"{base}/")


@contextmanager
def reading_table(where: str, *failures: type[Exception]) -> Iterator[None]:
    """Gives what a library says in a `with` block a name and a place.

    Args:
        where: root of the table.
        failures: what the library raises where a table is damaged or its store fails.

    Raises:
        TableReadError: one of them came.
    """
    try:
        yield
    except failures as error:
        # Without colors, and the addresses of frames that Rust tells.
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        lines = [line for line in text.splitlines() if "<unknown>" not in line]
        raise TableReadError(where, shortened("\n".join(lines).strip(), 500)) from error


def commit_patiently(look: Callable[[], bool], commit: Callable[[], None]) -> bool:
    """Commits, and again where another commit came in between, as long as it is still wanted.

    The libraries differ in what they take for a conflict, so each try is one commit on the state
    that was looked at.

    Args:
        look: at the newest state; tells whether the commit is wanted there.
        commit: fails with TableCommitError where another one came before.

    Returns:
        Whether it is committed; False when it was not wanted any more.

    Raises:
        TableCommitError: others commit all the time, or the store fails.
    """
    for number in range(_TRIES):
        if not look():
            return False
        try:
            commit()
            return True
        except TableCommitError:
            if number == _TRIES - 1:
                raise
    return False


def is_to_be_replaced(
    where: str, old: Sequence[TableFile], known: Set[str], new: Sequence[str]
) -> bool:
    """Tells whether files are still to be replaced; not where those in their place are there.

    That is so after a commit whose answer got lost.

    Args:
        where: root of the table.
        old: the files that are to go.
        known: names of those that the table lists.
        new: names of those that are to take their place.

    Raises:
        TableCommitError: somebody else replaced one, whose rows would be there twice.
    """
    if new and set(new) <= known:
        return False
    for file in old:
        if file.path not in known:
            raise TableCommitError(where, f"somebody else replaced {file.path} meanwhile")
    return True


def _bins(files: Sequence[TableFile], target_bytes: int) -> list[list[TableFile]]:
    """Returns runs of two and more small files of a partition, each of about the target."""
    parts: dict[tuple[str, date], list[TableFile]] = {}
    for file in files:
        if file.size_bytes * 2 < target_bytes:
            parts.setdefault((file.topic, file.day), []).append(file)
    bins: list[list[TableFile]] = []
    for part in parts.values():
        part.sort(key=lambda file: (file.modified_ms, file.path))
        total = sum(file.size_bytes for file in part)
        size = math.ceil(len(part) / max(1, math.ceil(total / target_bytes)))
        groups = [part[first : first + size] for first in range(0, len(part), size)]
        bins += [group for group in groups if len(group) > 1]
    return bins
