"""Two drivers with one checkpoint: one of them ends with the cause, and each row is there once."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from ledgermq.spark.jobs import archive, archive_table
from ledgermq.spark.tables import TablePlace, open_table
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.test_jobs import contents, run
from tests.spark.test_tables import read_by_others, rows_of
from tests.spark.topics import send_numbered

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_who_comes_late_ends_with_the_cause_and_doubles_nothing(
    kind: str, spark: Any, cluster: UpCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other driver has run the second batch, too, and its checkpoint says so first."""
    path, topic = tmp_path / "lake", f"TwoDrivers-{kind}"
    commits = tmp_path / "lake_checkpoint" / "commits"

    def open_it(place: TablePlace, *, create: bool) -> Any:
        table: Any = open_table(place, create=create)
        add = table.add

        def add_after_the_other(writer: str, batch: int, files: Any) -> bool:
            if batch == 1:
                other = open_table(place, create=False)
                assert other.add(writer, batch, files)
                shutil.copy(commits / "0", commits / "1")
            return bool(add(writer, batch, files))

        table.add = add_after_the_other
        return table

    send_numbered(cluster.name_server, topic, 60)
    words = ("-t", topic, "--path", path, "--format", kind, "--rows-per-batch", 20)
    with (
        monkeypatch.context() as patch,
        pytest.raises(PySparkException, match="CONCURRENT_STREAM_LOG_UPDATE"),
    ):
        patch.setattr(archive_table, "open_table", open_it)
        run(archive, spark, cluster, *words)
    assert read_by_others(kind, path).num_rows == 40
    run(archive, spark, cluster, *words)
    sent = direct.read_rows({"nameServer": cluster.name_server, "topic": topic})
    assert contents(rows_of(read_by_others(kind, path))) == contents(sent)
