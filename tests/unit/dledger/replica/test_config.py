"""The peer list and the settings of a running member."""

from typing import Any

import pytest

from ledgermq.dledger.replica.config import (
    ConfigValueError,
    PeerAddress,
    ReplicaConfig,
    parse_peers,
)

PEERS = "n0-127.0.0.1:40911;n1-127.0.0.1:40921;n2-my-host.example:40931"


def config_of(**changes: Any) -> ReplicaConfig:
    fields: dict[str, Any] = {"group": "g", "self_id": "n0", "peers": PEERS}
    return ReplicaConfig(**(fields | changes))


def test_peers_are_read_in_order() -> None:
    assert parse_peers(PEERS + ";") == {
        "n0": PeerAddress("127.0.0.1", 40911),
        "n1": PeerAddress("127.0.0.1", 40921),
        "n2": PeerAddress("my-host.example", 40931),
    }
    assert parse_peers("a-[::1]:1") == {"a": PeerAddress("::1", 1)}


@pytest.mark.parametrize(
    ("peers", "said"),
    [
        ("", "at least one"),
        ("n0", "'n0'"),
        ("n0-host", "'n0-host'"),
        ("n0-host:", "id-host:port"),
        ("n0-:1", "id-host:port"),
        ("-host:1", "id-host:port"),
        ("n 0-host:1", "id-host:port"),
        ("n0-host:x1", "id-host:port"),
        ("n0-host:0", "1 to 65535"),
        ("n0-host:65536", "1 to 65535"),
        ("n0-host:99999999999999", "id-host:port"),
        ("n0-a:1;n0-b:1", "'n0' stands twice"),
        ("n0-a:1;n1-a:1", "a:1 stands twice"),
    ],
)
def test_bad_peers_are_refused_with_key_and_value(peers: str, said: str) -> None:
    with pytest.raises(ConfigValueError, match="^peers is ") as refused:
        parse_peers(peers)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("self_id", "n3"),
        ("group", ""),
        ("flush_interval_ms", 0),
        ("reconnect_max_ms", 1),
        ("proposals_max", 0),
    ],
)
def test_bad_value_is_refused_with_its_key(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{key} is {value!r}, allowed: "):
        config_of(**{key: value})


def test_core_is_told_the_same() -> None:
    core = config_of(push_frames_max=2).core()
    assert (core.group, core.self_id, core.members) == ("g", "n0", ("n0", "n1", "n2"))
    assert core.push_frames_max == 2
