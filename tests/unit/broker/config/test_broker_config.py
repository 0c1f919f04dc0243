"""The configuration: upstream's files in, typed fields out, wrong values refused with numbers."""

from pathlib import Path

import pytest

from ledgermq.broker.config.broker_config import effective_properties, load_broker_config
from ledgermq.broker.config.ignored_keys import IGNORED_KEYS
from ledgermq.broker.config.key import Kind
from ledgermq.broker.config.keys import KEY_BY_NAME, KEYS
from ledgermq.broker.service.member import replica_config
from ledgermq.state.errors import ConfigError

GROUP_FILE = """
# Upstream's sample of a DLedger member.
brokerClusterName = RaftCluster
brokerName=RaftNode00
listenPort=30911
namesrvAddr=127.0.0.1:9876;127.0.0.1:9877
storePathRootDir=/tmp/rmqstore/node00
storePathCommitLog=/tmp/rmqstore/node00/commitlog
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913
## must be unique
dLegerSelfId=n1
sendMessageThreadPoolNums=16
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(text, encoding="utf-8")
    return path


def test_group_file_of_upstream_is_read_as_it_is(tmp_path: Path) -> None:
    config = load_broker_config(write(tmp_path, GROUP_FILE))
    assert config.cluster_name == "RaftCluster"
    assert config.listen_port == 30911
    assert config.namesrv_addresses == ("127.0.0.1:9876", "127.0.0.1:9877")
    assert config.store_root == Path("/tmp/rmqstore/node00")
    assert [str(peer) for peer in config.ledger_peers][1] == "n1-127.0.0.1:40912"
    assert config.own_peer.port == 40912
    assert config.follower_broker_id == 2
    assert config.ineffective_keys == ("sendMessageThreadPoolNums",)
    assert config.commit_log_path == Path("/tmp/rmqstore/node00/commitlog")
    assert not config.wants_plain_log
    assert config.unknown_keys == ()


def test_absent_flush_type_means_durable_answers() -> None:
    assert load_broker_config(None).flush_disk_type == "SYNC_FLUSH"
    config = load_broker_config(None, {"flushDiskType": "ASYNC_FLUSH"})
    assert config.flush_disk_type == "ASYNC_FLUSH"


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    config = load_broker_config(write(tmp_path, GROUP_FILE), {"listenPort": "1234"})
    assert config.listen_port == 1234


def test_unknown_keys_are_kept_for_one_report() -> None:
    config = load_broker_config(None, {"brokrName": "x", "useTLS": "false"})
    assert config.unknown_keys == ("brokrName",)
    assert config.ineffective_keys == ("useTLS",)


def test_plain_broker_is_a_group_of_one() -> None:
    config = load_broker_config(None, {"brokerName": "alone"})
    assert (config.ledger_group, config.ledger_self_id) == ("alone", "n0")
    assert len(config.ledger_peers) == 1
    assert not replica_config(config).listens


@pytest.mark.parametrize(
    ("entries", "is_wanted"),
    [
        ({}, False),
        ({"enableDLegerCommitLog": "false"}, True),
        ({"brokerRole": "SLAVE", "brokerId": "1"}, True),
        ({"brokerRole": "SYNC_MASTER"}, True),
        ({"brokerRole": "ASYNC_MASTER"}, False),
    ],
)
def test_plain_log_is_wanted_in_so_many_words(entries: dict[str, str], is_wanted: bool) -> None:
    config = load_broker_config(None, {"storePathRootDir": "/s", **entries})
    assert config.wants_plain_log is is_wanted
    assert config.commit_log_path == Path("/s/commitlog")


def test_loopback_address_listens_on_loopback_only() -> None:
    assert load_broker_config(None, {"brokerIP1": "127.0.0.1"}).bind_host == "127.0.0.1"
    assert load_broker_config(None, {"brokerIP1": "10.0.0.1"}).bind_host == "0.0.0.0"


GROUP = {"enableDLegerCommitLog": "true", "dLegerPeers": "n0-h:1", "dLegerSelfId": "n0"}


@pytest.mark.parametrize(
    ("entries", "key", "allowed"),
    [
        ({"listenPort": "70000"}, "listenPort", "0 to 65535"),
        ({"listenPort": "ten"}, "listenPort", "0 to 65535"),
        ({"autoCreateTopicEnable": "yes"}, "autoCreateTopicEnable", "true or false"),
        ({"flushDiskType": "NO_FLUSH"}, "flushDiskType", "SYNC_FLUSH or ASYNC_FLUSH"),
        ({"maxMessageSize": "4194305"}, "maxMessageSize", "4194304"),
        ({"mappedFileSizeCommitLog": "4194304"}, "mappedFileSizeCommitLog", "maxMessageSize"),
        ({"mappedFileSizeConsumeQueue": "6000001"}, "mappedFileSizeConsumeQueue", "20"),
        ({"mappedFileSizeDLedgerIndex": "167772161"}, "mappedFileSizeDLedgerIndex", "32"),
        ({"deleteWhen": "4;25"}, "deleteWhen", "23"),
        ({"namesrvAddr": "localhost"}, "namesrvAddr", "host:port"),
        ({"aclEnable": "yes"}, "aclEnable", "true or false"),
        ({"storePathCommitLog": "/a,/b"}, "storePathCommitLog", "one folder"),
        ({"brokerName": "a b"}, "brokerName", "characters"),
        ({**GROUP, "dLegerSelfId": "n9"}, "dLegerSelfId", "dLegerPeers"),
        ({**GROUP, "dLegerSelfId": "0"}, "dLegerSelfId", "a letter"),
        ({**GROUP, "dLegerPeers": "n0-h"}, "dLegerPeers", "id-host:port"),
        ({**GROUP, "dLegerPeers": "n0-h:1;n0-h:2"}, "dLegerPeers", "each id once"),
        ({**GROUP, "dLegerPeers": "n0-h:1;n1-h:1"}, "dLegerPeers", "each address once"),
        ({**GROUP, "dLegerPeers": "n0-h:1;node1-h:2"}, "dLegerPeers", "a letter"),
        ({**GROUP, "preferredLeaderId": "n0;n7"}, "preferredLeaderId", "dLegerPeers"),
        ({**GROUP, "dLegerFounderIds": "n0;n7"}, "dLegerFounderIds", "dLegerPeers"),
        (
            {**GROUP, "dLegerPeers": "n0-h:1;n1-h:2", "dLegerFounderIds": "n0;n0"},
            "dLegerFounderIds",
            "2 or",
        ),
        ({"brokerRole": "SLAVE"}, "brokerId", "1 and above"),
        ({"haHousekeepingInterval": "9000"}, "haHousekeepingInterval", "5000 ms"),
        ({"haMasterAddress": "10.0.0.1"}, "haMasterAddress", "host:port"),
        ({"haMasterAddress": "a:1;b:1"}, "haMasterAddress", "one host:port"),
        ({"minVoteIntervalMs": "5", "maxVoteIntervalMs": "5"}, "minVoteIntervalMs", "less than"),
    ],
)
def test_wrong_value_is_refused_with_key_value_and_range(
    entries: dict[str, str], key: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker_config(None, entries)
    assert caught.value.key == key
    assert caught.value.value in str(caught.value)
    assert allowed in caught.value.allowed


def test_register_period_is_taken_into_its_range() -> None:
    assert load_broker_config(None, {"registerNameServerPeriod": "1"}).register_period_ms == 10_000
    config = load_broker_config(None, {"registerNameServerPeriod": "99999"})
    assert config.register_period_ms == 60_000


def test_effective_properties_load_again_to_the_same_settings() -> None:
    config = load_broker_config(None, {**GROUP, "deleteWhen": "04;16", "namesrvAddr": "a:1;b:2"})
    again = load_broker_config(None, effective_properties(config))
    assert again == config


def test_table_of_keys_is_complete_and_consistent() -> None:
    assert not IGNORED_KEYS & set(KEY_BY_NAME)
    for key in KEYS:
        assert key.doc.endswith("."), key.name
        if key.kind is Kind.INTEGER:
            assert key.low is not None and key.high is not None and key.default is not None
            assert key.low <= int(key.default) <= key.high, key.name
