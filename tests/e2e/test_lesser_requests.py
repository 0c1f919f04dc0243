"""What few clients ask for: the VIP channel, all producers, old files, moved offsets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from tests.e2e.wire_client import WireClient, pull_fields
from tests.processes import LiveProgram, broker
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    settings = ("flushDiskType=ASYNC_FLUSH", "vipChannelEnable=true", "cleanResourceInterval=100")
    with broker(tmp_path_factory.mktemp("broker"), *settings) as running:
        yield running.wait_until_serving()


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


def test_port_of_the_vip_channel_takes_sends(program: LiveProgram) -> None:
    host, _, port = program.address.rpartition(":")
    with WireClient(f"{host}:{int(port) - 2}") as client:
        assert client.send("Vip", 0, b"body").code == 0
    with WireClient(program.address) as client:
        assert [record.body for record in client.read_queue("Vip", 0)] == [b"body"]


def test_pull_outside_of_its_queue_is_an_event(client: WireClient) -> None:
    assert client.send("Moved", 1, b"body").code == 0
    fields = pull_fields("Moved", 1, 77, consumerGroup="strays")
    answer = client.ask(RequestCode.PULL_MESSAGE.value, fields)
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert (answer.ext_fields or {})["nextBeginOffset"] == "1"
    wait_until(lambda: bool(client.read_queue("OFFSET_MOVED_EVENT", 0)), what="the event")
    [record] = client.read_queue("OFFSET_MOVED_EVENT", 0)
    event = json.loads(record.body)
    assert (event["consumerGroup"], event["offsetRequest"], event["offsetNew"]) == ("strays", 77, 1)
    assert event["messageQueue"] == {"brokerName": "broker-a", "queueId": 1, "topic": "Moved"}
    assert b"TAGS\x01strays" in record.properties
    begun_s = time.monotonic()
    for _ in range(100):
        client.ask(RequestCode.PULL_MESSAGE.value, fields)
    # So many at once, and then one a second.
    allowed = 32 + time.monotonic() - begun_s + 10
    assert len(client.read_queue("OFFSET_MOVED_EVENT", 0)) <= min(allowed, 100)


def test_all_producers_are_listed(client: WireClient) -> None:
    groups = [{"groupName": "p1"}, {"groupName": "p2"}]
    body = json.dumps({"clientID": "c", "producerDataSet": groups}).encode()
    client.ask(RequestCode.HEART_BEAT.value, None, body)
    answer = client.ask(RequestCode.GET_ALL_PRODUCER_INFO.value)
    table = json.loads(answer.body)["data"]
    assert sorted(table) == ["p1", "p2"]
    [producer] = table["p1"]
    assert (producer["clientId"], producer["language"], producer["version"]) == ("c", "JAVA", 399)
    assert producer["remoteIP"].startswith("/127.0.0.1:") and producer["lastUpdateTimestamp"] > 0


def test_old_files_are_looked_for_when_a_tool_asks(client: WireClient) -> None:
    assert client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG.value).code == 0
    # Nothing is old: all is still there.
    assert client.send("Kept", 0, b"body").code == 0
    assert len(client.read_queue("Kept", 0)) == 1
