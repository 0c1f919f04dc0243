"""Registrations of many topics take several turns: what their broker says next comes behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.namesrv.guard import Guard
from ledgermq.namesrv.kv_table import KvTable
from ledgermq.namesrv.processors import Processors
from ledgermq.namesrv.route_table import RouteTable
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from ledgermq.protocol.route import DataVersion, RegisterBrokerBody, TopicConfig

ADDRESS = "10.0.0.1:10911"
VERSION = DataVersion(timestamp=7, counter=1)
NAMES = [f"many-{number:04}" for number in range(2000)]


class Connection:
    """Of a broker."""

    certificate_names, own_host, account = (), "10.0.0.9", None

    def __init__(self, host: str = "10.0.0.1") -> None:
        self.peer_host = host
        self.is_trusted = False
        self.is_open = True


class Server:
    """A name server whose turns end by hand; each look at the clock takes a part of a slice."""

    def __init__(self, folder: Path) -> None:
        config = load_namesrv_config(None, {"registrationBytesMax": "100000"})
        self.calls: list[Callable[[], None]] = []
        self.now_ms = 0.0
        self.routes = RouteTable(
            expires_after_ms=1000, limits=config.limits, on_leaving=lambda: None
        )
        self.processors = Processors(
            config,
            self.routes,
            KvTable(folder / "kv.json", maybeDeferred, Clock()),
            Guard(None, route_needs_account=False),
            self.clock_ms,
            self.calls.append,
        )

    def clock_ms(self) -> float:
        self.now_ms += 0.1
        return self.now_ms

    def end_turns(self) -> None:
        while self.calls:
            self.calls.pop()()

    def ask(self, connection: Connection, command: RemotingCommand) -> list[RemotingCommand]:
        """Asks; what is returned has the answer as soon as there is one."""
        answers: list[RemotingCommand] = []
        answer = self.processors.answer(command, connection)
        if isinstance(answer, Deferred):
            answer.addCallback(answers.append)
        else:
            answers.append(answer)
        return answers

    def register(self, connection: Connection, address: str = ADDRESS) -> list[RemotingCommand]:
        header = RegisterBrokerRequestHeader(
            broker_name=f"broker-of-{address}",
            broker_addr=address,
            cluster_name="C",
            ha_server_addr="",
            broker_id=0,
            compressed=True,
        )
        topics = {name: TopicConfig(topic_name=name) for name in NAMES}
        body = RegisterBrokerBody(topics, VERSION).encode(compressed=True)
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
        return self.ask(connection, request)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def test_a_farewell_does_not_overtake_a_registration(server: Server) -> None:
    """The broker would stand in the table until its connection ends."""
    broker = Connection()
    registered = server.register(broker)
    header = UnRegisterBrokerRequestHeader(
        broker_name=f"broker-of-{ADDRESS}", broker_addr=ADDRESS, cluster_name="C", broker_id=0
    )
    left = server.ask(broker, RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header))
    assert registered == left == []
    server.end_turns()
    assert [answer.code for answer in registered + left] == [ResponseCode.SUCCESS] * 2
    assert server.routes.clusters().broker_addr_table == {}


def test_whether_all_is_there_is_told_behind_the_registration(server: Server) -> None:
    """The broker would send all of it once more."""
    broker = Connection()
    registered = server.register(broker)
    header = QueryDataVersionRequestHeader(
        broker_name=f"broker-of-{ADDRESS}", broker_addr=ADDRESS, cluster_name="C", broker_id=0
    )
    request = RemotingCommand.request(RequestCode.QUERY_DATA_VERSION, header, VERSION.encode())
    told = server.ask(broker, request)
    # Another one does not wait for it.
    other = server.ask(Connection("10.0.0.2"), request)
    assert registered == told == [] and len(other) == 1
    server.end_turns()
    assert len(registered) == 1
    assert not told[0].header(QueryDataVersionResponseHeader).changed
    assert server.routes.topics() == NAMES


def test_what_is_made_of_compressed_registrations_counts_while_they_wait(server: Server) -> None:
    first = [server.register(Connection(), f"10.0.0.1:{port}") for port in range(1, 4)]
    # One registrant has half of the room.
    assert [[answer.code for answer in answers] for answers in first] == [
        [],
        [],
        [ResponseCode.SYSTEM_BUSY],
    ]
    second = server.register(Connection("10.0.0.2"), "10.0.0.2:1")
    assert second == []
    server.end_turns()
    assert [answer.code for answer in first[0] + first[1] + second] == [ResponseCode.SUCCESS] * 3
