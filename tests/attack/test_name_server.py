"""A name server and those who register what is not theirs, over loopback.

`shop` is the victim: its broker serves the topic `orders`. With accounts, nobody but its account
touches that. Without accounts a registration proves nothing, but nobody fills the tables for all
others, takes a broker out by a word, or leaves what a start cannot read.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final

import pytest

from ledgermq.cli.remote import Remote
from ledgermq.cli.security import Security
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.route import (
    ClusterInfo,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicRouteData,
)
from ledgermq.protocol.signature import Credentials
from tests.processes import LiveProgram
from tests.waiting import wait_until

SHOP: Final = Credentials(access_key="shop-brokers", secret_key="secret-of-shop")
RIVAL: Final = Credentials(access_key="rival-brokers", secret_key="secret-of-rival")
THIEF: Final = Credentials(access_key="thief-brokers", secret_key="secret-of-thief")
READER: Final = Credentials(access_key="reader-app", secret_key="secret-of-reader")
ROOT: Final = Credentials(access_key="root-app", secret_key="secret-of-root")
GUESS: Final = Credentials(access_key="shop-brokers", secret_key="secret-guessed")
_ACCOUNTS: Final = """
accounts:
- {accessKey: shop-brokers, secretKey: secret-of-shop, brokerNames: [shop-*]}
- {accessKey: rival-brokers, secretKey: secret-of-rival, brokerNames: ["*"]}
- {accessKey: thief-brokers, secretKey: secret-of-thief, brokerNames: [thief-*]}
- {accessKey: reader-app, secretKey: secret-of-reader}
- {accessKey: root-app, secretKey: secret-of-root, admin: true}
"""
SHOP_ADDRESS: Final = "10.0.0.1:10911"
EVIL_ADDRESS: Final = "10.6.6.6:10911"
_ANSWER_S: Final = 20.0
_versions = count(1)
# A server takes 100 new connections a second of one address.
_sources = cycle(f"127.0.1.{number}" for number in range(1, 250))


class Wire:
    """One connection to a name server."""

    def __init__(self, address: str, who: Credentials | None = None, source: str = "") -> None:
        """Connects; `who` signs, `source` is the address to come from."""
        self.who = who
        host, _, port = address.rpartition(":")
        place = (source or next(_sources), 0)
        self._socket = socket.create_connection((host, int(port)), _ANSWER_S, place)
        self._decoder = FrameDecoder()
        self._opaques = count(1)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(
        self,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes = b"",
        sent_bytes: int | None = None,
    ) -> RemotingCommand:
        """Sends a request, or its beginning, and returns the answer."""
        texts = {name: str(value) for name, value in (fields or {}).items()}
        command = RemotingCommand(code=code, opaque=next(self._opaques), body=body)
        command.ext_fields = texts if self.who is None else self.who.signed(texts, body)
        self._socket.sendall(encode(command)[:sent_bytes])
        while True:
            data = self._socket.recv(1 << 18)
            assert data, "the connection was closed"
            for frame in self._decoder.feed(data):
                return decode(frame)

    def register(
        self,
        name: str,
        address: str,
        *topics: str,
        broker_id: int = 0,
        queues: int = 4,
        **fields: Any,
    ) -> RemotingCommand:
        body = RegisterBrokerBody(
            {topic: TopicConfig(topic, queues, queues) for topic in topics},
            DataVersion(1, next(_versions)),
        ).encode()
        told = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": "DefaultCluster",
            "haServerAddr": "10.0.0.1:10912",
            "brokerId": broker_id,
            **fields,
        }
        return self.ask(RequestCode.REGISTER_BROKER, told, body)

    def unregister(self, name: str, address: str, broker_id: int = 0) -> RemotingCommand:
        told = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": "DefaultCluster",
            "brokerId": broker_id,
        }
        return self.ask(RequestCode.UNREGISTER_BROKER, told)

    def route(self, topic: str) -> TopicRouteData | None:
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return TopicRouteData.decode(answer.body) if answer.code == 0 else None

    def put(self, key: str, value: str, namespace: str = "NS") -> RemotingCommand:
        fields = {"namespace": namespace, "key": key, "value": value}
        return self.ask(RequestCode.PUT_KV_CONFIG, fields)


def start(folder: Path, *settings: str, is_closed: bool) -> LiveProgram:
    """Starts a name server on a free port, and waits until it serves."""
    words = [
        "namesrv", "--json", "listenPort=0", "bindAddress=127.0.0.1",
        f"kvConfigPath={folder / 'kv' / 'kvConfig.json'}", *settings,
    ]  # fmt: skip
    if is_closed:
        accounts = folder / "accounts.yml"
        accounts.write_text(_ACCOUNTS)
        accounts.chmod(0o600)
        words += ["aclEnable=true", f"aclFile={accounts}"]
    program = LiveProgram(words, folder / "namesrv.log")

    def is_serving() -> bool:
        assert program.is_running, program.log_text()
        return bool(program.status.get("address"))

    try:
        wait_until(is_serving, what="a name server that serves")
    except BaseException:
        program.stop()
        raise
    return program


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    with start(
        tmp_path_factory.mktemp("closed"),
        "topicsMax=100", "topicsPerRegistrantMax=40", "brokersPerRegistrantMax=20",
        is_closed=True,
    ) as program:  # fmt: skip
        yield program


@pytest.fixture
def shop(closed: LiveProgram) -> Iterator[Wire]:
    """The broker of the shop, registered."""
    with Wire(closed.address, SHOP) as wire:
        answer = wire.register("shop-a", SHOP_ADDRESS, "orders", ledgerTerm=7)
        assert answer.code == 0, answer.remark
        yield wire
        assert wire.unregister("shop-a", SHOP_ADDRESS).code == 0


Attack = Callable[[Wire], RemotingCommand]
ATTACKS: Final[dict[str, Attack]] = {
    "take the master's id": lambda w: w.register("shop-a", EVIL_ADDRESS, "orders"),
    "in a later term": lambda w: w.register("shop-a", EVIL_ADDRESS, "orders", ledgerTerm=99),
    "join as a replica": lambda w: w.register("shop-a", EVIL_ADDRESS, broker_id=9),
    "change its topics": lambda w: w.register("shop-a", SHOP_ADDRESS, "orders", queues=1),
    "unregister": lambda w: w.unregister("shop-a", SHOP_ADDRESS),
    "wipe the write permission": lambda w: w.ask(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "shop-a"}
    ),
    "give the write permission": lambda w: w.ask(
        RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "shop-a"}
    ),
    "delete the topic": lambda w: w.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"}),
    "set an item": lambda w: w.put("orders", "evil:8", "ORDER_TOPIC_CONFIG"),
    "delete an item": lambda w: w.ask(
        RequestCode.DELETE_KV_CONFIG, {"namespace": "NS", "key": "precious"}
    ),
    "change settings": lambda w: w.ask(
        RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true\n"
    ),
}
ATTACKERS: Final = {
    "nobody": None,
    "a guess": GUESS,
    "a reader": READER,
    "a thief": THIEF,
    # Its account has the right to the name; the name has a holder.
    "a rival": RIVAL,
}


@pytest.mark.parametrize("who", ATTACKERS.values(), ids=ATTACKERS)
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_nobody_but_its_account_changes_what_a_broker_registered(
    closed: LiveProgram, shop: Wire, who: Credentials | None, attack: Attack
) -> None:
    with Wire(closed.address, ROOT) as root:
        root.put("precious", "1")
    before, clusters = shop.route("orders"), shop.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
    with Wire(closed.address, who) as attacker:
        answer = attack(attacker)
        assert answer.code == ResponseCode.NO_PERMISSION, answer.remark
        assert shop.route("orders") == before is not None
        assert shop.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body == clusters
        item = shop.ask(RequestCode.GET_KV_CONFIG, {"namespace": "NS", "key": "precious"})
        assert item.code == 0 and (item.ext_fields or {})["value"] == "1"
        settings = shop.ask(RequestCode.GET_NAMESRV_CONFIG).body
        assert b"orderMessageEnable=false" in settings


def test_a_name_is_free_when_its_holder_has_left(closed: LiveProgram) -> None:
    with Wire(closed.address, SHOP) as wire:
        assert wire.register("shop-b", SHOP_ADDRESS, "stock").code == 0
        with Wire(closed.address, RIVAL) as rival:
            refused = rival.register("shop-b", EVIL_ADDRESS, "stock")
            assert "account shop-brokers registered it" in str(refused.remark)
            assert wire.unregister("shop-b", SHOP_ADDRESS).code == 0
            assert rival.register("shop-b", EVIL_ADDRESS, "stock").code == 0


def test_an_address_is_taken_from_no_broker(closed: LiveProgram, shop: Wire) -> None:
    """Also not while its broker has no connection, nor by who was there first."""
    before = shop.route("orders")
    with Wire(closed.address, THIEF) as thief:
        assert thief.register("thief-a", SHOP_ADDRESS, "stolen").code == 0
        assert shop.route("orders") == before
        assert shop.unregister("shop-a", SHOP_ADDRESS).code == 0
        assert thief.register("thief-a", SHOP_ADDRESS, "stolen").code == 0
        assert shop.register("shop-a", SHOP_ADDRESS, "orders", ledgerTerm=7).code == 0
        assert shop.route("orders") == before
        assert thief.unregister("thief-a", SHOP_ADDRESS).code == 0
    assert shop.route("orders") == before


def test_of_one_account_the_leader_of_the_later_term_is_the_master(
    closed: LiveProgram, shop: Wire
) -> None:
    with Wire(closed.address, SHOP) as former, Wire(closed.address, SHOP) as later:
        for term in (6, 7):
            answer = former.register("shop-a", "10.0.0.2:10911", "orders", ledgerTerm=term)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert f"leads term 7, 10.0.0.2:10911 says {term}" in str(answer.remark)
        assert later.register("shop-a", "10.0.0.3:10911", "orders", ledgerTerm=8).code == 0
        route = later.route("orders")
        assert route is not None
        assert route.broker_datas[0].broker_addrs == {0: "10.0.0.3:10911"}
        # One that tells no term, as Apache's, takes it by the last word.
        assert later.register("shop-a", "10.0.0.4:10911", "orders").code == 0


def test_a_refusal_is_logged_once(closed: LiveProgram) -> None:
    with Wire(closed.address, THIEF, source="127.0.0.77") as thief:
        for _ in range(50):
            thief.register("logged-\x1b[31m\nname", EVIL_ADDRESS, "orders")
    lines = [line for line in closed.log_text().splitlines() if "of 127.0.0.77: " in line]
    assert len(lines) == 1 and "may not register" in lines[0]
    assert "\x1b" not in closed.log_text()


def test_with_route_needs_account_nothing_is_read_without_one(tmp_path: Path) -> None:
    """For all codes, known or not; and an unknown one says nothing of what is known."""
    with (
        start(tmp_path, "routeNeedsAccount=true", is_closed=True) as program,
        Wire(program.address) as nobody,
        Wire(program.address, READER) as reader,
        Wire(program.address, SHOP) as shop,
    ):
        assert shop.register("shop-a", SHOP_ADDRESS, "orders").code == 0
        fields = {"topic": "orders", "cluster": "DefaultCluster", "namespace": "NS", "key": "k"}
        for code in [*range(400), *range(900, 1020), 2**31 - 1, -1]:
            answer = nobody.ask(code, fields)
            assert answer.code == ResponseCode.NO_PERMISSION and not answer.body, code
        assert nobody.route("orders") is None
        assert reader.route("orders") is not None
        assert reader.ask(399).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_strangers_send_small_requests_only(closed: LiveProgram) -> None:
    """Of a large one no body is taken, unless its header names an account."""
    for who in (None, Credentials(access_key="no-account", secret_key="1234567")):
        with Wire(closed.address, who) as stranger:
            answer = stranger.ask(RequestCode.REGISTER_BROKER, {}, b"x" * (1 << 20), 100_000)
            assert "before a valid signature" in str(answer.remark)
    with Wire(closed.address, SHOP) as shop:
        fields = {"brokerName": "shop-a", "brokerAddr": SHOP_ADDRESS}
        answer = shop.ask(RequestCode.REGISTER_BROKER, fields, b"x" * (1 << 20))
        assert "clusterName is missing" in str(answer.remark)


# Many of everything.


@pytest.fixture(params=["closed", "open"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[LiveProgram, bool]]:
    """A name server with small limits, with and without accounts."""
    is_closed = request.param == "closed"
    with start(
        tmp_path,
        "topicsMax=100", "topicEntriesMax=200", "topicsPerRegistrantMax=40",
        "brokersMax=50", "brokersPerRegistrantMax=20", "clustersPerRegistrantMax=3",
        is_closed=is_closed,
    ) as program:  # fmt: skip
        yield program, is_closed


def test_one_registrant_fills_no_table_for_others(small: tuple[LiveProgram, bool]) -> None:
    """With one broker of many topics, with many names of few, and with many cluster names."""
    program, is_closed = small
    evil, shop = (RIVAL, SHOP) if is_closed else (None, None)
    whose = "account rival-brokers" if is_closed else "address 127.0.0.66"
    remarks = []
    with (
        Wire(program.address, evil, source="127.0.0.66") as attacker,
        Wire(program.address, shop) as victim,
    ):
        answer = attacker.register("flood", EVIL_ADDRESS, *(f"t{n}" for n in range(90)))
        remarks.append(str(answer.remark))
        for number in range(60):
            address = f"10.6.6.6:{number + 1}"
            answer = attacker.register(f"flood-{number}", address, f"a{number}", f"b{number}")
        remarks.append(str(answer.remark))
        for number in range(19):
            answer = attacker.register(f"flood-{number}", f"10.6.6.6:{number + 1}", f"c{number}")
        answer = attacker.register("flood-0", "10.6.6.6:1", *(f"d{n}" for n in range(30)))
        remarks.append(str(answer.remark))
        for number in range(8):
            answer = attacker.register(
                f"flood-{number}", f"10.6.6.6:{number + 1}", clusterName=f"c-{number}"
            )
        remarks.append(str(answer.remark))
        assert victim.register("shop-a", SHOP_ADDRESS, *(f"s{n}" for n in range(30))).code == 0
        assert victim.route("s29") is not None
    assert [remark.partition(":")[0] for remark in remarks] == [
        f"topicsPerRegistrantMax of {whose}",
        f"brokersPerRegistrantMax of {whose}",
        f"topicsPerRegistrantMax of {whose}",
        f"clustersPerRegistrantMax of {whose}",
    ]


@pytest.mark.parametrize(
    ("name", "address", "topics", "fields"),
    [
        ("evil\n2026-11-23 fake line", EVIL_ADDRESS, (), {}),
        ("\x1b[2J", EVIL_ADDRESS, (), {}),
        ("", EVIL_ADDRESS, (), {}),
        ("n" * 301, EVIL_ADDRESS, (), {}),
        ("evil", "10.6.6.6:1\nfake line", (), {}),
        ("evil", "no-port", (), {}),
        ("evil", "h" * 400 + ":1", (), {}),
        ("evil", EVIL_ADDRESS, ("t\x00",), {}),
        ("evil", EVIL_ADDRESS, ("t" * 301,), {}),
        ("evil", EVIL_ADDRESS, ("",), {}),
        ("evil", EVIL_ADDRESS, (), {"clusterName": "c" * 301}),
        ("evil", EVIL_ADDRESS, (), {"haServerAddr": "x\ny:1"}),
        ("evil", EVIL_ADDRESS, (), {"heartbeatTimeoutMillis": 2**62}),
        ("evil", EVIL_ADDRESS, (), {"heartbeatTimeoutMillis": -1}),
        ("evil", EVIL_ADDRESS, ("t",), {"queues": 2**31 - 1}),
        ("evil", EVIL_ADDRESS, ("t",), {"queues": -1}),
    ],
)
def test_what_no_broker_says_is_refused_and_leaves_nothing(
    closed: LiveProgram, name: str, address: str, topics: tuple[str, ...], fields: dict[str, Any]
) -> None:
    with Wire(closed.address, ROOT) as wire:
        answer = wire.register(name, address, *topics, **fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR, answer.remark
        assert "allowed: " in str(answer.remark)
        info = ClusterInfo.decode(wire.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
        assert info.broker_addr_table == {}
    assert "fake line" not in [line[:9] for line in closed.log_text().splitlines()]


def test_without_accounts_a_broker_is_taken_out_by_its_own_connection_only(
    tmp_path: Path,
) -> None:
    with (
        start(tmp_path, is_closed=False) as program,
        Wire(program.address) as shop,
        Wire(program.address) as attacker,
    ):
        assert "anybody who reaches port" in program.log_text()
        assert shop.register("shop-a", SHOP_ADDRESS, "orders").code == 0
        before = shop.route("orders")
        refused = attacker.unregister("shop-a", SHOP_ADDRESS)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "another connection" in str(refused.remark)
        # Under another name, or number, it would leave a broker that never goes.
        attacker.unregister("nonsense", SHOP_ADDRESS)
        attacker.unregister("shop-a", SHOP_ADDRESS, 5)
        assert shop.route("orders") == before is not None
        assert shop.unregister("shop-a", SHOP_ADDRESS).code == 0
        info = ClusterInfo.decode(shop.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
        assert info.broker_addr_table == {}


def test_what_is_put_without_end_is_read_by_the_next_start(tmp_path: Path) -> None:
    """Values of many bytes, names of many namespaces; what was taken is there again."""
    file = tmp_path / "kv" / "kvConfig.json"
    # The limit is near, so that it is met in a few requests.
    file.parent.mkdir()
    items = {f"k{number}": "v" * 32_000 for number in range(250)}
    file.write_text(json.dumps({"configTable": {"OLD": items}}))
    with start(tmp_path, is_closed=False) as program, Wire(program.address) as wire:
        codes = [wire.put(f"n{number}", "w" * 30_000).code for number in range(100)]
        taken = codes.count(0)
        assert 5 < taken < 100 and codes == sorted(codes)
        refused = wire.put("more", "w" * 30_000)
        assert "bytes of the key-value file: " in str(refused.remark)
        assert wire.put("key", "w" * 40_000).code == ResponseCode.SYSTEM_ERROR
        # What every broker is answered with has room in an answer.
        for number in range(5):
            wire.put(f"o{number}", "o" * 20_000, "ORDER_TOPIC_CONFIG")
        assert wire.register("shop-a", SHOP_ADDRESS, "orders").code == 0
        for number in range(10):
            fields = {"namespace": f"space-{number}", "key": "k"}
            wire.put("k", "v", f"space-{number}")
            wire.ask(RequestCode.DELETE_KV_CONFIG, fields)
        assert file.stat().st_size <= 8 << 20 and file.stat().st_mode & 0o777 == 0o600
    with start(tmp_path, is_closed=False) as program, Wire(program.address) as wire:
        assert (
            wire.ask(RequestCode.GET_KV_CONFIG, {"namespace": "NS", "key": f"n{taken - 1}"}).code
            == 0
        )
        spaces = json.loads(file.read_bytes())["configTable"]
        assert not [name for name in spaces if name.startswith("space-")]


def test_what_was_signed_for_another_address_is_not_taken_where_a_key_says_so(
    tmp_path: Path,
) -> None:
    """Whoever an admin's tool asked, a broker or a name server, passes it on within minutes."""
    strong = replace(ROOT, form="strong")
    code = RequestCode.PUT_KV_CONFIG.value
    fields = {"namespace": "NS", "key": "k", "value": "v"}
    named = "aclSignedAddresses=names.example:9876"
    program = start(tmp_path, named, is_closed=True)
    try:
        address = str(program.status["address"])
        port = address.rpartition(":")[2]
        with Wire(address) as wire:
            for ends in ("10.6.6.6:9876", f"evil.example:{port},10.6.6.6:{port}", "127.0.0.1:1"):
                refused = wire.ask(code, strong.signed(fields, b"", code, ends))
                assert refused.code == ResponseCode.NO_PERMISSION
                assert f"signed for '{ends}', which is another one" in str(refused.remark)
            for ends in (f"127.0.0.1:{port}", f"localhost:{port},127.0.0.1:{port}"):
                assert wire.ask(code, strong.signed(fields, b"", code, ends)).code == 0
            through = strong.signed(fields, b"", code, "Names.Example:9876,192.0.2.1:9876")
            assert wire.ask(code, through).code == 0
            assert wire.ask(code, ROOT.signed(fields, b"")).code == 0
        security = Security(credentials=strong)
        with Remote(f"localhost:{port}", security=security) as remote:
            assert remote.ask(f"localhost:{port}", RequestCode.GET_NAMESRV_CONFIG).code == 0
    finally:
        program.stop()


def test_a_hundred_thousand_topics_hold_up_nobody(tmp_path: Path) -> None:
    """They were taken over in one turn of 0.6 s, and forgotten in another of 0.2."""
    topics = {f"many-{number}": TopicConfig(f"many-{number}", 4, 4) for number in range(90_000)}
    body = RegisterBrokerBody(topics, DataVersion(1, next(_versions))).encode(compressed=True)
    told = {"brokerName": "shop-many", "brokerAddr": "10.0.0.9:10911", "clusterName": "C",
            "haServerAddr": "10.0.0.9:10912", "brokerId": 0, "compressed": "true"}  # fmt: skip
    with (
        start(tmp_path, is_closed=True) as program,
        Wire(program.address, SHOP) as broker,
        Wire(program.address) as reader,
    ):
        answered: list[RemotingCommand] = []
        thread = threading.Thread(
            target=lambda: answered.append(broker.ask(RequestCode.REGISTER_BROKER, told, body))
        )
        thread.start()
        count = 0
        while not answered:
            assert reader.route("nobody-has-it") is None
            count += 1
        thread.join()
        (answer,) = answered
        assert answer.code == 0, answer.remark
        assert count > 100
        assert reader.route("many-89999") is not None
