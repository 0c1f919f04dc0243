"""A name server in its own process, seen from the wire."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from ledgermq.cli.remote import RefusedError, Remote
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import (
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
)
from ledgermq.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicRouteData,
)
from tests.processes import name_server
from tests.waiting import wait_until

BROKER = "127.0.0.1:10911"


def register(remote: Remote, *, compressed: bool = False, body_crc32: int = 0) -> None:
    body = RegisterBrokerBody(
        topic_config_table={"TopicA": TopicConfig(topic_name="TopicA")},
        data_version=DataVersion(timestamp=1, counter=1),
    )
    header = RegisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_addr=BROKER,
        cluster_name="C1",
        ha_server_addr=BROKER,
        broker_id=0,
        compressed=compressed,
        body_crc32=body_crc32,
    )
    remote.ask_name_server(RequestCode.REGISTER_BROKER, header, body.encode(compressed=compressed))


@pytest.mark.parametrize("compressed", [False, True])
def test_registered_broker_is_in_the_route_until_it_leaves(
    tmp_path: Path, compressed: bool
) -> None:
    with name_server(tmp_path) as address, Remote(address) as client:
        with Remote(address) as broker:
            register(broker, compressed=compressed)
            route = client.route("TopicA")
            assert route.broker_datas[0].broker_addrs == {0: BROKER}
            assert client.masters("C1") == [BROKER]
        wait_until(lambda: find_route(client) is None, what="the broker to leave the route")


def find_route(remote: Remote) -> TopicRouteData | None:
    try:
        return remote.route("TopicA")
    except RefusedError as error:
        assert error.code == ResponseCode.TOPIC_NOT_EXIST
        text = "No topic route info in name server for the topic: TopicA"
        assert error.remark is not None and error.remark.startswith(text)
        return None


def test_wrong_checksum_is_refused_and_nothing_registered(tmp_path: Path) -> None:
    with name_server(tmp_path) as address, Remote(address) as remote:
        with pytest.raises(RefusedError, match="crc32 not match"):
            register(remote, body_crc32=12345)
        assert remote.clusters().broker_addr_table == {}


def test_full_table_names_its_limit(tmp_path: Path) -> None:
    with name_server(tmp_path, "topicsMax=1") as address, Remote(address) as remote:
        register(remote)
        body = RegisterBrokerBody(
            topic_config_table={n: TopicConfig(topic_name=n) for n in ("T1", "T2")},
            data_version=DataVersion(timestamp=1, counter=2),
        )
        header = RegisterBrokerRequestHeader(
            broker_name="broker-b",
            broker_addr="127.0.0.1:1",
            cluster_name="C1",
            ha_server_addr="",
            broker_id=0,
        )
        with pytest.raises(RefusedError, match="topicsMax: 3 is over the limit of 1"):
            remote.ask_name_server(RequestCode.REGISTER_BROKER, header, body.encode())


def test_bad_requests_are_answered_and_the_connection_goes_on(tmp_path: Path) -> None:
    with name_server(tmp_path) as address, Remote(address) as remote:
        with pytest.raises(RefusedError, match="999 not supported"):
            remote.ask_name_server(999)
        with pytest.raises(RefusedError, match="topic"):
            remote.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        with pytest.raises(RefusedError) as refused:
            remote.ask_name_server(RequestCode.QUERY_DATA_VERSION, body=b"\xff{")
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
        assert remote.clusters().cluster_addr_table == {}


def test_unframeable_bytes_close_only_their_connection(tmp_path: Path) -> None:
    with name_server(tmp_path) as address, Remote(address) as remote:
        register(remote)
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as bad:
            bad.sendall(struct.pack(">i", 2_000_000_000) + b"x" * 100)
            assert bad.recv(100) == b""
        assert remote.masters("C1") == [BROKER]


def test_key_value_table_survives_a_restart(tmp_path: Path) -> None:
    for round_number in range(2):
        with name_server(tmp_path) as address, Remote(address) as remote:
            if round_number == 0:
                header = PutKVConfigRequestHeader(namespace="NS", key="k", value="wert-ü")
                remote.ask_name_server(RequestCode.PUT_KV_CONFIG, header)
            asked = GetKVConfigRequestHeader(namespace="NS", key="k")
            answer = remote.ask_name_server(RequestCode.GET_KV_CONFIG, asked)
            assert answer.header(GetKVConfigResponseHeader).value == "wert-ü"
