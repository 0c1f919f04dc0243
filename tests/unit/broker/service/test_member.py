"""Settings of the ledger member: where its port listens."""

import pytest

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.service.member import replica_config


@pytest.mark.parametrize(
    ("host", "listens_at"),
    [("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("localhost", "127.0.0.1")],
)
def test_a_member_on_loopback_listens_where_the_others_look_for_it(
    host: str, listens_at: str
) -> None:
    keys = {
        "enableDLegerCommitLog": "true",
        "dLegerPeers": f"n0-127.0.0.1:40911;n1-{host}:40921",
        "dLegerSelfId": "n1",
    }
    assert replica_config(load_broker_config(None, keys)).listen_host == listens_at


def test_a_member_beyond_loopback_listens_at_all_addresses() -> None:
    keys = {
        "enableDLegerCommitLog": "true",
        "dLegerPeers": "n0-10.0.0.1:40911;n1-10.0.0.2:40911",
        "dLegerSelfId": "n1",
        "brokerIP1": "10.0.0.2",
    }
    assert replica_config(load_broker_config(None, keys)).listen_host == ""
