"""Stores of a stock broker: opened, served and converted, plain to ledger and back to plain.

Java, plain       takes 100,000 messages, is killed
LedgerMQ, plain   opens the directory with Java's own file, serves every message, stops
store convert     to a ledger
Java, DLedger     opens it, has every message, takes 100,000 more, is killed
LedgerMQ, ledger  opens it as the member, serves every message, stops
store convert     to a plain store
Java, plain       opens it, has every message
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from ledgermq.client import Message, blocking
from ledgermq.client.errors import ClientError
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.record import decode_record
from tests.e2e.wire_client import WireClient
from tests.processes import LEDGERMQ, LOOPBACK, LiveProgram
from tests.waiting import wait_until

from .conftest import Tell
from .stock_broker import JavaCluster, JavaClusterPlan

TOPIC = "Converted"
MESSAGES = 100_000
_BATCH = 200
_BODY = b"of a message that has to be found again " * 5
_READY_S = 90.0
_CONVERT_S = 300.0

# Body by queue and queue offset.
Sent = dict[tuple[int, int], bytes]


def send(namesrv: str, sent: Sent) -> None:
    """Sends 100,000 messages in batches, and notes where each has gone."""
    with blocking.Producer(namesrv, "converters") as producer:
        wait_until(lambda: has_sent(producer, sent), what="the topic", deadline_s=_READY_S)
        base = len(sent)
        for first in range(0, MESSAGES, _BATCH * 20):
            batches = [
                [Message(TOPIC, b"%d " % number + _BODY, keys=f"k{number}") for number in numbers]
                for start in range(first, min(first + _BATCH * 20, MESSAGES), _BATCH)
                for numbers in [range(base + start, base + start + _BATCH)]
            ]
            futures = [producer.submit_batch(batch) for batch in batches]
            for batch, future in zip(batches, futures, strict=True):
                result = future.result(60)
                for at, message in enumerate(batch):
                    sent[result.queue.queue_id, result.queue_offset + at] = message.body


def send_one(namesrv: str, sent: Sent) -> None:
    """Sends one message."""
    with blocking.Producer(namesrv, "converters") as producer:
        wait_until(lambda: has_sent(producer, sent), what="a send", deadline_s=_READY_S)


def has_sent(producer: blocking.Producer, sent: Sent) -> bool:
    """Sends a first message, once the broker has told its name server of the topic."""
    try:
        result = producer.send(Message(TOPIC, b"first"))
    except ClientError:
        return False
    sent[result.queue.queue_id, result.queue_offset] = b"first"
    return True


def check(address: str, sent: Sent) -> None:
    """Reads all queues at a broker: every message is at its queue offset, and nothing else is."""
    with WireClient(address, timeout_s=60.0) as client:
        found = {
            (queue_id, record.queue_offset): record.body
            for queue_id in {queue_id for queue_id, _ in sent}
            for record in client.read_queue(TOPIC, queue_id)
        }
        assert len(found) == len(sent)
        assert found == sent
        number = len(sent) - 20
        fields = {
            "topic": TOPIC, "key": f"k{number}", "maxNum": "32", "beginTimestamp": "0",
            "endTimestamp": str(1 << 60),
        }  # fmt: skip
        answer = client.ask(RequestCode.QUERY_MESSAGE.value, fields)
        assert answer.code == 0, answer.remark
        assert decode_record(answer.body).body.split()[0] == b"%d" % number


def serve(cluster: JavaCluster, sent: Sent, **settings: str) -> None:
    """Opens the store of a stock broker with that broker's own file, and stops cleanly."""
    config = cluster.directory / "broker-0.conf"
    words = ["broker", "--json", "-c", str(config), "namesrvAddr=", *pairs(settings)]
    with LiveProgram(words, cluster.directory / "ledgermq.log") as program:
        check(program.wait_until_serving(_READY_S).address, sent)
        assert program.stop() == 0


def pairs(settings: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def address_of(cluster: JavaCluster) -> str:
    return f"{LOOPBACK}:{cluster.broker_ports[0]}"


def convert(source: JavaCluster, target: Path, kind: str) -> dict[str, object]:
    """Runs the command; returns its report."""
    words = [
        *LEDGERMQ, "store", "convert", str(source.directory / "store-0"), str(target),
        "--to", kind, "--json", "-c", str(source.directory / "broker-0.conf"),
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=_CONVERT_S)
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


@pytest.mark.timeout(600)
def test_stock_stores_become_ledgers_and_plain_again(tmp_path: Path, tell: Tell) -> None:
    begun_s = time.monotonic()
    sent: Sent = {}
    folders = [tmp_path / name for name in ("plain", "ledger", "again")]
    for folder in folders:
        folder.mkdir()
    with JavaCluster(folders[0], JavaClusterPlan()) as plain:
        send(plain.namesrv, sent)
    serve(plain, sent)
    to_ledger = convert(plain, folders[1] / "store-0", "ledger")
    mixed_sent = dict(sent)
    with JavaCluster(folders[0], JavaClusterPlan(dledger_members=1)) as mixed:
        check(address_of(mixed), mixed_sent)
        send_one(mixed.namesrv, mixed_sent)
    serve(mixed, mixed_sent)
    with JavaCluster(folders[1], JavaClusterPlan(dledger_members=1)) as ledger:
        check(address_of(ledger), sent)
        send(ledger.namesrv, sent)
    serve(ledger, sent)
    to_plain = convert(ledger, folders[2] / "store-0", "plain")
    with JavaCluster(folders[2], JavaClusterPlan()) as again:
        check(address_of(again), sent)
    assert len(sent) >= 2 * MESSAGES
    tell(
        "\n".join(
            f"store convert {report['from']} -> {report['to']}: {report['records']} records,"
            f" {report['size_bytes']} bytes in {report['seconds']} s"
            for report in (to_ledger, to_plain)
        )
        + f"\nwith Java before, between and behind: {time.monotonic() - begun_s:.0f} s"
    )
    for folder in folders:
        shutil.rmtree(folder / "store-0")
