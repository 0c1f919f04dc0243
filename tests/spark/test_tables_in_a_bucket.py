"""Tables in an object store: found, committed, and committed by two at once."""

import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType, StringType

from ledgermq.spark.errors import CorruptDataError, TableCommitError, TableFormatError
from ledgermq.spark.tables import ArchiveTable, Storage, TablePlace, open_table
from ledgermq.spark.tables.arrow_schema import arrow_schema
from ledgermq.spark.tables.delta import largest_text, least_text
from ledgermq.spark.tables.files import look
from ledgermq.spark.tables.formats import FORMATS
from ledgermq.spark.tables.storage import StoreKeys
from tests.spark.object_store import BUCKET, object_store

_BORN = datetime(2026, 5, 1, 12, 0, 0, 123_456, UTC)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreKeys]:
    with object_store(tmp_path_factory.mktemp("store")) as found:
        yield found


def rows(*offsets: int, topic: str = "T") -> Any:
    schema = arrow_schema(())
    columns: dict[str, list[Any]] = {name: [None] * len(offsets) for name in schema.names}
    columns["topic"] = [topic] * len(offsets)
    columns["queueOffset"] = list(offsets)
    columns["storeTimestamp"] = [_BORN + timedelta(seconds=offset) for offset in offsets]
    columns["date"] = [_BORN.date()] * len(offsets)
    columns["properties"] = [[("number", str(offset))] for offset in offsets]
    return pa.table(columns, schema)


def put(storage: Storage, path: str, table: Any) -> None:
    with storage.files.open_output_stream(f"{storage.directory}/{path}") as stream:
        pq.write_table(table, stream)


def place_of(kind: str, name: str, keys: StoreKeys, tmp_path: Path) -> TablePlace:
    storage = Storage("--path", f"s3a://{BUCKET}/{name}/{kind}", keys)
    return TablePlace(kind, storage, catalog_file=tmp_path / "catalog.db")


def numbers(kind: str, place: TablePlace) -> list[str]:
    """What the format's own library finds."""
    if kind == "delta":
        options = place.storage.delta_options()
        table: Any = pa.table(
            DeltaTable(place.storage.root, storage_options=options).to_pyarrow_table()
        )
    else:
        properties = place.storage.iceberg_properties()
        catalog = SqlCatalog("ledgermq", uri=f"sqlite:///{place.catalog_file}", **properties)
        table = catalog.load_table(place.table).scan().to_arrow()
    return sorted(dict(found)["number"] for found in table.column("properties").to_pylist())


@pytest.mark.parametrize("kind", FORMATS)
def test_batches_are_committed_once_and_files_replaced(
    kind: str, keys: StoreKeys, tmp_path: Path
) -> None:
    place = place_of(kind, "once", keys, tmp_path)
    storage = place.storage
    table: ArchiveTable = open_table(place, create=True)
    assert not table.holds("w", 0) and table.files() == []
    for batch in range(2):
        put(
            storage,
            f"data/w-{batch}/slot=AB/part-{batch}.parquet",
            rows(batch * 10, batch * 10 + 1),
        )
        table.add("w", batch, look(storage, f"data/w-{batch}"))
        assert table.holds("w", batch) and not table.holds("w", batch + 1)
        assert not table.holds("other", 0)
    table.add("w", 2, [])
    again = open_table(place, create=False)
    assert again.holds("w", 2)
    assert [(file.rows, file.topic, file.day) for file in again.files()] == [
        (2, "T", date(2026, 5, 1))
    ] * 2
    assert numbers(kind, place) == ["0", "1", "10", "11"]

    put(storage, "data/joined/slot=1/part-9.parquet", rows(0, 1, 10, 11))
    old = again.files()
    again.replace(old, look(storage, "data/joined"))
    assert len(table.files()) == 1 and numbers(kind, place) == ["0", "1", "10", "11"]
    # Somebody who joined the same files meanwhile, and is late.
    put(storage, "data/late/slot=1/part-8.parquet", rows(0, 1, 10, 11))
    with pytest.raises(TableCommitError, match="adds nothing twice"):
        table.replace(old, look(storage, "data/late"))
    assert numbers(kind, place) == ["0", "1", "10", "11"]


