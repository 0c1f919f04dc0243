"""Master and slave without a ledger, one of Apache's 4.9.3 and one of ours, each in both places.

A stock producer sends to the master, which answers when its slave has the message (SYNC_MASTER).
The slave's files are byte for byte those of the master. Then the master is killed, and a stock
consumer gets everything from the slave.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.interop import corpus
from tests.interop.conftest import Tell
from tests.interop.corpus import QUEUE_COUNT
from tests.interop.judging import Consuming, Sending, judge, table
from tests.interop.mqadmin import CLUSTER_NAME
from tests.interop.programs import PROGRAMS, consume_command, run, send_command
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan
from tests.processes import LOOPBACK, LiveProgram, name_server
from tests.waiting import wait_until

NAME = "pair"
TOPIC = "Copied"
# Several files, so that their ends are copied, too.
SEGMENT_BYTES = 3 << 20
MESSAGE_COUNT = 600
SEED = 29
# No queue locks without a master: the consumer is not orderly.
CLIENT = dataclasses.replace(
    next(program for program in PROGRAMS if program.name == "java-4.9.3"), orderly=False
)
KEYS = {
    "brokerName": NAME,
    "brokerIP2": LOOPBACK,
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
    "haSendHeartbeatInterval": "1000",
    "maxMessageSize": str(2 << 20),
    "slaveTimeout": "20000",
    "flushDiskType": "ASYNC_FLUSH",
    "defaultTopicQueueNums": str(QUEUE_COUNT),
}
MASTER = {"brokerRole": "SYNC_MASTER", "brokerId": "0"}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
DEADLINE_S = 90.0


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    with name_server(tmp_path) as address:
        yield address


def java_broker(folder: Path, namesrv: str, role: dict[str, str]) -> JavaCluster:
    port = int(namesrv.rpartition(":")[2])
    (folder / "java").mkdir()
    plan = JavaClusterPlan(foreign_namesrv_port=port, broker_keys=KEYS | role)
    return JavaCluster(folder / "java", plan)


class OurBroker:
    """A broker of ours in the pair."""

    def __init__(self, folder: Path, namesrv: str, role: dict[str, str]) -> None:
        port = free_ports(1, spread=(-2, 0, 1))[0]
        self.address = f"{LOOPBACK}:{port}"
        self.store = folder / "ours"
        keys = KEYS | role | {
            "brokerClusterName": CLUSTER_NAME,
            "brokerIP1": LOOPBACK,
            "namesrvAddr": namesrv,
            "enableDLegerCommitLog": "false",
            "listenPort": str(port),
            # Apache's slave asks for topics at this port.
            "vipChannelEnable": "true",
            "storePathRootDir": str(self.store),
            "diskMaxUsedSpaceRatio": "95",
        }  # fmt: skip
        path = folder / "ours.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        self.program = LiveProgram(["broker", "-c", path], folder / "ours.log")


def wait_for_a_slave(address: str) -> None:
    """Waits until the master answers that a slave has what it is sent."""

    def is_copied() -> bool:
        try:
            with WireClient(address, timeout_s=40.0) as client:
                return client.send("Probe", 0, b"probe").code == 0
        except ConnectionError:
            return False

    wait_until(is_copied, what="a slave that follows", deadline_s=DEADLINE_S)


GROUP = {"consumerGroup": "kept", "topic": "Probe", "queueId": "0"}


def commit_and_delay(address: str) -> None:
    """Has the master know an offset of a group, and the delivery of a delayed message."""
    with WireClient(address, timeout_s=40.0) as client:
        fields = GROUP | {"commitOffset": "1"}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET.value, fields).code == 0
        assert client.send("Late", 0, b"late", properties="DELAY\x011").code == 0
        wait_until(
            lambda: len(client.read_queue("Late", 0)) == 1,
            what="the delivery",
            deadline_s=DEADLINE_S,
        )


def knows_offset(address: str) -> bool:
    """Whether a slave answers with the offset of the group."""
    with WireClient(address) as client:
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET.value, GROUP)
    return answer.ext_fields == {"offset": "1"}


def knows_delivery(address: str, store: Path) -> bool:
    """Whether a slave has the progress of the delay level: ours says it, Apache's only keeps it."""
    with WireClient(address) as client:
        told = client.ask(RequestCode.GET_ALL_DELAY_OFFSET.value).body
    path = store / "config" / "delayOffset.json"
    kept = path.read_bytes() if path.exists() else b""
    return any(re.search(rb'"?1"?:1\b', text) is not None for text in (told, kept))


