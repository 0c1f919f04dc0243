"""With access control, a port on which no account is asked for stops the start beyond loopback."""

from pathlib import Path

import pytest

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.config.open_ports import check_open_ports, find_open_port, find_plain_links
from ledgermq.state.errors import ConfigError

ACL = {"aclEnable": "true", "brokerIP1": "10.0.0.1"}
GROUP = {"enableDLegerCommitLog": "true", "dLegerSelfId": "n0"}
FAR = {**GROUP, "dLegerPeers": "n0-10.0.0.1:40911;n1-10.0.0.2:40911"}
MASTER = {"enableDLegerCommitLog": "false", "brokerRole": "ASYNC_MASTER", "listenPort": "10911"}


@pytest.mark.parametrize(
    ("keys", "open_port"),
    [
        (FAR, "dLegerPeers"),
        ({**FAR, "dLegerPeers": "n0-broker-a:40911"}, "dLegerPeers"),
        ({**FAR, "dLegerToolAddresses": "none", "dLegerJavaMembers": "none"}, "dLegerPeers"),
        (MASTER, "haListenPort"),
        ({**MASTER, "bindAddress": "0.0.0.0"}, "haListenPort"),
        ({**FAR, "aclEnable": "false"}, None),
        ({**FAR, "dLegerGroupSecretFile": "group.secret"}, None),
        ({**FAR, "tls.ledger.config.file": "tls.properties"}, None),
        ({**FAR, "tls.ledger.config.file": "x", "tls.ledger.mode": "disabled"}, "dLegerPeers"),
        # Slaves show no certificates.
        ({**MASTER, "tls.ledger.config.file": "tls.properties"}, "haListenPort"),
        ({**GROUP, "dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912"}, None),
        ({**GROUP, "dLegerPeers": "n0-localhost:40911"}, None),
        # The ledger of one listens on loopback.
        ({}, None),
        ({**MASTER, "bindAddress": "127.0.0.1"}, None),
        ({**MASTER, "haSlaveAddresses": "10.0.0.2"}, None),
        ({**MASTER, "haSlaveAddresses": "none"}, None),
        ({**MASTER, "brokerRole": "SLAVE", "brokerId": "1"}, None),
    ],
)
def test_a_port_without_accounts_is_found(keys: dict[str, str], open_port: str | None) -> None:
    assert find_open_port(load_broker_config(None, {**ACL, **keys})) == open_port


def test_the_start_ends_with_the_key_to_set(tmp_path: Path) -> None:
    config = load_broker_config(None, {**ACL, **FAR, "storePathRootDir": str(tmp_path)})
    with pytest.raises(ConfigError) as caught:
        check_open_ports(config)
    assert caught.value.key == "dLegerGroupSecretFile"
    assert "port 40911 (dLegerPeers)" in str(caught.value)


SECRET = {"dLegerGroupSecretFile": "group.secret"}
TLS = {"tls.ledger.config.file": "tls.properties"}


@pytest.mark.parametrize(
    ("keys", "port"),
    [
        ({**FAR, **SECRET}, "40911"),
        ({**FAR, **SECRET, **TLS, "tls.ledger.mode": "disabled"}, "40911"),
        ({**FAR, **SECRET, "dLegerPeers": "n0-127.0.0.1:40911;n1-10.0.0.2:40911"}, "40911"),
        ({**MASTER, **SECRET}, "10912"),
        ({**FAR, **SECRET, **TLS}, None),
        ({**MASTER, **SECRET, **TLS}, None),
        ({**MASTER, **SECRET, "bindAddress": "127.0.0.1"}, None),
        ({**MASTER, **SECRET, "brokerRole": "SLAVE", "brokerId": "1"}, None),
        ({**GROUP, **SECRET, "dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912"}, None),
        # Of a group of one nothing goes to others.
        ({**GROUP, **SECRET, "dLegerPeers": "n0-10.0.0.1:40911"}, None),
        (FAR, None),
    ],
)
def test_links_that_a_secret_alone_leaves_readable_are_told(
    keys: dict[str, str], port: str | None
) -> None:
    told = find_plain_links(load_broker_config(None, {**ACL, **keys}))
    if port is None:
        assert told is None
    else:
        assert told is not None
        assert f"port {port} " in told
        assert "dLegerGroupSecretFile without tls.ledger.config.file" in told