def test_files_that_another_engine_named_by_topic_are_replaced(tmp_path: Path) -> None:
    """The log writes their names as in a URL: one that is not found again stays, with its rows."""
    place = TablePlace("delta", Storage("--path", str(tmp_path / "lake"), StoreKeys()))
    storage, table = place.storage, open_table(place, create=True)
    DeltaTable(storage.directory).alter.set_table_properties(
        {"delta.enableDeletionVectors": "false"}
    )
    for batch in range(2):
        (tmp_path / f"lake/data/w-{batch}/slot=AB").mkdir(parents=True)
        path = f"data/w-{batch}/slot=AB/part-{batch}.parquet"
        put(storage, path, rows(batch, topic="%RETRY%g h"))
        table.add("w", batch, look(storage, f"data/w-{batch}"))
    DeltaTable(storage.directory).optimize.compact()
    [file] = table.files()
    assert (tmp_path / "lake" / file.path).is_file() and file.topic == "%RETRY%g h"
    (tmp_path / "lake/data/joined").mkdir()
    put(storage, "data/joined/part-9.parquet", rows(0, 1, topic="%RETRY%g h"))
    table.replace([file], look(storage, "data/joined"))
    assert numbers("delta", place) == ["0", "1"]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("what", ["adds", "joins"])
def test_who_commits_between_a_look_and_a_commit_is_seen(
    what: str, kind: str, keys: StoreKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(kind, f"between-{what}", keys, tmp_path)
    storage = place.storage
    one, other = open_table(place, create=True), open_table(place, create=True)
    for batch in range(2):
        put(storage, f"data/w-{batch}/slot=AB/part-{batch}.parquet", rows(batch))
        one.add("w", batch, look(storage, f"data/w-{batch}"))
    old = one.files()
    for name in ("mine", "others"):
        put(storage, f"data/{name}/slot=1/part-{name}.parquet", rows(0, 1))
    put(storage, "data/v-0/slot=AB/part-v.parquet", rows(2))
    module = sys.modules[FORMATS[kind]]
    real = module.is_to_be_replaced

    def come_between(*words: Any) -> bool:
        is_wanted: bool = real(*words)
        monkeypatch.setattr(module, "is_to_be_replaced", real)
        if what == "adds":
            other.add("v", 0, look(storage, "data/v-0"))
        else:
            other.replace(old, look(storage, "data/others"))
        return is_wanted

    monkeypatch.setattr(module, "is_to_be_replaced", come_between)
    if what == "adds":
        one.replace(old, look(storage, "data/mine"))
        assert numbers(kind, place) == ["0", "1", "2"]
    else:
        with pytest.raises(TableCommitError):
            one.replace(old, look(storage, "data/mine"))
        assert numbers(kind, place) == ["0", "1"]


@pytest.mark.parametrize("kind", FORMATS)
def test_two_drivers_of_one_stream_add_a_batch_once(
    kind: str, keys: StoreKeys, tmp_path: Path
) -> None:
    """One that was taken for dead goes on, with what it knew before."""
    place = place_of(kind, "drivers", keys, tmp_path)
    one: Any = open_table(place, create=True)
    other = open_table(place, create=True)
    for name in ("a", "b", "c"):
        put(place.storage, f"data/w-0-{name}/slot=AB/part-{name}.parquet", rows(1, 2))
    real = one.holds

    def come_between(writer: str, batch: int) -> bool:
        held = real(writer, batch)
        if not held:
            assert other.add("w", 0, look(place.storage, "data/w-0-b"))
        return bool(held)

    one.holds = come_between
    assert not one.add("w", 0, look(place.storage, "data/w-0-a"))
    assert not other.add("w", 0, look(place.storage, "data/w-0-c"))
    assert numbers(kind, place) == ["1", "2"]


@pytest.mark.parametrize("kind", FORMATS)
def test_two_writers_lose_nothing_of_each_other(kind: str, keys: StoreKeys, tmp_path: Path) -> None:
    place = place_of(kind, "two", keys, tmp_path)
    one, other = open_table(place, create=True), open_table(place, create=True)
    for number, (name, table) in enumerate([("a", one), ("b", other), ("a", one), ("b", other)]):
        folder = f"data/{name}-{number}"
        put(place.storage, f"{folder}/slot=AB/part-{number}.parquet", rows(number))
        assert not table.holds(name, number)
        table.add(name, number, look(place.storage, folder))
    assert numbers(kind, place) == ["0", "1", "2", "3"]
    assert one.holds("b", 3) and other.holds("a", 2)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_is_widened_once(kind: str, keys: StoreKeys, tmp_path: Path) -> None:
    place = place_of(kind, "wide", keys, tmp_path)
    table = open_table(place, create=True)
    table.widen(["number"])
    table.widen(["number"])
    assert table.properties() == ("number",)
    assert open_table(place, create=False).properties() == ("number",)


def change_delta(place: TablePlace, what: str) -> None:
    table = DeltaTable(place.storage.root, storage_options=place.storage.delta_options())
    if what == "constraint":
        table.alter.add_constraint({"few": "queueOffset < 5"})
        return
    kind = PrimitiveType("string")
    if what == "new column":
        table.alter.add_columns([Field("extra", kind)])
        return
    found = table.to_pyarrow_table()
    if what == "dropped":
        found = found.drop_columns(["keys"])
    else:
        at = found.schema.get_field_index("queueId")
        found = found.set_column(at, "queueId", found.column(at).cast(pa.int64()))
    write_deltalake(table, found, mode="overwrite", schema_mode="overwrite")


def change_iceberg(place: TablePlace, what: str) -> None:
    properties = place.storage.iceberg_properties()
    catalog = SqlCatalog("ledgermq", uri=f"sqlite:///{place.catalog_file}", **properties)
    table = catalog.load_table(place.table)
    with table.update_schema(allow_incompatible_changes=True) as change:
        if what == "new column":
            change.add_column("extra", StringType())
        elif what == "constraint":
            change.update_column("keys", required=True)
        elif what == "dropped":
            change.delete_column("keys")
        else:
            change.update_column("queueId", LongType())


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("new column", ""),
        ("dropped", "has no column keys"),
        ("widened", "column queueId is int64, not int32"),
        ("constraint", "constraint few, which is not checked|in each row of column keys"),
    ],
)
def test_a_table_that_others_have_changed_takes_rows_or_says_why_not(
    what: str, reason: str, kind: str, keys: StoreKeys, tmp_path: Path
) -> None:
    """Also while a job has it open: what it knows of the table is that of before."""
    place = place_of(kind, f"changed-{what.replace(' ', '-')}", keys, tmp_path)
    table = open_table(place, create=True)
    for batch in range(2):
        put(place.storage, f"data/w-{batch}/slot=AB/part-{batch}.parquet", rows(batch * 10))
    table.add("w", 0, look(place.storage, "data/w-0"))
    (change_delta if kind == "delta" else change_iceberg)(place, what)
    if not reason:
        table.add("w", 1, look(place.storage, "data/w-1"))
        assert numbers(kind, place) == ["0", "10"]
        return
    with pytest.raises(TableFormatError, match=reason):
        table.add("w", 1, look(place.storage, "data/w-1"))
    assert numbers(kind, place) == ["0"]


