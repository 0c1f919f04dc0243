"""The audit finds every planted defect, and makes the queues that the broker made."""

import argparse
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.up import SMALL_STORE
from ledgermq.commitlog.layout import QUEUE_UNIT_BYTES
from ledgermq.spark.errors import OptionError
from ledgermq.spark.jobs import audit
from tests.e2e.up_cluster import UpCluster
from tests.spark.log_files import SEGMENT_BYTES, flip, make_record, write_ledger
from tests.spark.planted import COUNT, DEFECTS, RECORDS, InThisProcess, wipe
from tests.spark.topics import send_numbered
from tests.waiting import wait_until

REPLICAS = ("n0", "n1", "n2")


def run(*words: object) -> int:
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    small = ["--queue-file-bytes", "400", "--index-slots", "10", "--index-entries", "500"]
    code: int = audit.run(InThisProcess(), parser.parse_args([*map(str, words), *small]))
    return code


@pytest.fixture
def group(tmp_path: Path) -> dict[str, list[Path]]:
    """Three equal replicas with their queues; the files of each log."""
    files = {}
    for name in REPLICAS:
        store = tmp_path / name / f"dledger-{name}"
        files[name] = write_ledger(store, RECORDS, committed_index=COUNT - 1)
    assert run(tmp_path / "n0", "--rebuild", tmp_path / "made") == 0
    for name in REPLICAS:
        shutil.copytree(
            tmp_path / "made" / "dledger-n0" / "consumequeue", queues_of(tmp_path, name)
        )
    return files


def queues_of(root: Path, name: str) -> Path:
    return root / name / "consumequeue"


