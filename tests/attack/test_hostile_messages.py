"""Messages that cannot be read: bodies that say they are packed, properties that are no UTF-8. Who
wrote one keeps nobody from those beside it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import ledgermq
from ledgermq.client import ClientError, MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from tests.e2e.wire_client import WireClient, send_fields
from tests.processes import broker, name_server, run_ledgermq
from tests.waiting import wait_until

GOOD, PACKED = b"a good one", b"not packed"
NOT_TEXT = b"k\x01\xff\xfe\x02KEYS\x01odd"


class Site(NamedTuple):
    name_server: str
    broker_name: str


def batch_of(body: bytes, properties: bytes) -> bytes:
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def has_route(client: WireClient, topic: str) -> bool:
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC.value
    return client.ask(code, {"topic": topic}).code == ResponseCode.SUCCESS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Queue 0 of Orders, and the dead letters of readers: one packed, one odd, one good message."""
    folder: Path = tmp_path_factory.mktemp("broker")
    with name_server(folder) as address, broker(folder, namesrv=address) as program:
        with WireClient(program.wait_until_serving().address) as client:
            for topic in ("Orders", "%DLQ%readers"):
                keys = "RETRY_TOPIC\x01Orders\x02KEYS\x01k1\x02UNIQ_KEY\x01"
                for number, body, flag in ((1, PACKED, "1"), (2, GOOD, "0")):
                    given = send_fields(topic, 0, sysFlag=flag, properties=f"{keys}u{number}")
                    assert client.ask(RequestCode.SEND_MESSAGE.value, given, body).code == 0
            names = {**dict.fromkeys("defhj", "0"), "d": "4", "g": "1", "k": "false", "m": "true"}
            fields = {**names, "a": "p", "b": "Orders", "c": "TBW102", "i": ""}
            batch = batch_of(b"odd", NOT_TEXT)
            assert client.ask(RequestCode.SEND_BATCH_MESSAGE.value, fields, batch).code == 0
        with WireClient(address) as client:
            # A broker tells name servers of a topic after it has answered who made it.
            for topic in ("Orders", "%DLQ%readers"):
                wait_until(lambda name=topic: has_route(client, name), what=f"the route of {topic}")
        yield Site(address, "broker-a")


@pytest.mark.parametrize(
    "words",
    [
        ("dlq", "list", "readers"),
        ("dlq", "show", "readers", "u1", "u2"),
        ("dlq", "list", "readers", "--json"),
        ("admin", "queryMsgByKey", "-t", "Orders", "-k", "k1"),
        ("consume", "-t", "Orders", "-g", "shown", "--from", "first", "--count", "3"),
        ("consume", "-t", "Orders", "-g", "json", "--from", "first", "--count", "3", "--json"),
    ],
)
def test_tools_show_it_as_it_is_stored_and_all_others(site: Site, words: tuple[str, ...]) -> None:
    done = run_ledgermq(*words, "-n", site.name_server)
    assert done.returncode == 0, done.stderr
    assert GOOD.decode() in done.stdout and PACKED.decode() in done.stdout


def test_read_says_where_it_is_and_reads_around_it(site: Site) -> None:
    queue = MessageQueue("Orders", site.broker_name, 0)
    with pytest.raises(ClientError, match="the message at offset 0 cannot be read: compressed"):
        ledgermq.read("Orders", name_servers=site.name_server).read_all()
    with pytest.raises(ClientError, match="the message at offset 2 cannot be read: properties"):
        ledgermq.read("Orders", {queue: 1}, name_servers=site.name_server).read_all()
    table = ledgermq.read("Orders", {queue: 1}, {queue: 2}, name_servers=site.name_server)
    assert table.read_all().column("body").to_pylist() == [GOOD]