def test_a_file_of_two_topics_is_refused(keys: StoreKeys, tmp_path: Path) -> None:
    storage = place_of("delta", "mixed", keys, tmp_path).storage
    put(storage, "data/x/part.parquet", pa.concat_tables([rows(1), rows(2, topic="U")]))
    with pytest.raises(CorruptDataError, match="holds topic 'T' to 'U', must be one"):
        look(storage, "data/x")


def test_a_file_without_its_columns_is_refused(keys: StoreKeys, tmp_path: Path) -> None:
    storage = place_of("delta", "without", keys, tmp_path).storage
    put(storage, "data/x/part.parquet", pa.table({"a": [1]}))
    with pytest.raises(CorruptDataError, match="does not tell the range of topic"):
        look(storage, "data/x")


def test_an_empty_file_is_no_file_of_the_table(keys: StoreKeys, tmp_path: Path) -> None:
    storage = place_of("delta", "empty", keys, tmp_path).storage
    put(storage, "data/x/part.parquet", rows())
    assert look(storage, "data/x") == [] and look(storage, "data/none") == []


def test_times_of_statistics_hold_what_they_are_cut_from() -> None:
    assert least_text(_BORN) == "2026-05-01T12:00:00.123Z"
    assert largest_text(_BORN) == "2026-05-01T12:00:00.124Z"
    whole = _BORN.replace(microsecond=123_000)
    assert least_text(whole) == largest_text(whole) == "2026-05-01T12:00:00.123Z"
    assert largest_text(_BORN.replace(microsecond=999_500)) == "2026-05-01T12:00:01.000Z"
    assert least_text(7) == largest_text(7) == 7
