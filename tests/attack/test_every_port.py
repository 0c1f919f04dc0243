"""Every code there is, known or not, at every port there is: without an account nothing is read or
changed, and with the account of one topic nothing beyond it.

A name server, a broker with a ledger, the VIP port and the HTTP port, and a master with a port for
slaves, all with accounts and a secret, and without TLS, so that whoever comes is listened to.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from ledgermq.dledger.messages import JsonCode
from ledgermq.dledger.replica.wire_binary import BinaryCode
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, decode
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.signature import Credentials
from tests.attack.closed_broker import ROOT, SHOP, THIEF, ask, beat, closed_broker
from tests.e2e.plain_pair import PlainBroker
from tests.e2e.wire_client import WireClient, request, send_fields
from tests.fault.closed_ports import BROKER, HTTP, LEDGER, NAME_SERVER, SLAVES, VIP, ports_of
from tests.free_ports import free_ports
from tests.processes import LOOPBACK, LiveProgram
from tests.unit.broker.guarded import fields_of_all_headers
from tests.waiting import wait_until

FORGED: Final = Credentials(access_key=ROOT.access_key, secret_key="secret-that-is-none")
BODY: Final = b"what the shop alone may read"
CLIENT: Final = "client-of-the-shop"
# What nobody of these attackers names, so that an answer that has it has told it.
HIDDEN: Final = (BODY, CLIENT.encode(), b"order-readers", b"secret-of-", b"kept-value")
# All that Apache's programs have a code for, all of members, and some that nobody has.
CODES: Final = (
    *range(-2, 1100),
    1500,
    *range(1990, 2010),
    *range(2990, 3020),
    *range(200_000, 200_200),
    *range(49_990, 50_010),
    *range(50_990, 51_040),
    *range(51_990, 52_040),
    2**31 - 1,
    -(2**31),
)
_SECRET: Final = "secret-of-the-group, 32 bytes or more"
_NAMESRV_ACCOUNTS: Final = """
accounts:
- {accessKey: root-app, secretKey: secret-of-root, admin: true}
- {accessKey: shop-app, secretKey: secret-of-shop, brokerNames: ["*"]}
- {accessKey: thief-app, secretKey: secret-of-thief}
"""
_ANSWER_S: Final = 20.0
# A server takes 100 new connections a second of one address.
_sources: Final = cycle(f"127.0.3.{number}" for number in range(1, 250))


class Site(NamedTuple):
    """The programs, and all of their ports."""

    programs: dict[str, LiveProgram]
    # Kind of each port.
    ports: dict[int, str]

    def remoting_ports(self) -> list[tuple[int, str]]:
        """All but that for HTTP, which waits for the end of a line, and has a test of its own."""
        return [(port, kind) for port, kind in self.ports.items() if kind != HTTP]

    def everything(self) -> list[Any]:
        """What an admin sees of tables, rules and messages."""
        seen: list[Any] = []
        for name in ("ledger", "master"):
            with WireClient(self.programs[name].address, who=ROOT) as client:
                seen += [
                    client.ask(code.value).body
                    for code in (
                        RequestCode.GET_ALL_TOPIC_CONFIG,
                        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                        RequestCode.GET_ALL_CONSUMER_OFFSET,
                        RequestCode.GET_ALL_DELAY_OFFSET,
                        RequestCode.GET_BROKER_CONFIG,
                        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
                    )
                ]
                for topic in ("orders", "stock", "bait"):
                    for queue_id in range(4):
                        fields = {"topic": topic, "queueId": str(queue_id)}
                        ends = client.ask(RequestCode.GET_MAX_OFFSET.value, fields)
                        seen.append(ends.ext_fields)
        with WireClient(self.programs["namesrv"].address, who=ROOT) as client:
            for code, fields in (
                (RequestCode.GET_BROKER_CLUSTER_INFO, {}),
                (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
                (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}),
                (RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "orders"}),
                (RequestCode.GET_NAMESRV_CONFIG, {}),
            ):
                seen.append(client.ask(code.value, fields).body)
        return seen


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def fill(program: LiveProgram) -> None:
    """A message, a member and an offset of the shop, and a topic of the thief."""
    with WireClient(program.address) as client:
        for who, topic, body in ((SHOP, "orders", BODY), (THIEF, "bait", b"bait")):
            sent = ask(client, who, RequestCode.SEND_MESSAGE, send_fields(topic, 0), body)
            # A master without a slave says that none has it.
            assert sent.code in (0, 11), sent.remark
        assert beat(client, SHOP, CLIENT, consumers=("order-readers",)).code == 0
        offset = {"consumerGroup": "order-readers", "topic": "orders", "queueId": "0"}
        told = {**offset, "commitOffset": "1"}
        assert ask(client, SHOP, RequestCode.UPDATE_CONSUMER_OFFSET, told).code == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    accounts = private(folder / "namesrv_acl.yml", _NAMESRV_ACCOUNTS)
    secret = private(folder / "group.secret", _SECRET)
    own = private(folder / "namesrv.secret", SHOP.secret_key)
    settings = (
        f"dLegerGroupSecretFile={secret}", f"namesrvAccessKey={SHOP.access_key}",
        f"namesrvSecretKeyFile={own}",
    )  # fmt: skip
    token = private(folder / "http.token", "token-of-who-reads-metrics")
    http = (f"httpPort={free_ports(1)[0]}", f"httpTokenFile={token}")
    with ExitStack() as stack:
        words = ("namesrv", "--json", "-p", "0", f"bindAddress={LOOPBACK}",
                 f"kvConfigPath={folder / 'kv.json'}", "aclEnable=true", f"aclFile={accounts}",
                 "routeNeedsAccount=true")  # fmt: skip
        namesrv = stack.enter_context(LiveProgram(words, folder / "namesrv.log"))
        address = namesrv.wait_until("address").address
        ledger = stack.enter_context(
            closed_broker(
                folder, f"namesrvAddr={address}", "vipChannelEnable=true", *http, *settings
            )
        ).wait_until_serving()
        rules = (f"aclFile={folder / 'plain_acl.yml'}", "aclEnable=true")
        pair = PlainBroker(folder, address, "SYNC_MASTER", *rules, *settings)
        master = stack.enter_context(pair.start()).wait_until_serving()
        fill(ledger)
        fill(master)
        with WireClient(address, who=ROOT) as client:
            item = {"namespace": "orders", "key": "orders", "value": "kept-value"}
            assert client.ask(RequestCode.PUT_KV_CONFIG.value, item).code == 0
            wait_until(
                lambda: client.ask(
                    RequestCode.GET_ROUTEINFO_BY_TOPIC.value, {"topic": "orders"}
                ).body.count(b'"brokerName"') >= 4,
                what="routes to both brokers",
            )  # fmt: skip
        programs = {"namesrv": namesrv, "ledger": ledger, "master": master}
        ports = {p: kind for one in programs.values() for p, kind in ports_of(one).items()}
        yield Site(programs, ports)


class Asker:
    """Asks one port; a connection that was closed is made anew."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._decoder = FrameDecoder()

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def ask(self, code: int, fields: dict[str, Any], body: bytes) -> RemotingCommand | None:
        """Returns the answer, None for an end; what comes besides frames must be neither."""
        if self._socket is None:
            place = (next(_sources), 0)
            self._socket = socket.create_connection((LOOPBACK, self._port), _ANSWER_S, place)
            self._decoder = FrameDecoder()
        came = b""
        try:
            self._socket.sendall(request(code, fields, body))
            while chunk := self._socket.recv(65_536):
                came += chunk
                if frames := self._decoder.feed(chunk):
                    return decode(frames[0])
        except (ConnectionError, RemoteProtocolError):
            pass
        self._close()
        assert not any(hidden in came for hidden in HIDDEN), (self._port, code)
        return None

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def is_granted(kind: str, answer: RemotingCommand | None) -> bool:
    """Whether an answer says that something was told or done."""
    if answer is None:
        return False
    if kind == LEDGER:
        told = json.loads(answer.body or b"{}")
        return told.get("code") in (0, 200, None) and answer.code in (0, 200)
    named = [name for name in answer.ext_fields or {} if name not in ("MSG_REGION", "TRACE_ON")]
    return answer.code == 0 or bool(answer.body) or bool(named)


