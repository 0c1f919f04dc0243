"""Jobs on a cluster of Spark: other hosts, other working directories, the package by an archive."""

import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.log_files import make_record, write_ledger
from tests.spark.standalone import (
    BLIND_WORKER,
    WORKERS,
    SparkCluster,
    why_no_cluster,
    why_no_namespaces,
)
from tests.spark.topics import send_numbered

DRIVER = Path(__file__).with_name("cluster_driver.py")
# Many Java machines start on the cores of one machine.
pytestmark = pytest.mark.timeout(900)
COUNT = 60


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers."""
    missing = why_no_cluster()
    if missing:
        pytest.skip(missing)
    with SparkCluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="module")
def results(
    workers: SparkCluster, cluster: UpCluster, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What became of all jobs, in one application: to start one takes longest."""
    here = tmp_path_factory.mktemp("driver")
    records = [make_record("Orders", n) for n in range(100)]
    for name in ("n0", "n1"):
        write_ledger(here / name / f"dledger-{name}", records, committed_index=99)
    shutil.copytree(here / "n0", workers.hidden / "n0")
    send_numbered(cluster.name_server, "OnCluster", COUNT)
    name_server = ("-n", cluster.name_server)
    topic = (*name_server, "-t", "OnCluster")
    steps = [
        ("audit", "n0", "./n1/dledger-n1", "--rebuild", "anew"),
        ("audit", str(workers.hidden / "n0")),
        ("archive", *topic, "--path", "made", "--rows-per-batch", "40", "--compact-mib", "0"),
        ("archive", *topic, "--path", str(workers.hidden / "made")),
        ("replay", *name_server, "--path", f"file:{here}/made", "-t", "FromCluster"),
    ]
    (here / "steps.json").write_text(json.dumps(steps))
    words = ("steps.json", "results.json")
    with workers.submit(DRIVER, *words, folder=here, log=here / "driver.log") as driver:
        code = driver.wait(600)
        assert code == 0, driver.log_text()[-4000:]
    return [json.loads(line) for line in (here / "results.json").read_text().splitlines()]


def test_tasks_ran_on_each_worker_in_its_own_folder(
    results: list[dict[str, Any]], workers: SparkCluster
) -> None:
    places = results[0]["hosts"]
    folders = {Path(folder).relative_to(workers.folder).parts[0] for _, folder in places}
    assert folders == set(WORKERS)
    names = set(WORKERS) if workers.are_apart else {socket.gethostname()}
    assert {name for name, _ in places} == names


def test_audit_takes_paths_as_the_driver_means_them(results: list[dict[str, Any]]) -> None:
    audit = results[1]
    assert (audit["code"], audit["error"]) == (0, "")
    assert audit["out"].count("0 defects") == 2
    assert audit["out"].count("100 entries") == 2
    made = [Path(folder) for folder in re.findall(r"wrote 100 units .* to (.*)", audit["out"])]
    assert [folder.name for folder in made] == ["dledger-n0", "dledger-n1"]
    assert all((folder / "consumequeue" / "Orders").is_dir() for folder in made)


@pytest.mark.skipif(bool(why_no_namespaces()), reason=why_no_namespaces())
@pytest.mark.parametrize("number", [2, 4], ids=["audit", "archive"])
def test_what_one_worker_does_not_see_is_refused_by_host_and_path(
    results: list[dict[str, Any]], workers: SparkCluster, number: int
) -> None:
    result = results[number]
    assert result["code"] is None
    words = (
        f"allowed: a path that every worker sees; it is not there for the worker on {BLIND_WORKER}"
    )
    assert words in result["error"]
    assert f"'{workers.hidden}/" in result["error"]


def test_an_archive_made_and_replayed_there_has_each_message_once(
    results: list[dict[str, Any]], cluster: UpCluster
) -> None:
    for result in (results[3], results[5]):
        assert (result["code"], result["error"]) == (0, ""), result
    assert "archived 2 new batches" in results[3]["out"]
    assert f"replayed {COUNT} messages" in results[5]["out"]
    options = {"nameServer": cluster.name_server, "topic": "FromCluster"}
    bodies = [bytes(row["body"]) for row in direct.read_written(options)]
    assert sorted(bodies) == sorted(f"body {number}".encode() for number in range(COUNT))
