"""Copies of logs in an object store are audited like stores on a disk, but for the queues."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.spark.errors import OptionError
from ledgermq.spark.jobs import audit
from ledgermq.spark.tables.storage import StoreKeys
from tests.spark.log_files import write_ledger
from tests.spark.object_store import BUCKET, object_store
from tests.spark.planted import COUNT, DEFECTS, RECORDS, InThisProcess
from tests.spark.test_segments_in_a_store import put, session_with

REPLICAS = ("n0", "n1", "n2")
OF_QUEUES = ("hole in a queue", "wrong unit", "queue file missing")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreKeys]:
    with object_store(tmp_path_factory.mktemp("store")) as found:
        yield found


def session_in_this_process(keys: StoreKeys) -> Any:
    """Tasks run here; settings are those of a session that was given keys."""
    context: Any = InThisProcess()
    context._jsc = session_with(keys).sparkContext._jsc
    return SimpleNamespace(sparkContext=context)


def run(session: Any, *words: object) -> int:
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    small = ["--queue-file-bytes", "400", "--index-slots", "10", "--index-entries", "500"]
    code: int = audit.run(session, parser.parse_args([*map(str, words), *small]))
    return code


def write_replicas(root: Path, *, java: str = "") -> dict[str, list[Path]]:
    """The logs of three members, as copy-store leaves them."""
    return {
        name: write_ledger(root / name, RECORDS, committed_index=COUNT - 1, is_java=name == java)
        for name in REPLICAS
    }


def test_equal_copies_have_no_defect(
    keys: StoreKeys, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a member of Java among them, which has no checksums of entries."""
    write_replicas(tmp_path, java="n2")
    put(keys, tmp_path, "equal")
    session = session_in_this_process(keys)
    assert run(session, f"orders=s3a://{BUCKET}/equal") == 0
    out = capsys.readouterr().out
    for name in REPLICAS:
        assert f"s3a://{BUCKET}/equal/{name}: {COUNT} entries" in out
    assert out.count(" 0 defects") == 3
    assert out.count("a copy of the log alone: there are no queues to compare") == 3
    assert "but not in what entries hold: only in their checksums" in out
    assert run(session, f"s3a://{BUCKET}/equal/n1", tmp_path / "n0") == 0


@pytest.mark.parametrize("name", [name for name in DEFECTS if name not in OF_QUEUES])
def test_a_planted_defect_is_found_and_named(
    keys: StoreKeys, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    plant, words = DEFECTS[name]
    files = write_replicas(tmp_path)
    plant(files["n1"])
    place = f"planted/{name.replace(' ', '-')}"
    put(keys, tmp_path, place)
    assert run(session_in_this_process(keys), f"s3a://{BUCKET}/{place}") == 1
    out = capsys.readouterr().out
    text = "\n".join(line for line in out.splitlines() if line.startswith("  defect: "))
    assert re.search(words, text), text
    assert "/n1" in text and "/n2" not in text


def test_queues_made_of_a_copy_are_those_made_of_the_store(keys: StoreKeys, tmp_path: Path) -> None:
    write_replicas(tmp_path / "stores")
    put(keys, tmp_path / "stores", "made")
    session = session_in_this_process(keys)
    for root, target in ((f"s3a://{BUCKET}/made", "a"), (tmp_path / "stores", "b")):
        assert run(session, f"{root}/n0", "--rebuild", tmp_path / target) == 0

    def content(target: str) -> dict[Path, bytes]:
        queues = tmp_path / target / "n0" / "consumequeue"
        files = [path for path in queues.rglob("*") if path.is_file()]
        return {path.relative_to(tmp_path / target): path.read_bytes() for path in files}

    assert content("a") == content("b") != {}


def test_tasks_of_spark_reach_the_store_with_the_keys_of_the_session(
    keys: StoreKeys, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write_replicas(tmp_path)
    DEFECTS["flipped bit in a body"][0](files["n0"])
    put(keys, tmp_path, "tasks")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    settings = session_with(keys).sparkContext._jsc.hadoopConfiguration()
    for name, value in settings.items():
        hadoop.set(name, value)
    try:
        assert run(spark, f"s3a://{BUCKET}/tasks") == 1
    finally:
        for name in settings:
            hadoop.unset(name)
    assert re.search("  defect: s3a://.*/tasks/n0/.*crc", capsys.readouterr().out)


def test_a_place_without_logs_is_refused(keys: StoreKeys) -> None:
    with pytest.raises(OptionError, match="stores with dledger-<id>/data, or copies with data"):
        run(session_in_this_process(keys), f"s3a://{BUCKET}/nothing")
