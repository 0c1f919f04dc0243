"""The name under which brokers know a client."""

import itertools
import os
import re
import socket

import pytest

from ledgermq.client import ClientConfig, ConfigError
from ledgermq.client import instance as instance_module
from ledgermq.client.allocation import allocate
from ledgermq.client.instance import ClientInstance
from ledgermq.protocol.bodies import MessageQueue

# Longer ones are refused by brokers.
_CLIENT_ID_CHARS_MAX = 255


def first_client(monkeypatch: pytest.MonkeyPatch, config: ClientConfig) -> ClientInstance:
    """Returns the first client of the process with id 1, as programs in containers are."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(instance_module, "_numbers", itertools.count())
    monkeypatch.setattr(instance_module, "_own_host", lambda name_server: "172.17.0.2")
    return ClientInstance("127.0.0.1:9876", config)


@pytest.mark.parametrize("name", [None, "orders"])
def test_clients_of_two_containers_with_one_address_and_process_id_differ(
    monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """With one id, each would hold all queues of the group, and both would hold every lock."""
    config = ClientConfig(instance_name=name)
    ids = [first_client(monkeypatch, config).client_id for _ in range(100)]
    assert len(set(ids)) == 100
    for id_ in ids:
        assert re.fullmatch(rf"172\.17\.0\.2@{name or 1}#[0-9a-f]{{16}}", id_)
    queues = [MessageQueue("T", "b", number) for number in range(100)]
    shares = [queue for id_ in ids for queue in allocate(queues, ids, id_)]
    assert sorted(shares) == queues


def test_a_client_keeps_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    client = first_client(monkeypatch, ClientConfig())
    assert client.client_id == client.client_id


def test_messages_of_two_containers_have_different_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_module, "now_ms", lambda: 1_700_000_000_000)
    first = first_client(monkeypatch, ClientConfig())
    # What another process draws when it starts.
    monkeypatch.setattr(instance_module, "_DRAWN", instance_module._DRAWN ^ 0x5A5A5A5A)
    second = first_client(monkeypatch, ClientConfig())
    moment_ms = 1_700_000_000_000
    assert first.unique_ids.create(moment_ms) != second.unique_ids.create(moment_ms)


def test_longest_name_makes_an_id_that_brokers_take_and_a_longer_one_is_refused() -> None:
    client = ClientInstance("127.0.0.1:9876", ClientConfig(instance_name="n" * 128))
    assert len(client.client_id) <= _CLIENT_ID_CHARS_MAX
    with pytest.raises(ConfigError, match="instance_name has 129 characters; allowed: 1 to 128"):
        ClientConfig(instance_name="n" * 129)
    with pytest.raises(ConfigError, match="instance_name has 0 characters"):
        ClientConfig(instance_name="")


def test_name_of_a_name_server_is_not_looked_up_before_anything_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look-up may take seconds, and a client is made in a program's event loop."""
    asked: list[str] = []

    class Probe(socket.socket):
        def connect(self, address: tuple[str, int]) -> None:  # type: ignore[override]
            asked.append(address[0])
            super().connect(address)

    monkeypatch.setattr(socket, "socket", Probe)
    for host in ("names.example", "localhost", "[::1]"):
        client_id = ClientInstance(f"{host}:9876", ClientConfig()).client_id
        assert re.fullmatch(r"\d+\.\d+\.\d+\.\d+@.+", client_id)
    assert {re.sub(r"[0-9.]", "", host) for host in asked} == {""}
