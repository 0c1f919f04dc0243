"""A broker's way to name servers, on a clock of the test, and name servers at its other end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.registration.announcements import Announcements
from ledgermq.broker.registration.name_server import NameServer
from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.namesrv.guard import Guard
from ledgermq.namesrv.kv_table import KvTable
from ledgermq.namesrv.processors import Processors
from ledgermq.namesrv.registrations import RouteLimits
from ledgermq.namesrv.route_table import RouteTable
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.headers import QueryDataVersionResponseHeader, RegisterBrokerRequestHeader
from ledgermq.protocol.route import (
    BrokerData,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicRouteData,
)
from ledgermq.protocol.transport import TurnOutput
from ledgermq.state import topics as state_topics
from ledgermq.state.topics import TopicTable

REGISTER, ASK_VERSION, ASK_ROUTE, ASK_SETTINGS = 103, 322, 105, 319
ADDRESS = "10.0.0.1:10911"
BROKER_NAME = "broker-a"


class JavaNameServer:
    """The rules of Apache's name server: RouteInfoManager of 4.9.3, or of 5.x."""

    def __init__(self, *, drops_missing: bool | None = None, refuses: int = 0) -> None:
        """Knows nobody.

        Args:
            drops_missing: the setting deleteTopicWithBrokerRegistration; None: 4.9.3, without it.
            refuses: so many registrations, before it takes one.
        """
        self.drops_missing = drops_missing
        self.refuses = refuses
        self.names: dict[int, str] = {}
        self.live: dict[str, DataVersion] = {}
        self.topics: dict[str, TopicConfig] = {}
        # Each registration that was taken.
        self.registrations: list[RegisterBrokerBody] = []

    def answer(self, command: RemotingCommand) -> RemotingCommand:
        match command.code:
            case RequestCode.REGISTER_BROKER:
                return self.register(command)
            case RequestCode.QUERY_DATA_VERSION:
                header = command.ext_fields or {}
                known = self.live.get(header["brokerAddr"])
                changed = known != DataVersion.decode(command.body)
                return command.response(0, header=QueryDataVersionResponseHeader(changed=changed))
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return self.route(command)
            case RequestCode.GET_NAMESRV_CONFIG:
                text = "listenPort=9876\n"
                if self.drops_missing is not None:
                    words = str(self.drops_missing).lower()
                    text += f"deleteTopicWithBrokerRegistration={words}\n"
                return command.response(0, body=text.encode())
        raise AssertionError(f"code {command.code}")

    def register(self, command: RemotingCommand) -> RemotingCommand:
        if self.refuses:
            self.refuses -= 1
            return command.response(ResponseCode.SYSTEM_ERROR, "not now")
        header = command.header(RegisterBrokerRequestHeader)
        body = RegisterBrokerBody.decode(command.body, compressed=False)
        address, broker_id = header.broker_addr, header.broker_id
        for other in [i for i, known in self.names.items() if known == address and i != broker_id]:
            del self.names[other]
        is_newer = self.drops_missing is not None
        if is_newer and broker_id not in self.names and len(body.topic_config_table) == 1:
            return command.response(ResponseCode.SYSTEM_ERROR, "register broker failed")
        is_first = broker_id not in self.names
        self.names[broker_id] = address
        is_changed = is_first or self.live.get(address) != body.data_version
        if broker_id == 0:
            if self.drops_missing:
                for name in self.topics.keys() - body.topic_config_table.keys():
                    del self.topics[name]
            for name, topic in body.topic_config_table.items():
                if is_changed or (is_newer and name not in self.topics):
                    self.topics[name] = topic
        self.live[address] = body.data_version
        self.registrations.append(body)
        return command.response(0)

    def route(self, command: RemotingCommand) -> RemotingCommand:
        topic = (command.ext_fields or {})["topic"]
        if not self.names or topic not in self.topics:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, "no route")
        data = BrokerData(
            cluster="DefaultCluster", broker_name=BROKER_NAME, broker_addrs=self.names
        )
        return command.response(0, body=TopicRouteData(broker_datas=[data]).encode())

    def forget(self) -> None:
        """The connection closed."""
        self.names.clear()
        self.live.clear()
        self.topics.clear()


