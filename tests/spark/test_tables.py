"""Archives as tables of Delta Lake and Iceberg: cut off, widened, joined, read by others."""

import argparse
import re
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException

from ledgermq.client import Message
from ledgermq.spark.errors import OptionError, TableCommitError, TableFormatError
from ledgermq.spark.jobs import archive, archive_table, replay
from ledgermq.spark.tables import Storage, TablePlace, open_table
from ledgermq.spark.tables.files import TableFile
from ledgermq.spark.tables.storage import StoreKeys
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.test_jobs import contents, run
from tests.spark.topics import send_all, send_numbered

pytestmark = pytest.mark.timeout(900)
FORMATS = ("delta", "iceberg")


def place_of(kind: str, path: Path) -> TablePlace:
    storage = Storage("--path", str(path), StoreKeys())
    return TablePlace(kind, storage, catalog_file=Path(f"{path}_catalog.db"))


def read_by_others(kind: str, path: Path) -> Any:
    """The table, by the format's own library, without a word of ours."""
    if kind == "delta":
        return pa.table(DeltaTable(str(path)).to_pyarrow_table())
    catalog = SqlCatalog("ledgermq", uri=f"sqlite:///{path}_catalog.db")
    return catalog.load_table("ledgermq.archive").scan().to_arrow()


def rows_of(table: Any) -> list[dict[str, Any]]:
    return list(table.to_pylist())