def log_files(store: Path) -> dict[str, bytes]:
    """A commit log by file; files without a record are left out."""
    files = sorted((store / "commitlog").glob("[0-9]*"))
    contents = {path.name: path.read_bytes() for path in files}
    return {name: content for name, content in contents.items() if content.strip(b"\0")}


def knows_topic(store: Path) -> bool:
    path = store / "config" / "topics.json"
    return path.exists() and TOPIC in json.loads(path.read_bytes())["topicConfigTable"]


@dataclasses.dataclass(slots=True, kw_only=True)
class Pair:
    """A running master and a running slave."""

    folder: Path
    namesrv: str
    master_address: str
    slave_address: str
    master_store: Path
    slave_store: Path

    def send(self) -> tuple[Sending, Consuming]:
        """A stock producer sends until the master has confirmed all."""
        wait_for_a_slave(self.master_address)
        commit_and_delay(self.master_address)
        path = self.folder / "sent.corpus"
        expected = corpus.write(path, CLIENT.name, MESSAGE_COUNT, SEED)
        sending = Sending(CLIENT.name)
        run(
            send_command(
                CLIENT, namesrv=self.namesrv, topic=TOPIC, corpus=path, queues=QUEUE_COUNT
            ),
            sending.hear,
            log_path=self.folder / "send.log",
            deadline_seconds=DEADLINE_S,
        )
        path.unlink()
        assert sending.refusals == []
        return sending, Consuming(CLIENT.name, {CLIENT.name: expected}, False)

    def wait_until_equal(self) -> int:
        """Waits for the rest of the log, and for the state; returns the bytes compared."""
        wait_until(
            lambda: log_files(self.slave_store) == log_files(self.master_store),
            what="equal commit logs",
            deadline_s=DEADLINE_S,
        )
        for what, is_known in (
            ("the topic", lambda: knows_topic(self.slave_store)),
            ("the offset", lambda: knows_offset(self.slave_address)),
            ("the delivery", lambda: knows_delivery(self.slave_address, self.slave_store)),
        ):
            wait_until(is_known, what=f"{what} at the slave", deadline_s=DEADLINE_S)
        return sum(map(len, log_files(self.master_store).values()))

    def consume(self, sending: Sending, consuming: Consuming) -> str:
        """A stock consumer gets everything; the master is dead."""
        run(
            consume_command(
                CLIENT, namesrv=self.namesrv, topic=TOPIC,
                expect=len(sending.acknowledged),
            ),
            consuming.hear,
            log_path=self.folder / "consume.log",
            deadline_seconds=DEADLINE_S,
        )  # fmt: skip
        verdict = judge(consuming, {CLIENT.name: sending})
        text = table([verdict], {}, 1.0)
        assert verdict.sent == MESSAGE_COUNT and verdict.is_clean, "\n".join(
            [text, *verdict.problems]
        )
        return text


@pytest.mark.timeout(300)
def test_our_slave_follows_a_stock_master(tmp_path: Path, namesrv: str, tell: Tell) -> None:
    with ExitStack() as stack:
        java = stack.enter_context(java_broker(tmp_path, namesrv, MASTER))
        ours = OurBroker(tmp_path, namesrv, SLAVE)
        stack.enter_context(ours.program)
        pair = Pair(
            folder=tmp_path,
            namesrv=namesrv,
            master_address=f"{LOOPBACK}:{java.broker_ports[0]}",
            slave_address=ours.address,
            master_store=java.directory / "store-0",
            slave_store=ours.store,
        )
        sending, consuming = pair.send()
        size = pair.wait_until_equal()
        java.stop()
        text = pair.consume(sending, consuming)
        tell(f"our slave of a stock master: {size} bytes of log are equal\n{text}")
    shutil.rmtree(java.directory / "store-0")
    shutil.rmtree(ours.store)


@pytest.mark.timeout(300)
def test_a_stock_slave_follows_our_master(tmp_path: Path, namesrv: str, tell: Tell) -> None:
    with ExitStack() as stack:
        ours = OurBroker(tmp_path, namesrv, MASTER)
        stack.enter_context(ours.program)
        java = stack.enter_context(java_broker(tmp_path, namesrv, SLAVE))
        pair = Pair(
            folder=tmp_path,
            namesrv=namesrv,
            master_address=ours.address,
            slave_address=f"{LOOPBACK}:{java.broker_ports[0]}",
            master_store=ours.store,
            slave_store=java.directory / "store-0",
        )
        sending, consuming = pair.send()
        size = pair.wait_until_equal()
        ours.program.kill()
        text = pair.consume(sending, consuming)
        tell(f"a stock slave of our master: {size} bytes of log are equal\n{text}")
    shutil.rmtree(java.directory / "store-0")
    shutil.rmtree(ours.store)
