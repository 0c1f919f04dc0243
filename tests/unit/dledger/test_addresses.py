"""The list of a group's members and where they listen."""

import pytest

from ledgermq.dledger.addresses import ConfigValueError, PeerAddress, parse_peers

PEERS = "n0-127.0.0.1:40911;n1-127.0.0.1:40921;n2-my-host.example:40931"


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
