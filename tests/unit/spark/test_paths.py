"""Paths that travel to tasks are absolute, and a job begins where all its workers see them only."""

import argparse
import os
import pickle
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ledgermq.spark.access import Access
from ledgermq.spark.errors import OptionError, PathNotSeenError
from ledgermq.spark.jobs.cluster_arguments import add_cluster_arguments, cluster_of
from ledgermq.spark.options import read_options, write_options
from ledgermq.spark.paths import check_seen, check_shared, file_size, local_path, spark_path
from ledgermq.spark.segment_audit import piece_checksums
from ledgermq.spark.segment_plan import SegmentRange, find_log, find_members, plan_segments
from ledgermq.spark.segment_source import SegmentsDataSource
from ledgermq.spark.segment_walk import read_entries, read_segment
from ledgermq.spark.tables.storage import Storage, StoreKeys
from tests.certificate_files import FOLDER, write_tls_file
from tests.spark.log_files import make_record, write_ledger, write_plain

RECORDS = [make_record("Orders", n) for n in range(100)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: stores lie in it."""
    write_ledger(tmp_path / "n0" / "dledger-n0", RECORDS, committed_index=99)
    write_plain(tmp_path / "plain", RECORDS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n0", "{here}/n0"),
        ("./n0/", "{here}/n0"),
        ("../x/n0", "{above}/x/n0"),
        ("", "{here}"),
        ("/data/n0", "/data/n0"),
        ("file:///data/n0", "/data/n0"),
        ("file:/data/n0", "/data/n0"),
        ("FILE:///data/n0", "/data/n0"),
        ("file://n0", "{here}/n0"),
        ("~/n0", "{home}/n0"),
        ("with space/[1]", "{here}/with space/[1]"),
        ("a:b", "{here}/a:b"),
    ],
)
def test_a_path_is_made_absolute(here: Path, text: str, expected: str) -> None:
    names = {"here": here, "above": here.parent, "home": Path.home()}
    assert str(local_path("path", text)) == expected.format(**names)
    assert spark_path(local_path("path", text)) == "file://" + expected.format(**names)


@pytest.mark.parametrize("text", ["hdfs://h:9000/n0", "s3a://bucket/n0", "hdfs:/n0"])
def test_other_kinds_of_file_systems_are_refused(text: str) -> None:
    words = f"option --path is '{text}'; allowed: a path in the file system"
    with pytest.raises(OptionError, match=words) as caught:
        local_path("--path", text)
    assert ("Spark's own readers and writers" in str(caught.value)) == text.startswith("hdfs:")
    if text.startswith("hdfs:"):
        with pytest.raises(OptionError, match="Spark's own readers and writers"):
            Storage("TARGET", text, StoreKeys())
    if not text.startswith("s3a:"):
        with pytest.raises(OptionError, match="a path in the file system"):
            find_members(text)
        with pytest.raises(OptionError, match="a path in the file system"):
            find_log(text)


def planned(text: str) -> list[SegmentRange]:
    return plan_segments(find_log(text), reads_open_segment=True)


@pytest.mark.parametrize("text", ["n0", "n0/dledger-n0", "./plain", "plain/commitlog"])
def test_planned_files_are_absolute(here: Path, text: str) -> None:
    parts = planned(text)
    assert len(parts) > 3
    for part in parts:
        assert part.path.startswith(f"{here}/")
        assert part.next_path.startswith(f"{here}/") or part is parts[-1]
    members = find_members("n0") + find_members(".") + find_members("n0/dledger-n0")
    assert members == [str(here / "n0" / "dledger-n0")] * 3


def test_partitions_of_the_source_are_absolute(here: Path) -> None:
    source = SegmentsDataSource({"path": "n0, plain"})
    parts = source.reader(source.schema()).partitions()
    assert {Path(part.path).is_absolute() for part in parts} == {True}
    assert {Path(part.path).relative_to(here).parts[0] for part in parts} == {"n0", "plain"}


def test_what_was_planned_is_read_from_another_directory(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = pickle.loads(pickle.dumps(planned("n0")))
    monkeypatch.chdir("/")
    assert sum(len(rows) for part in parts for rows in read_segment(part, verifies=True)) == 100
    assert sum(len(rows) for part in parts for _, rows in read_entries(part)) == 100
    assert [len(piece_checksums(part.path, 0, 1 << 20)) for part in parts] == [1] * len(parts)


def test_a_file_that_a_task_does_not_see_is_named_with_the_worker(here: Path) -> None:
    (part, *_) = planned("n0")
    Path(part.path).unlink()
    calls: tuple[Callable[[], object], ...] = (
        lambda: list(read_segment(part, verifies=True)),
        lambda: list(read_entries(part)),
        lambda: piece_checksums(part.path, 0, 100),
        lambda: file_size(part.path),
    )
    for call in calls:
        with pytest.raises(PathNotSeenError) as caught:
            call()
        text = str(pickle.loads(pickle.dumps(caught.value)))
        assert text.startswith(f"{part.path} is not there for the worker on {socket.gethostname()}")
        assert f", in {here}: " in text and "mounted under this path on every worker" in text


class Context:
    """What is needed of a SparkContext; its tasks run here, and may not see what is here."""

    def __init__(self, master: str, hidden: Path | None = None) -> None:
        self.master = master
        self.defaultParallelism = 3
        self.task_count = 0
        self._hidden = hidden
        self._found: list[Any] = []

    def parallelize(self, items: Sequence[int], count: int) -> "Context":
        self.task_count += count
        self._found = list(items)
        return self

    def map(self, function: Callable[[int], Any]) -> "Context":
        aside = None if self._hidden is None else self._hidden.with_name("aside")
        if self._hidden is not None and aside is not None:
            self._hidden.rename(aside)
        try:
            self._found = [function(item) for item in self._found]
        finally:
            if self._hidden is not None and aside is not None:
                aside.rename(self._hidden)
        return self

    def collect(self) -> list[Any]:
        return self._found


def test_every_core_of_a_cluster_is_asked(here: Path) -> None:
    context = Context("spark://h:7077")
    check_seen(context, "DIR", [here / "n0", here / "plain"])
    assert context.task_count == 6
    blind = Context("local-cluster[2,1,512]", hidden=here / "n0")
    with pytest.raises(OptionError, match=f"DIR is '{here}/n0'; .* not there for the worker on"):
        check_seen(blind, "DIR", [here / "plain", here / "n0"])


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_workers_beside_the_driver_are_not_asked(here: Path, master: str) -> None:
    context = Context(master, hidden=here / "n0")
    check_seen(context, "DIR", [here / "n0"])
    assert context.task_count == 0


def test_a_directory_of_the_same_name_on_another_machine_is_not_the_same(here: Path) -> None:
    """Each worker would write its part of an archive for itself."""
    target = here / "new" / "archive"
    check_shared(Context("spark://h:7077"), "--path", target)
    assert list(target.iterdir()) == []

    class OwnDisk(Context):
        def map(self, function: Callable[[int], Any]) -> Context:
            (mark,) = target.iterdir()
            mark.unlink()
            try:
                return super().map(function)
            finally:
                mark.touch()

    with pytest.raises(OptionError, match=f"--path is '{target}/_seen-by-"):
        check_shared(OwnDisk("spark://h:7077"), "--path", target)
    assert list(target.iterdir()) == []


def test_tls_files_are_those_of_the_driver(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that a relative path in the file names."""
    (here / "keys").symlink_to(FOLDER)
    write_tls_file(here / "tls.properties", tls_client_trustCertPath="keys/authority.pem")
    parser = argparse.ArgumentParser()
    add_cluster_arguments(parser)
    given = {"nameServer": "h:1", "topic": "T", "tls": "true", "tlsConfigFile": "tls.properties"}
    made: list[Access] = [
        cluster_of(parser.parse_args(["-n", "h:1", "--tls-config", "tls.properties"])).access,
        read_options(given, is_stream=False).access,
        read_options(given, is_stream=True).access,
        write_options(given).access,
    ]
    monkeypatch.chdir("/")
    for access in pickle.loads(pickle.dumps(made)):
        assert access.tls_file == f"{here}/tls.properties"
        assert access.tls_context() is not None
    (here / "tls.properties").unlink()
    with pytest.raises(OptionError, match="a usable file on every worker: .*No such file"):
        made[0].tls_context()
    assert os.getcwd() == "/"