def dying_at(fatal: int, *, is_committed: bool) -> Callable[..., Any]:
    """Opens a table whose writer dies at a batch, before its commit or right after it."""

    def open_it(place: TablePlace, *, create: bool) -> Any:
        table: Any = open_table(place, create=create)
        add = table.add

        def add_and_die(writer: str, batch: int, files: Any) -> None:
            if batch != fatal or is_committed:
                add(writer, batch, files)
            if batch == fatal:
                raise TableCommitError(place.storage.root, "killed")

        table.add = add_and_die
        return table

    return open_it


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_has_each_message_once(
    kind: str,
    spark: Any,
    cluster: UpCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Blanks and signs of patterns are in paths of users.
    path = tmp_path / "my [lake] {1}" / kind
    path.parent.mkdir()
    topic, target = f"Lake-{kind}", f"FromLake-{kind}"
    words = ("-t", topic, "--path", path, "--format", kind, "--rows-per-batch", 40)
    send_numbered(cluster.name_server, topic, 60)

    for is_committed in (False, True):
        with monkeypatch.context() as patch, pytest.raises(PySparkException, match="killed"):
            patch.setattr(archive_table, "open_table", dying_at(1, is_committed=is_committed))
            run(archive, spark, cluster, *words)
        assert 0 < read_by_others(kind, path).num_rows < (61 if is_committed else 60)
        assert list((path / "data").rglob("*.parquet"))

    send_numbered(cluster.name_server, topic, 30, start=60)
    run(archive, spark, cluster, *words, "--compact-mib", 0)
    sent = direct.read_rows({"nameServer": cluster.name_server, "topic": topic})
    assert len(sent) == 90
    found = read_by_others(kind, path)
    assert contents(rows_of(found)) == contents(sent)
    assert {row["topic"] for row in rows_of(found)} == {topic}
    assert {row["date"] for row in rows_of(found)} == {row["storeTimestamp"].date() for row in sent}

    # Joined: fewer files, the same rows; and a batch later goes on.
    before = len(open_table(place_of(kind, path), create=False).files())
    capsys.readouterr()
    run(archive, spark, cluster, *words)
    told = capsys.readouterr().out
    after = open_table(place_of(kind, path), create=False).files()
    assert f"joined {before} files" in told and len(after) < before
    assert contents(rows_of(read_by_others(kind, path))) == contents(sent)

    # Back into a topic, in two runs.
    words = ("--path", path, "--format", kind, "-t", target)
    run(replay, spark, cluster, *words, "--where", "queueId < 2")
    run(replay, spark, cluster, *words)
    replayed = direct.read_written({"nameServer": cluster.name_server, "topic": target})
    assert contents(replayed) == contents(sent)
    assert (Path(f"{path}_replay") / f"{target}.json").is_file()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_property_becomes_a_column_later(
    kind: str, spark: Any, cluster: UpCluster, tmp_path: Path
) -> None:
    path, topic = tmp_path / "lake", f"Widened-{kind}"
    words = ("-t", topic, "--path", path, "--format", kind)
    send_numbered(cluster.name_server, topic, 5)
    run(archive, spark, cluster, *words, "--compact-mib", 0)
    send_numbered(cluster.name_server, topic, 5, start=5)
    run(archive, spark, cluster, *words, "--compact-mib", 0, "--add-property", "number")
    # It stays one without being asked for.
    send_numbered(cluster.name_server, topic, 5, start=10)
    run(archive, spark, cluster, *words, "--compact-mib", 0)
    expected = Counter({None: 5, **{str(number): 1 for number in range(5, 15)}})
    found = read_by_others(kind, path)
    assert Counter(found.column("property_number").to_pylist()) == expected
    run(archive, spark, cluster, *words)
    assert Counter(read_by_others(kind, path).column("property_number").to_pylist()) == expected


def test_a_table_and_a_checkpoint_that_do_not_belong_together_are_refused(
    spark: Any, cluster: UpCluster, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    send_numbered(cluster.name_server, "Belongs", 6)
    send_numbered(cluster.name_server, "Besides", 3)
    words = ("--format", "delta", "--compact-mib", 0)
    run(archive, spark, cluster, "-t", "Belongs", "--path", first, *words)

    # Without it the stream would begin again.
    for topics in (("-t", "Besides,Belongs"), ("--pattern", "Bel.*")):
        with pytest.raises(OptionError, match="with which Belongs came into the table"):
            new = tmp_path / "new"
            run(archive, spark, cluster, *topics, "--path", first, "--checkpoint", new, *words)
    # With it another table would lack what this one has.
    with pytest.raises(OptionError, match="which does not have batch 0 of this"):
        used = tmp_path / "first_checkpoint"
        run(
            archive, spark, cluster,
            "-t", "Belongs", "--path", second, "--checkpoint", used, *words,
        )  # fmt: skip
    # Another topic comes into the table by a checkpoint of its own.
    run(
        archive, spark, cluster,
        "-t", "Besides", "--path", first, "--checkpoint", tmp_path / "besides", *words,
    )  # fmt: skip
    run(archive, spark, cluster, "-t", "Belongs", "--path", first, *words)
    topics_found = Counter(read_by_others("delta", first).column("topic").to_pylist())
    assert topics_found == Counter({"Belongs": 6, "Besides": 3})


@pytest.mark.parametrize("kind", FORMATS)
def test_names_of_topics_are_no_part_of_paths(
    kind: str, spark: Any, cluster: UpCluster, tmp_path: Path
) -> None:
    """Names of topics may have signs that paths and URLs write in another way."""
    path, topics = tmp_path / "lake", (f"%41%lake-{kind}", f"a|b-{kind}", f"plain-{kind}")
    for topic in topics:
        send_all(cluster.name_server, [Message(topic, b"%d" % n) for n in range(3)])
    run(
        archive, spark, cluster,
        "-t", ",".join(topics), "--path", path, "--format", kind, "--rows-per-batch", 5,
    )  # fmt: skip
    found = Counter((row["topic"], row["body"]) for row in rows_of(read_by_others(kind, path)))
    assert found == Counter((topic, b"%d" % number) for topic in topics for number in range(3))
    assert not [file for file in path.rglob("*.parquet") if "%" in str(file)]
    rows = replay._read(spark, _options(replay, path, kind))[0].collect()
    assert {row.topic for row in rows} == set(topics) and len(rows) == 9


def _options(job: Any, path: Path, kind: str) -> Any:

    parser = argparse.ArgumentParser()
    job.add_arguments(parser)
    return parser.parse_args(["-n", "127.0.0.1:1", "--path", str(path), "--format", kind])


def test_delta_files_of_another_engine_are_read(
    spark: Any, cluster: UpCluster, tmp_path: Path
) -> None:
    """Others leave out the columns by which a table is partitioned, as Delta has it."""
    path, topic = tmp_path / "lake", "Rewritten"
    send_numbered(cluster.name_server, topic, 20)
    words = ("-t", topic, "--path", path, "--format", "delta", "--rows-per-batch", 8)
    run(archive, spark, cluster, *words, "--compact-mib", 0)
    table = DeltaTable(str(path))
    assert table.optimize.compact()["numFilesAdded"] == 1
    (file,) = table.file_uris()
    assert "topic=Rewritten" in file
    sent = direct.read_rows({"nameServer": cluster.name_server, "topic": topic})
    rows = replay._read(spark, _options(replay, path, "delta"))[0]
    assert contents([row.asDict() for row in rows.collect()]) == contents(sent)
    assert {row.topic for row in rows.collect()} == {topic}
    send_numbered(cluster.name_server, topic, 5, start=20)
    run(archive, spark, cluster, *words)
    assert read_by_others("delta", path).num_rows == 25


def test_duckdb_reads_the_files_of_a_table(spark: Any, cluster: UpCluster, tmp_path: Path) -> None:
    path, topic = tmp_path / "lake", "Quacked"
    send_numbered(cluster.name_server, topic, 12)
    run(archive, spark, cluster, "-t", topic, "--path", path, "--format", "iceberg")
    table = read_by_others("iceberg", path)
    query = "select topic, count(*), min(queueOffset) from table group by topic"
    assert duckdb.sql(query.replace("table", '"table"')).fetchall() == [(topic, 12, 0)]
    assert table.num_rows == 12


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_no_archive_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    schema = pa.schema([("a", pa.int64())])
    if kind == "delta":
        DeltaTable.create(str(path), schema)
    else:
        catalog = SqlCatalog("ledgermq", uri=f"sqlite:///{path}_catalog.db")
        catalog.create_namespace("ledgermq")
        catalog.create_table("ledgermq.archive", schema, f"file://{path}")
    with pytest.raises(TableFormatError, match="partitioned by nothing|has no column"):
        open_table(place_of(kind, path), create=True)
    with pytest.raises(FileNotFoundError, match="no table"):
        open_table(place_of(kind, tmp_path / "none"), create=False)


def test_files_of_iceberg_that_lie_elsewhere_are_refused(tmp_path: Path) -> None:
    """Who writes a table's list names files that it cannot read; a replay would send their rows."""
    place, path = place_of("iceberg", tmp_path / "lake"), tmp_path / "elsewhere.parquet"
    open_table(place, create=True)
    table = SqlCatalog("ledgermq", uri=f"sqlite:///{place.catalog_file}").load_table(place.table)
    row = {"topic": "secret", "date": date(2026, 1, 1), "queueOffset": 0}
    schema = table.schema().as_arrow()
    columns = [pa.array([row.get(field.name)], field.type) for field in schema]
    pq.write_table(pa.table(columns, schema=schema), path)
    table.add_files([f"file://{path}"])
    with pytest.raises(TableFormatError, match="outside of it"):
        open_table(place, create=False).files()


@pytest.mark.parametrize(
    "name",
    ["../elsewhere/a.parquet", "/lake/../a.parquet", "file:///etc/a.parquet", "s3://b/a.parquet"],
)
def test_files_of_delta_that_lie_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    place = place_of("delta", tmp_path / "lake")
    file = TableFile(name, 1, 0, 1, "secret", date(2026, 1, 1), {})
    open_table(place, create=True).add("writer", 0, [file])
    with pytest.raises(TableFormatError, match="outside of it"):
        open_table(place, create=False).files()


def test_a_delta_table_whose_rows_are_marked_as_deleted_is_refused(tmp_path: Path) -> None:
    place = place_of("delta", tmp_path / "lake")
    open_table(place, create=True)
    DeltaTable(str(tmp_path / "lake")).alter.set_table_properties(
        {"delta.enableDeletionVectors": "true"}
    )
    with pytest.raises(TableFormatError, match="deletionVectors"):
        open_table(place, create=False).files()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--table", "a.b"], "with --format iceberg only"),
        (["--format", "delta", "--catalog", "c"], "with --format iceberg only"),
        (["--format", "iceberg", "--table", "a"], "NAMESPACE.NAME"),
        (["--format", "iceberg", "--catalog", "c", "--catalog-file", "f"], "without --catalog"),
        (["--format", "delta", "--add-property", "a-b"], "letters, digits and _"),
        (["--format", "delta", "--add-property", "a", "--add-property", "A"], "capitals"),
        (["--checkpoint", "x"], "with a table only"),
        (["--add-property", "x"], "with a table only"),
        (["--format", "delta", "--checkpoint", "lake/inside"], "beside the table"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    words: list[str],
    reason: str,
    spark: Any,
    cluster: UpCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=re.escape(reason)):
        run(archive, spark, cluster, "-t", "T", "--path", "lake", *words)


@pytest.mark.parametrize(
    "text",
    [
        "/lake/a%20b",
        "a?b",
        "file:///a#b",
        "hdfs://n/x",
        "s3a://b",
        "s3a://b/../x",
        "s3://b/x",
        "http://h/x",
    ],
)
def test_places_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="s3a://BUCKET/PREFIX"):
        Storage("--path", text, StoreKeys())
