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
from ledgermq.protocol.properties import find_property
from ledgermq.protocol.record import Record, decode_record
from tests.e2e.wire_client import WireClient, pull_fields, send_fields
from tests.processes import broker, name_server, run_ledgermq
from tests.waiting import wait_until

GOOD, PACKED = b"a good one", b"not packed"
NOT_TEXT = (
    b"k\x01\xff\xfe\x02KEYS\x01odd\x02RETRY_TOPIC\x01Orders\x02UNIQ_KEY\x01u3\x02TAGS\x01rare"
)
ODD_BODY = b"an odd one"
# No room for those that a broker adds.
LONG = b"k\x01" + b"v" * 32_700
MANY = b"\x02".join(b"%d\x01v" % number for number in range(4_815))
# Groups with dead letters.
GROUPS = ("readers", "menders")


class Site(NamedTuple):
    name_server: str
    broker_name: str
    broker: str


def batch_of(body: bytes, properties: bytes) -> bytes:
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def send_batch(client: WireClient, topic: str, body: bytes, properties: bytes) -> None:
    names = {**dict.fromkeys("efh", "0"), "d": "4", "g": "1", "j": "3", "k": "false"}
    fields = {**names, "a": "p", "b": topic, "c": "TBW102", "i": "", "m": "true"}
    batch = batch_of(body, properties)
    assert client.ask(RequestCode.SEND_BATCH_MESSAGE.value, fields, batch).code == 0


def pulled(client: WireClient, topic: str) -> list[Record]:
    """Returns what lies in queue 0 of a topic."""
    answer = client.ask(RequestCode.PULL_MESSAGE.value, pull_fields(topic, 0, 0))
    found: list[Record] = []
    start = 0
    while answer.code == 0 and start < len(answer.body):
        found.append(decode_record(answer.body, start))
        start += found[-1].size_bytes
    return found


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
                send_batch(client, topic, ODD_BODY, NOT_TEXT)
        with WireClient(address) as client:
            # A broker tells name servers of a topic after it has answered who made it.
            for topic in topics:
                wait_until(lambda name=topic: has_route(client, name), what=f"the route of {topic}")
        yield Site(address, "broker-a", program.address)


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
    done = run_ledgermq(*words, "--count", "1", "--until-idle", "60", "-n", site.name_server)
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


@pytest.mark.parametrize("properties", [NOT_TEXT, LONG, MANY], ids=["odd", "long", "many"])
@pytest.mark.parametrize(("level", "kind"), [(1, "%RETRY%"), (-1, "%DLQ%")])
def test_its_consumer_gets_rid_of_it(site: Site, properties: bytes, level: int, kind: str) -> None:
    """A broker that does not take it back has it come for ever, and nothing behind it."""
    name = f"{len(properties)}x{level + 1}"
    with WireClient(site.broker) as client:
        send_batch(client, f"Back{name}", ODD_BODY, properties)
        wait_until(lambda: pulled(client, f"Back{name}"), what="the message")
        place = pulled(client, f"Back{name}")[0].physical_offset
        back = {"offset": place, "group": name, "delayLevel": level, "unitMode": "false"}
        back["maxReconsumeTimes"] = 16
        answer = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK.value, back)
        assert answer.code == 0, answer.remark
        wait_until(lambda: pulled(client, f"{kind}{name}"), what="what came back")
        (came,) = pulled(client, f"{kind}{name}")
        assert came.body == ODD_BODY and came.reconsume_times == 4
        assert (b"\xff\xfe" in came.properties) is (properties == NOT_TEXT)
        assert find_property(came.properties, b"RETRY_TOPIC") == b"Back%s" % name.encode()