def test_equal_replicas_have_no_defect(
    group: dict[str, list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(f"{COUNT} entries" in line and "0 defects" in line for line in lines)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found_and_named(
    group: dict[str, list[Path]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    plant, words = DEFECTS[name]
    plant(group["n1"])
    capsys.readouterr()
    assert run(tmp_path) == 1
    out = capsys.readouterr().out
    defects = [line for line in out.splitlines() if line.startswith("  defect: ")]
    assert defects
    text = "\n".join(defects)
    assert re.search(words, text), text
    assert "n1" in text and "/n2" not in text


def test_defects_of_several_replicas_are_found_in_tasks_of_spark(
    group: dict[str, list[Path]], spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the command runs it; each file is a task, whatever the others find."""
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    options = parser.parse_args([str(tmp_path)])
    capsys.readouterr()
    assert audit.run(spark, options) == 0
    planted = {"n0": "hole in a queue", "n1": "broken chain", "n2": "flipped bit in a head"}
    for name, defect in planted.items():
        DEFECTS[defect][0](group[name])
    assert audit.run(spark, options) == 1
    out = capsys.readouterr().out
    assert out.count("0 defects") == 3
    for name, defect in planted.items():
        pattern = f"  defect: .*/{name}/.*({DEFECTS[defect][1]})"
        assert re.search(pattern, out), (pattern, out)


def test_relative_paths_are_those_of_the_driver(
    group: dict[str, list[Path]],
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tasks run in processes with another working directory, as on a cluster."""
    monkeypatch.chdir(tmp_path)
    [elsewhere] = spark.sparkContext.parallelize([0], 1).map(lambda _: os.getcwd()).collect()
    assert elsewhere != str(tmp_path)
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    words = ["n0", "./n1/dledger-n1", f"file://{tmp_path}/n2", "--rebuild", "anew"]
    capsys.readouterr()
    assert audit.run(spark, parser.parse_args(words)) == 0
    assert capsys.readouterr().out.count("0 defects") == 3
    assert (tmp_path / "anew" / "dledger-n2" / "consumequeue" / "Orders").is_dir()


def test_a_store_that_workers_do_not_see_is_refused_before_anything_is_read(
    group: dict[str, list[Path]], tmp_path: Path
) -> None:
    with pytest.raises(OptionError) as caught:
        run_elsewhere(tmp_path, [tmp_path / "n0"])
    words = f"DIR is '{tmp_path}/n0/dledger-n0'; allowed: a path that every worker sees; it is not"
    assert words in str(caught.value)
    assert f"the worker on {socket.gethostname()}, in {os.getcwd()}" in str(caught.value)


def test_queues_that_workers_do_not_see_are_not_taken_for_missing(
    group: dict[str, list[Path]], tmp_path: Path
) -> None:
    queues = queues_of(tmp_path, "n1")
    with pytest.raises(OptionError, match=re.escape(f"DIR is '{queues}'; allowed: a path that")):
        run_elsewhere(queues, [tmp_path])


def run_elsewhere(unseen: Path, directories: list[Path]) -> None:
    """Audits with a worker that does not see a directory."""

    class Elsewhere(InThisProcess):
        master = "spark://elsewhere:7077"
        defaultParallelism = 1

        def map(self, function: Callable[[Any], Any]) -> InThisProcess:
            hidden = unseen.with_name(unseen.name + "-hidden")
            unseen.rename(hidden)
            try:
                return super().map(function)
            finally:
                hidden.rename(unseen)

    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    audit.run(Elsewhere(), parser.parse_args([*map(str, directories)]))


def test_a_delayed_message_may_have_had_any_delay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        make_record("SCHEDULE_TOPIC_XXXX", n, properties=f"TAGS\x01A\x02DELAY\x01{n % 4 + 1}\x02")
        for n in range(COUNT)
    ]
    write_ledger(tmp_path / "n0" / "dledger-n0", records, committed_index=COUNT - 1)
    assert run(tmp_path / "n0", "--rebuild", tmp_path / "made") == 0
    queues = tmp_path / "n0" / "consumequeue"
    shutil.copytree(tmp_path / "made" / "dledger-n0" / "consumequeue", queues)
    file = sorted((queues / "SCHEDULE_TOPIC_XXXX" / "2").iterdir())[0]
    stored_ms, unit_at = 1_700_000_000_100 + 2 + 4 * 5, QUEUE_UNIT_BYTES * 5
    data = file.read_bytes()
    assert int.from_bytes(data[unit_at + 12 : unit_at + 20], "big") == stored_ms + 10_000
    for delay_ms, code in ((0, 0), (7_000, 0), (10**9, 0), (-1, 1), (-stored_ms, 1)):
        other = (stored_ms + delay_ms).to_bytes(8, "big")
        file.write_bytes(data[: unit_at + 12] + other + data[unit_at + 20 :])
        capsys.readouterr()
        assert run(tmp_path / "n0") == code, delay_ms
        assert ("offset 5 says" in capsys.readouterr().out) == bool(code)
    flip(file, unit_at + 7)
    assert run(tmp_path / "n0") == 1


def contents(directory: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_queues_and_key_index_are_those_of_the_broker(cluster: UpCluster, tmp_path: Path) -> None:
    """Byte by byte; files of the key index are named by the time at which they were made.

    But for the slots of the last one: a broker keeps them in memory until it is full or closed.
    """
    send_numbered(cluster.name_server, "AuditLive", 100)
    (store,) = cluster.data.glob("*/dledger-*")
    target = tmp_path / "made"
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    words = ["--index-slots", SMALL_STORE["maxHashSlotNum"]]
    words += ["--index-entries", SMALL_STORE["maxIndexNum"]]
    options = parser.parse_args([str(store), "--rebuild", str(target), *words])

    def is_equal() -> bool:
        shutil.rmtree(target, ignore_errors=True)
        audit.run(InThisProcess(), options)
        made, own = target / store.name, store.parent
        queues, index = contents(own / "consumequeue"), contents(own / "index")
        if Path("AuditLive/3/00000000000000000000") not in queues or len(index) != 1:
            # The broker makes them with its next flush.
            return False
        return contents(made / "consumequeue") == queues and (
            [without_slots(file) for file in contents(made / "index").values()]
            == [without_slots(file) for file in index.values()]
        )

    def without_slots(file: bytes) -> bytes:
        header, slots_end = file[:40], 40 + 4 * int(SMALL_STORE["maxHashSlotNum"])
        return header + file[slots_end:]

    wait_until(is_equal, what="a checkpoint that covers all", deadline_s=60)


def test_a_log_that_goes_on_behind_its_checkpoint_is_no_defect(tmp_path: Path) -> None:
    files = write_ledger(tmp_path / "dledger-a", RECORDS, committed_index=50)
    wipe(files[-1], 0, SEGMENT_BYTES)
    assert run(tmp_path) == 0


def test_units_have_the_size_that_files_are_made_of(tmp_path: Path) -> None:
    write_ledger(tmp_path / "dledger-a", RECORDS, committed_index=COUNT - 1)
    assert run(tmp_path, "--rebuild", tmp_path / "made") == 0
    files = sorted((tmp_path / "made" / "dledger-a" / "consumequeue" / "Orders" / "0").iterdir())
    assert [path.stat().st_size for path in files] == [400] * 2
    assert sum(len(path.read_bytes().rstrip(b"\0")) for path in files) > 24 * QUEUE_UNIT_BYTES - 9
    (index,) = (tmp_path / "made" / "dledger-a" / "index").iterdir()
    assert int.from_bytes(index.read_bytes()[36:40], "big") == COUNT + 1


def test_a_directory_without_stores_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="stores with dledger-<id>/data"):
        run(tmp_path)
    write_ledger(tmp_path / "n0" / "dledger-n0", RECORDS, committed_index=COUNT - 1)
    with pytest.raises(OptionError, match=f"DIR is '{tmp_path}/n1'; allowed: stores"):
        run(tmp_path / "n0", tmp_path / "n1")
    with pytest.raises(OptionError, match="DIR is 'hdfs://h/n0'; allowed: a path in the file sys"):
        run(tmp_path / "n0", "hdfs://h/n0")


def test_sizes_that_cannot_be_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    options = parser.parse_args([str(tmp_path), "--queue-file-bytes", "401"])
    with pytest.raises(OptionError, match="--queue-file-bytes is '401'; allowed: a multiple of 20"):
        audit.run(InThisProcess(), options)
    with pytest.raises(SystemExit):
        parser.parse_args([str(tmp_path), "--index-slots", "0"])
    assert "--index-slots: invalid positive_number value: '0'" in capsys.readouterr().err
