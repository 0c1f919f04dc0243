"""Requests that change what a name server goes by, without a port."""

import re
from pathlib import Path

import pytest
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from ledgermq.namesrv import processors
from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.namesrv.guard import Guard, Need
from ledgermq.namesrv.kv_table import ORDER_TOPIC_CONFIG, KvTable
from ledgermq.namesrv.processors import Processors
from ledgermq.namesrv.registrations import Registrant, Registration, RouteLimits
from ledgermq.namesrv.route_table import RouteTable
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import GetRouteInfoRequestHeader
from ledgermq.protocol.route import DataVersion, TopicConfig, TopicList, TopicRouteData


class Place:
    """A name server that knows one topic, with an order."""

    def __init__(self, folder: Path) -> None:
        limits = RouteLimits(topics_max=10, brokers_max=10)
        routes = RouteTable(expires_after_ms=1000, limits=limits, on_leaving=lambda: None)
        routes.register(
            Registration(
                cluster_name="C",
                broker_name="b",
                broker_id=0,
                broker_addr="127.0.0.1:1",
                ha_server_addr="",
                data_version=DataVersion(timestamp=1, counter=1),
                topics={"T": TopicConfig(topic_name="T")},
                filter_servers=(),
                expires_after_ms=None,
            ),
            Registrant(key="address 10.0.0.1"),
            self,
            0,
        )
        kv = KvTable(folder / "kv.json", maybeDeferred, Clock())
        kv.put(ORDER_TOPIC_CONFIG, "T", "b:4")
        config = load_namesrv_config(None, {})
        guard = Guard(None, route_needs_account=False)
        self.routes = routes
        self.processors = Processors(config, routes, kv, guard, lambda: 0.0, lambda _: None)
        self.peer_host = "10.0.0.1"
        self.certificate_names = ()
        self.is_trusted = False
        self.account: str | None = None
        self.is_open = True

    def ask(self, code: int, body: bytes = b"") -> RemotingCommand:
        answer = self.processors.answer(RemotingCommand.request(code, None, body), self)
        assert isinstance(answer, RemotingCommand)
        return answer

    def change(self, text: str) -> RemotingCommand:
        return self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, text.encode())

    def order(self) -> str | None:
        header = GetRouteInfoRequestHeader(topic="T")
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        answer = self.processors.answer(command, self)
        assert isinstance(answer, RemotingCommand)
        return TopicRouteData.decode(answer.body).order_topic_conf

    def settings(self) -> list[str]:
        return self.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode().splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_changed_setting_counts_at_once_and_is_told(place: Place) -> None:
    assert place.order() is None
    assert place.change("orderMessageEnable=true\n").code == ResponseCode.SUCCESS
    assert place.order() == "b:4"
    assert "orderMessageEnable=true" in place.settings()
    assert place.change("").code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kvConfigPath=/etc/passwd", "kvConfigPath cannot be changed .* nothing was changed"),
        ("orderMessageEnable=true\nlistenPort=1", "listenPort cannot be changed"),
        ("orderMessageEnable=1", "allowed: true or false"),
        ("a=\\u12", "settings is "),
        ("#" + "x" * 65_536, "at most 65536 bytes"),
    ],
)
def test_what_may_not_be_changed_is_refused_with_the_reason(
    place: Place, text: str, words: str
) -> None:
    before = place.settings()
    answer = place.change(text)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert re.search(words, answer.remark or ""), answer.remark
    assert place.settings() == before and place.order() is None


def test_what_needs_no_account_changes_nothing(place: Place) -> None:
    """A code that is added stands here when everybody may use it."""
    table = place.processors.table
    assert {code for code, row in table.items() if row.need is Need.READ} == {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    }
    assert {code for code, row in table.items() if row.need is Need.REGISTER} == {
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
    }


def test_a_list_is_made_once_for_each_state_of_the_routes(place: Place) -> None:
    def topics() -> bytes:
        return place.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body

    def register(*names: str, counter: int, address: str = "127.0.0.1:1") -> None:
        told = Registration(
            cluster_name="C",
            broker_name="b",
            broker_id=0,
            broker_addr=address,
            ha_server_addr="",
            data_version=DataVersion(timestamp=1, counter=counter),
            topics={name: TopicConfig(topic_name=name) for name in names},
            filter_servers=(),
            expires_after_ms=None,
        )
        place.routes.register(told, Registrant(key="address 10.0.0.1"), place, 0)

    first = topics()
    assert topics() is first
    # What brokers say twice a minute changes nothing.
    register("T", counter=1)
    assert topics() is first
    register("T", "U", counter=2)
    assert TopicList.decode(topics()).topic_list == ["T", "U"]
    place.routes.delete_topic("T")
    assert TopicList.decode(topics()).topic_list == ["U"]
    system = place.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body
    assert TopicList.decode(system).broker_addr == "127.0.0.1:1"
    register("U", counter=2, address="127.0.0.1:2")
    system = place.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body
    assert TopicList.decode(system).broker_addr == "127.0.0.1:2"
    place.routes.owner_lost(place)
    assert TopicList.decode(topics()).topic_list == []
    for number in range(1000):
        command = RemotingCommand.request(RequestCode.GET_TOPICS_BY_CLUSTER)
        command.ext_fields = {"cluster": f"c-{number}"}
        place.processors.answer(command, place)
    # Nobody drives out what others want by asking for clusters that are not there.
    assert len(vars(place.processors)["_lists"]) <= 3


def test_a_large_route_is_encoded_once_for_each_state_of_the_routes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "_LARGE_ROUTE_BYTES", 500)

    def register(number: int, perm: int = 6, *servers: str) -> None:
        told = Registration(
            cluster_name="C",
            broker_name=f"b-{number:03}",
            broker_id=0,
            broker_addr=f"10.0.0.1:{10_000 + number}",
            ha_server_addr="",
            data_version=DataVersion(timestamp=1, counter=perm),
            topics={"T": TopicConfig(topic_name="T", perm=perm)},
            filter_servers=servers,
            expires_after_ms=None,
        )
        place.routes.register(told, Registrant(key="address 10.0.0.1"), place, 0)

    def route(version: int = 0) -> bytes:
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        command.ext_fields, command.version = {"topic": "T"}, version
        answer = place.processors.answer(command, place)
        assert isinstance(answer, RemotingCommand) and answer.code == 0
        return answer.body

    first = None
    for number in range(9):
        register(number)
        assert route() is not first
        first = route()
    assert route() is first
    assert b'{"0":' in route(version=500) and b"{0:" in route()
    register(7, 4)
    assert route() is not first and b'"perm":4' in route()
    for change in (
        lambda: register(8, 6, "f:1"),
        lambda: place.routes.set_write_perm("b-003", writable=False),
        lambda: place.routes.owner_lost(place),
    ):
        before = route()
        change()
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        command.ext_fields = {"topic": "T"}
        after = place.processors.answer(command, place)
        assert isinstance(after, RemotingCommand) and after.body != before