def text_of(answer: RemotingCommand | None) -> bytes:
    if answer is None:
        return b""
    return json.dumps([answer.remark, answer.ext_fields]).encode() + answer.body


def test_every_port_is_there(site: Site) -> None:
    """What is asked below; a port of another kind has to be named there first."""
    assert sorted(site.ports.values()) == sorted(
        [NAME_SERVER, BROKER, VIP, LEDGER, HTTP, BROKER, SLAVES]
    )
    assert {int(code) for one in (RequestCode, JsonCode, BinaryCode) for code in one} <= set(CODES)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("who", [None, FORGED], ids=["unsigned", "forged"])
def test_nobody_reads_or_changes_anything_at_any_port(site: Site, who: Credentials | None) -> None:
    plausible = fields_of_all_headers("orders", 0)
    before = site.everything()
    for port, kind in site.remoting_ports():
        with Asker(port) as asker:
            for code in CODES:
                for fields, body in ((plausible, b""), ({}, b"{}")):
                    given = fields if who is None else who.signed(fields, body)
                    answer = asker.ask(code, given, body)
                    assert not is_granted(kind, answer), (kind, code, answer)
                    assert not any(hidden in text_of(answer) for hidden in HIDDEN), (kind, code)
    assert site.everything() == before


@pytest.mark.timeout(400)
def test_an_account_of_one_topic_gets_nothing_beyond_it_at_any_port(site: Site) -> None:
    """It names the shop's topic and group wherever a request has a name, or nothing at all."""
    plausible = fields_of_all_headers("orders", 0)
    before = site.everything()
    for port, kind in site.remoting_ports():
        with Asker(port) as asker:
            for code in CODES:
                for fields, body in ((plausible, b""), ({}, b"{}")):
                    answer = asker.ask(code, THIEF.signed(fields, body), body)
                    told = {hidden for hidden in HIDDEN if hidden in text_of(answer)}
                    if kind == NAME_SERVER:
                        # Routes have the names of all topics, retry topics too.
                        told.discard(b"order-readers")
                    assert not told, (kind, code, told)
                    if kind in (LEDGER, SLAVES):
                        # Accounts are nothing to members.
                        assert not is_granted(kind, answer), (kind, code, answer)
    assert site.everything() == before


