"""The jobs of the pipeline in a real session, started again as after a crash."""

import argparse
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Message
from ledgermq.spark.errors import OptionError
from ledgermq.spark.jobs import archive, archive_files, dead_letters, replay, trace, traffic
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.session import patiently
from tests.spark.topics import send_all, send_numbered

pytestmark = pytest.mark.timeout(900)


def run(job: Any, spark: Any, cluster: UpCluster, *words: object) -> None:
    """Runs a job as the command does."""
    parser = argparse.ArgumentParser()
    job.add_arguments(parser)
    options = parser.parse_args(["-n", cluster.name_server, *map(str, words)])
    assert patiently(lambda: job.run(spark, options)) == 0


def contents(rows: list[dict[str, Any]]) -> Counter[tuple[object, ...]]:
    """What of messages has to be the same after a replay, each with its number of times."""
    return Counter(
        (bytes(row["body"]), row["tags"], row["keys"], dict(row["properties"])["number"])
        for row in rows
    )


def archived(spark: Any, path: Path) -> list[dict[str, Any]]:
    return [row.asDict() for row in archive_files.read_archive(spark, str(path)).collect()]


def assert_same_order(
    sent: list[dict[str, Any]], replayed: list[dict[str, Any]], queue_id: int
) -> None:
    """What was in one queue came into one queue, one after the other."""
    before = {row["body"]: row["queueOffset"] for row in sent if row["queueId"] == queue_id}
    after = [row for row in replayed if row["body"] in before]
    after.sort(key=lambda row: (row["queueId"], row["queueOffset"]))
    assert len({row["queueId"] for row in after}) == 1
    offsets = [before[row["body"]] for row in after]
    assert offsets == sorted(offsets) and len(offsets) > 10


