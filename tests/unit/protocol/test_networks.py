"""For whom something is counted that came from an address."""

import pytest

from ledgermq.protocol.networks import network_of
from ledgermq.protocol.transport.turn_shares import payer_of


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        # All neighbours share it.
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_network_of(host: str, network: str) -> None:
    assert network_of(host) == network


class Connection:
    """A peer without an account, unless it has one."""

    def __init__(self, peer_host: str, account: str | None = None) -> None:
        self.peer_host = peer_host
        self.account = account


def test_something_is_done_for_an_account_or_for_a_network() -> None:
    assert payer_of(Connection("2001:db8:1:2::9")) == "2001:db8:1:2::/64"
    assert payer_of(Connection("10.0.0.1")) == "10.0.0.1"
    assert payer_of(Connection("2001:db8:1:2::9", "alice")) == "alice"