def test_nobody_reads_or_changes_anything_by_http(site: Site) -> None:
    """Health is for everybody; everything else needs the token, by whatever method and name."""
    [port] = [port for port, kind in site.ports.items() if kind == HTTP]
    before = site.everything()
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"):
        for path in ("/metrics", "//metrics", "/metrics/", "/METRICS", "/livez/../metrics", "/",
                     "/%6detrics", "/metrics?a=b", "/api", "/api/v1/topics", "*"):  # fmt: skip
            for token in ("", "Bearer ", "Bearer token-of-nobody", "Basic dG9rZW46dG9rZW4="):
                head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
                head += f"Authorization: {token}\r\n" if token else ""
                answer = by_http(port, head + "Content-Length: 0\r\nConnection: close\r\n\r\n")
                words = answer.split(b" ", 2)
                assert not answer or words[1] in (b"400", b"401", b"403", b"404", b"405", b"501"), (
                    method, path, answer[:200],
                )  # fmt: skip
                assert b"orders" not in answer and not any(one in answer for one in HIDDEN)
    right = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
    right += "Authorization: Bearer token-of-who-reads-metrics\r\n\r\n"
    assert b"orders" in by_http(port, right)
    assert site.everything() == before


def by_http(port: int, head: str) -> bytes:
    """All that is answered."""
    with socket.create_connection((LOOPBACK, port), _ANSWER_S, (next(_sources), 0)) as connection:
        answer = b""
        try:
            connection.sendall(head.encode())
            while chunk := connection.recv(65_536):
                answer += chunk
        except ConnectionError:
            pass
        return answer
