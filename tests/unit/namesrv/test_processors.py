"""Requests that change what a name server goes by, without a port."""

import re
from pathlib import Path

import pytest

from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.namesrv.kv_table import ORDER_TOPIC_CONFIG, KvTable
from ledgermq.namesrv.processors import Processors
from ledgermq.namesrv.route_table import Registration, RouteTable
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import GetRouteInfoRequestHeader
from ledgermq.protocol.route import DataVersion, TopicConfig, TopicRouteData


class Place:
    """A name server that knows one topic, with an order."""

    def __init__(self, folder: Path) -> None:
        routes = RouteTable(expires_after_ms=1000, topics_max=10, brokers_max=10)
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
            self,
            0,
        )
        kv = KvTable(folder / "kv.json")
        kv.put(ORDER_TOPIC_CONFIG, "T", "b:4")
        self.processors = Processors(load_namesrv_config(None, {}), routes, kv, lambda: 0.0)

    def ask(self, code: int, body: bytes = b"") -> RemotingCommand:
        command = RemotingCommand.request(code, None, body)
        return self.processors.answer(command, self)

    def change(self, text: str) -> RemotingCommand:
        return self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, text.encode())

    def order(self) -> str | None:
        header = GetRouteInfoRequestHeader(topic="T")
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        command.ext_fields = {"topic": "T"}
        return TopicRouteData.decode(self.processors.answer(command, self).body).order_topic_conf

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