class OwnNameServer:
    """LedgerMQ's."""

    def __init__(self, folder: Path) -> None:
        limits = RouteLimits(topics_max=50_000, brokers_max=10)
        self.routes = RouteTable(expires_after_ms=120_000, limits=limits, on_leaving=lambda: None)
        kv = KvTable(folder / "kv.json", maybeDeferred, Clock())
        guard = Guard(None, route_needs_account=False)
        config = load_namesrv_config(None, {})
        self.processors = Processors(config, self.routes, kv, guard, lambda: 0.0, lambda _: None)
        self.peer_host = "10.0.0.1"
        self.certificate_names = ()
        self.is_trusted = False
        self.account: str | None = None
        self.is_open = True

    def answer(self, command: RemotingCommand) -> RemotingCommand:
        answer = self.processors.answer(command, self)
        assert isinstance(answer, RemotingCommand)
        return answer


class Rig:
    """A broker's way to one name server, and the other end of it."""

    def __init__(self, *, topic_count: int = 0, chance: float = 0.5, **changes: Any) -> None:
        self.clock = MemoryReactorClock()
        self.config = load_broker_config(None, {"brokerName": BROKER_NAME})
        self.leadership = Leadership("n0", 1)
        self.topics = TopicTable(100_000)
        self.put(BROKER_NAME, *(f"topic-{number:06}" for number in range(topic_count)))
        self.announcements = Announcements(
            self.config,
            self.leadership,
            self.topics,
            address=lambda: ADDRESS,
            ha_address=lambda: "10.0.0.1:10912",
            chance=lambda: chance,
        )
        self.follow()
        self.server = NameServer(
            self.clock,
            "10.0.0.9:9876",
            self.announcements,
            output=TurnOutput(self.clock),
            chance=lambda: 0.5,
            **{"answer_timeout_ms": 6000, **changes},
        )
        self.server.client.start()
        self.transport = StringTransport()

    def put(self, *names: str, queues: int = 8) -> None:
        for name in names:
            self.topics.put(state_topics.TopicConfig(name, queues, queues), 1_700_000_000_000)

    def follow(self, term: int = 1) -> None:
        self.leadership.changed("FOLLOWER", term, "n1")

    def lead(self, term: int = 2) -> None:
        self.leadership.changed("LEADER", term, "n0")
        self.leadership.serve()

    def pass_s(self, seconds: float) -> None:
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)

    def accept(self) -> None:
        """The newest attempt reaches the name server."""
        self.transport, self.decoder = StringTransport(), FrameDecoder()
        factory: Any = self.clock.tcpClients[-1][2]
        self.protocol = factory.buildProtocol(None)
        self.protocol.makeConnection(self.transport)

    def told(self) -> list[RemotingCommand]:
        """What came on the newest connection since it was asked last."""
        self.clock.advance(0)
        frames = self.decoder.feed(self.transport.value())
        self.transport.clear()
        return [decode(frame) for frame in frames]

    def answer(self, request: RemotingCommand, code: int = 0) -> None:
        self.reply(request.response(code, "because"))

    def reply(self, answer: RemotingCommand) -> None:
        self.protocol.dataReceived(encode(answer))

    def serve(
        self,
        answer: Callable[[RemotingCommand], RemotingCommand],
        between: Callable[[], None] = lambda: None,
    ) -> list[RemotingCommand]:
        """Answers until nothing more is asked; returns what was."""
        asked = []
        while requests := self.told():
            for request in requests:
                asked.append(request)
                self.reply(answer(request))
                between()
        return asked

    def meet(self, answer: Callable[[RemotingCommand], RemotingCommand]) -> list[RemotingCommand]:
        """Connects and is told all."""
        self.accept()
        return self.serve(answer)

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))

    def patience_s(self) -> float:
        """How long the newest connection is waited on; then it is lost and made anew."""
        begun_at = self.clock.seconds()
        while not self.transport.disconnecting:
            self.pass_s(0.01)
        waited_s = self.clock.seconds() - begun_at
        self.lose()
        self.pass_s(0.1)
        return waited_s


def table_of(command: RemotingCommand) -> RegisterBrokerBody:
    return RegisterBrokerBody.decode(command.body, compressed=False)


def names_of(command: RemotingCommand) -> list[str]:
    return list(table_of(command).topic_config_table)


def id_of(command: RemotingCommand) -> str:
    return (command.ext_fields or {})["brokerId"]
