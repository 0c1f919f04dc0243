"""A stream into Parquet whose driver is killed again and again, and its broker's leader, too.

python -m tests.spark.restarts [--kills 5] [--leader-kills 2]

A group of three takes messages all the while. Each driver is killed (SIGKILL, with its workers) in
the midst of its work; the next one goes on from the checkpoint. At the end a last one reads what is
left. Exit code 0: every acknowledged message is a row, from the offset that was told, and no offset
is in the table twice; other rows are only of sends that a leader took with it unanswered, which the
producer then sent again. Takes some minutes; not a part of the suite.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

from ledgermq.client import ClientError, Message, ProducerConfig
from ledgermq.client.blocking import Producer
from ledgermq.spark.jobs.running import make_session
from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until

TOPIC = "Restarts"
ROWS_PER_BATCH = 2000


def drive(name_server: str, folder: Path, *, is_last: bool) -> None:
    """A driver: runs until it is killed, or for the last one until all is read."""
    spark = make_session({"spark.sql.shuffle.partitions": "2", "spark.master": "local[2]"})
    reader = spark.readStream.format("rocketmq").option("nameServer", name_server)
    frame = reader.options(
        topic=TOPIC,
        startingOffsets="earliest",
        columns="queueId,queueOffset,body",
        maxRowsPerTrigger=ROWS_PER_BATCH,
        readTimeoutMs=60_000,
    ).load()
    writer = frame.writeStream.format("parquet").option("path", str(folder / "table"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if is_last:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    table = spark.read.parquet(str(folder / "table"))
    rows = table.selectExpr("queueId", "queueOffset", "cast(body as string)").collect()
    (folder / "rows.json").write_text(json.dumps([list(row) for row in rows]))
    spark.stop()


def start_driver(name_server: str, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Starts one in a process group of its own."""
    command = [sys.executable, "-m", "tests.spark.restarts", "--drive", name_server, str(folder)]
    with open(folder / "driver.log", "ab") as log:
        return subprocess.Popen([*command, *words], stdout=log, stderr=log, start_new_session=True)


class Sender:
    """Sends numbered messages until it is stopped, and keeps what was acknowledged."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._is_over = threading.Event()
        # Queue, offset and body of each acknowledged message.
        self.acked: list[tuple[int, int, str]] = []
        self.unknown: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        with Producer(self._name_server, config=ProducerConfig(timeout_s=60)) as producer:
            while not self._is_over.wait(0.02):
                bodies = [f"message {number + i}" for i in range(20)]
                number += len(bodies)
                sends = [(b, producer.submit(Message(TOPIC, b.encode()))) for b in bodies]
                for body, send in sends:
                    try:
                        result = send.result()
                        self.acked.append((result.queue_id, result.queue_offset, body))
                    except ClientError:
                        self.unknown.append(body)

    def stop(self) -> None:
        """Stops; everything is acknowledged, or known to be unknown."""
        self._is_over.set()
        self._thread.join()


def committed_batches(folder: Path) -> int:
    """How many micro-batches the checkpoint has as done."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def run(kills: int, leader_kills: int, folder: Path) -> int:
    """Runs all and prints the judgment."""
    with UpCluster(folder) as cluster:
        sender = Sender(cluster.name_server)
        wait_until(lambda: sender.acked, what="a first message", deadline_s=60)
        for kill in range(kills):
            before = committed_batches(folder)
            driver = start_driver(cluster.name_server, folder)
            wanted = before + 1 + kill % 3
            wait_until(
                lambda wanted=wanted: committed_batches(folder) >= wanted,
                what=f"{wanted} batches, see {folder}/driver.log",
                deadline_s=240,
            )
            if kill < leader_kills:
                leader = cluster.find_leader()
                if leader is not None:
                    cluster.kill(leader)
                    sys.stdout.write(f"killed the leader {leader['id']}\n")
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            sys.stdout.write(f"killed driver {kill + 1}: {committed_batches(folder)} batches\n")
            sys.stdout.flush()
        sender.stop()
        last = start_driver(cluster.name_server, folder, "--last")
        assert last.wait(600) == 0, (folder / "driver.log").read_text()[-3000:]
    return judge(sender, json.loads((folder / "rows.json").read_text()), committed_batches(folder))


def judge(sender: Sender, rows: list[tuple[int, int, str]], batches: int) -> int:
    """Compares rows with what was sent; returns the exit code."""
    found = Counter((queue_id, offset) for queue_id, offset, _ in rows)
    twice = [place for place, count in found.items() if count > 1]
    table = {tuple(row) for row in rows}
    lost = set(sender.acked) - table
    sent = {body for _, _, body in sender.acked} | set(sender.unknown)
    others = table - set(sender.acked)
    invented = [row for row in others if row[2] not in sent]
    sys.stdout.write(
        f"{len(sender.acked)} acknowledged, {len(sender.unknown)} unknown, {len(rows)} rows in"
        f" {batches} batches: {len(lost)} lost, {len(twice)} twice, {len(invented)} invented;"
        f" {len(others) - len(invented)} stored without an answer, and sent again\n"
    )
    return 1 if lost or twice or invented else 0


def main() -> int:
    """Parses the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--leader-kills", type=int, default=2)
    parser.add_argument("--drive", nargs=2, metavar=("NAME_SERVER", "FOLDER"))
    parser.add_argument("--last", action="store_true")
    options = parser.parse_args()
    if options.drive:
        drive(options.drive[0], Path(options.drive[1]), is_last=options.last)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return run(options.kills, options.leader_kills, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
