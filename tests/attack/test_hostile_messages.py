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
from ledgermq.client.blocking import AdminClient
from ledgermq.protocol.codes import RequestCode, ResponseCode
from tests.e2e.wire_client import WireClient, send_fields
from tests.processes import broker, name_server, run_ledgermq
from tests.waiting import wait_until

GOOD, PACKED = b"a good one", b"not packed"
NOT_TEXT = (
    b"k\x01\xff\xfe\x02KEYS\x01odd\x02RETRY_TOPIC\x01Orders\x02UNIQ_KEY\x01u3\x02TAGS\x01rare"
)
ODD_BODY = b"an odd one"
# Groups with dead letters.
GROUPS = ("readers", "menders")


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
    """Queue 0 of Orders, and the dead letters of two groups: a packed, a good and an odd message.

    The odd one says that it failed three times.
    """
    folder: Path = tmp_path_factory.mktemp("broker")
    topics = ("Orders", *(f"%DLQ%{group}" for group in GROUPS))
    with name_server(folder) as address, broker(folder, namesrv=address) as program:
        with WireClient(program.wait_until_serving().address) as client:
            for topic in topics:
                keys = "RETRY_TOPIC\x01Orders\x02KEYS\x01k1\x02UNIQ_KEY\x01"
                for number, body, flag in ((1, PACKED, "1"), (2, GOOD, "0")):
                    given = send_fields(topic, 0, sysFlag=flag, properties=f"{keys}u{number}")
                    assert client.ask(RequestCode.SEND_MESSAGE.value, given, body).code == 0
                names = {**dict.fromkeys("efh", "0"), "d": "4", "g": "1", "j": "3", "k": "false"}
                fields = {**names, "a": "p", "b": topic, "c": "TBW102", "i": "", "m": "true"}
                batch = batch_of(ODD_BODY, NOT_TEXT)
                assert client.ask(RequestCode.SEND_BATCH_MESSAGE.value, fields, batch).code == 0
        with WireClient(address) as client:
            # A broker tells name servers of a topic after it has answered who made it.
            for topic in topics:
                wait_until(lambda name=topic: has_route(client, name), what=f"the route of {topic}")
        yield Site(address, "broker-a")


@pytest.mark.parametrize(
    "words",
    [
        ("dlq", "list", "readers"),
        ("dlq", "show", "readers", "u1", "u2", "u3"),
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
    assert ODD_BODY.decode() in done.stdout or "admin" in words


def test_dead_letters_are_listed_and_dealt_with_around_it(site: Site) -> None:
    """Nobody could send it again as it was: it says so, and is dropped. All others go on."""
    with AdminClient(site.name_server) as admin:
        letters = admin.dead_letters("menders")
        assert [one.message_id for one in letters] == ["u1", "u2", "u3"]
        odd = letters[2].message
        assert "@2>" in repr(odd) and odd.topic == "Orders"
        assert odd.legible().properties["k"] == "\\xff\\xfe"
        done = admin.resend_dead_letters("menders", [one.id for one in letters])
        assert [one.outcome for one in done] == ["resent", "resent", "failed"]
        assert "UTF-8" in done[2].reason
        assert [one.id for one in admin.dead_letters("menders")] == [letters[2].id]
        assert [one.outcome for one in admin.drop_dead_letters("menders", ["u3"])] == ["dropped"]
        assert admin.dead_letters("menders") == []


def test_consumer_of_one_tag_goes_on_behind_it(site: Site) -> None:
    words = ("consume", "-t", "Orders", "-g", "tagged", "--tags", "rare", "--from", "first")
    done = run_ledgermq(*words, "--count", "1", "--until-idle", "8", "-n", site.name_server)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ODD_BODY.decode()


@pytest.mark.parametrize(
    ("flag", "command"), [("-k", "queryMsgByKey"), ("-i", "queryMsgByUniqueKey")]
)
def test_it_is_found_by_what_can_be_read_of_it(site: Site, flag: str, command: str) -> None:
    name = {"-k": "odd", "-i": "u3"}[flag]
    done = run_ledgermq("admin", command, "-t", "Orders", flag, name, "-n", site.name_server)
    assert done.returncode == 0, done.stderr
    assert ODD_BODY.decode() in done.stdout


def test_read_says_where_it_is_and_reads_around_it(site: Site) -> None:
    queue = MessageQueue("Orders", site.broker_name, 0)
    with pytest.raises(ClientError, match="the message at offset 0 cannot be read: compressed"):
        ledgermq.read("Orders", name_servers=site.name_server).read_all()
    with pytest.raises(ClientError, match="the message at offset 2 cannot be read: properties"):
        ledgermq.read("Orders", {queue: 1}, name_servers=site.name_server).read_all()
    table = ledgermq.read("Orders", {queue: 1}, {queue: 2}, name_servers=site.name_server)
    assert table.read_all().column("body").to_pylist() == [GOOD]