def test_archive_and_replay_keep_each_message_once(
    spark: Any, cluster: UpCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "archive [of] {all,topics}*?"
    words = ("-t", "JobsIn", "--path", path, "--rows-per-batch", 40)
    send_numbered(cluster.name_server, "JobsIn", 60)
    run(archive, spark, cluster, *words, "--compact-mib", 0)
    send_numbered(cluster.name_server, "JobsIn", 30, start=60)
    run(archive, spark, cluster, *words, "--compact-mib", 0)
    sent = direct.read_rows({"nameServer": cluster.name_server, "topic": "JobsIn"})
    assert len(archive_files.batches(path)) == 3
    assert contents(archived(spark, path)) == contents(sent)
    (directory,) = {file.parent.parent.name for file in path.glob("batch=*/*/*/*.parquet")}
    assert directory == "topic=JobsIn"

    # A crash between the commit of a compaction and the end of its swap.
    before = tmp_path / "before"
    shutil.copytree(path, before)
    assert archive_files.compact(spark, path, 1 << 20) == 3
    (whole,) = archive_files.batches(path)
    assert (whole.first, whole.last) == (0, 2)
    shutil.copytree(whole.path, before / "_compacting" / whole.path.name)
    shutil.rmtree(archive_files.batch_path(before, 1))
    for root in (path, before):
        assert contents(archived(spark, root)) == contents(sent)
        assert len(archive_files.batches(root)) == 1

    # A replay that was stopped after a part, started again, and once more.
    words = ("--path", path, "-t", "JobsOut")
    run(replay, spark, cluster, *words, "--where", "queueId < 2")
    part = direct.read_written({"nameServer": cluster.name_server, "topic": "JobsOut"})
    assert 0 < len(part) < len(sent)
    run(replay, spark, cluster, *words, "--keep-order")
    run(replay, spark, cluster, *words)
    replayed = direct.read_written({"nameServer": cluster.name_server, "topic": "JobsOut"})
    assert contents(replayed) == contents(sent)
    in_queues = {row["queueId"] for row in sent if row["queueId"] >= 2}
    assert in_queues
    for queue_id in in_queues:
        assert_same_order(sent, replayed, queue_id)
    assert f"replayed {len(sent) - len(part)} messages" in capsys.readouterr().out


def test_relative_paths_are_those_of_the_driver(
    spark: Any, cluster: UpCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers, and Spark's own readers and writers, have another working directory."""
    monkeypatch.chdir(tmp_path)
    [elsewhere] = spark.sparkContext.parallelize([0], 1).map(lambda _: os.getcwd()).collect()
    assert elsewhere != str(tmp_path)
    send_numbered(cluster.name_server, "FromHere", 20)
    run(archive, spark, cluster, "-t", "FromHere", "--path", "made/archive", "--compact-mib", 1)
    assert len(archive_files.batches(tmp_path / "made" / "archive")) == 1
    assert not (Path(elsewhere) / "made").exists()
    words = ("--path", "made/archive", "-t", "ToThere", "--state", "sent.json")
    run(replay, spark, cluster, *words)
    assert (tmp_path / "sent.json").is_file()
    sent = direct.read_rows({"nameServer": cluster.name_server, "topic": "FromHere"})
    assert contents(archived(spark, Path("made/archive"))) == contents(sent)
    replayed = direct.read_written({"nameServer": cluster.name_server, "topic": "ToThere"})
    assert contents(replayed) == contents(sent)


def test_an_archive_without_its_checkpoint_is_refused(tmp_path: Path) -> None:
    """Its batches would begin at 0 again and replace what is there."""
    (tmp_path / "batch=00000000000000000000").mkdir()
    with pytest.raises(OptionError, match="an archive with its _checkpoint"):
        archive.check_archive(tmp_path)


def test_what_is_no_archive_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no complete batch"):
        archive_files.read_archive(spark, str(tmp_path))


def test_dead_letters_are_told_and_sent_again_once(
    spark: Any, cluster: UpCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a broker buries them: the origin stands in a property."""
    letters = [
        Message(
            "%DLQ%billing",
            f"body {number}".encode(),
            tags="AB"[number % 2],
            keys=f"key-{number}",
            properties={"RETRY_TOPIC": "DeadOrigin", "number": str(number)},
        )
        for number in range(10)
    ]
    send_all(cluster.name_server, letters)
    words = ("-g", "billing", "--resend", "--state", tmp_path / "state.json", "--json")
    run(dead_letters, spark, cluster, *words, "--where", "tags = 'A'")
    report = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (report["group"], report["origin"], report["messages"]) == ("billing", "DeadOrigin", 5)
    run(dead_letters, spark, cluster, *words)
    assert "sent 5 messages again" in capsys.readouterr().out
    rows = direct.read_written({"nameServer": cluster.name_server, "topic": "DeadOrigin"})
    assert sorted(dict(row["properties"])["number"] for row in rows) == list("0123456789")
    run(dead_letters, spark, cluster, "-g", "nobody")
    assert "there are no dead letters" in capsys.readouterr().out


def test_traffic_counts_what_is_there(
    spark: Any, cluster: UpCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    send_numbered(cluster.name_server, "Traffic", 30)
    run(traffic, spark, cluster, "-t", "Traffic", "-g", "nobody", "--top", 1, "--json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_report: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_report.setdefault(line["report"], []).append(line)
    (topic,) = by_report["topics"]
    sizes = [len(f"body {number}") for number in range(30)]
    assert (topic["messages"], topic["bytes"]) == (30, sum(sizes))
    assert topic["max_bytes"] == max(sizes)
    (hot,) = by_report["hot keys"]
    assert (hot["key"], hot["messages"]) == ("all", 30)
    assert sum(line["lag"] for line in by_report["lag of nobody"]) == 30


def test_traces_of_clients_are_read(
    spark: Any, cluster: UpCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(*fields: object) -> str:
        return "\x01".join(map(str, fields)) + "\x02"

    sends = "".join(
        record(
            "Pub", 1000 + n, "R", "producers", "Orders", f"id{n}", "A", f"k{n}", "h:1", 9,
            n, 0, f"off{n}", "false" if n == 3 else "true", "c",
        )
        for n in range(10)
    )  # fmt: skip
    came = record("SubBefore", 2000, "R", "billing", "q1", "id3", 0, "k3", "c") + record(
        "SubAfter", "q1", "id3", 77, "true", "k3", 0, 2077, "billing"
    )
    send_all(cluster.name_server, [Message("Traces", text.encode()) for text in (sends, came)])
    run(trace, spark, cluster, "-t", "Traces", "--json")
    send, delivery = map(json.loads, capsys.readouterr().out.splitlines())
    assert (send["topic"], send["count"], send["failed"], send["max_ms"]) == ("Orders", 10, 1, 9)
    assert (delivery["group"], delivery["count"], delivery["p99_ms"]) == ("billing", 1, 77)
    run(trace, spark, cluster, "-t", "Traces", "--message", "id3")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert "sent" in lines[2] and "consumed" in lines[3]
