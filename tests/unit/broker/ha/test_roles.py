"""How long a send may wait, and what name servers tell slaves, by role and log."""

from pathlib import Path

import pytest

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.ha.roles import answer_ms_max, ha_address


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 2500),
        ({"brokerRole": "SYNC_MASTER"}, 4000),
        ({"brokerRole": "ASYNC_MASTER"}, 2500),
        ({"enableDLegerCommitLog": "false"}, 2500),
        ({"enableDLegerCommitLog": "false", "brokerRole": "SYNC_MASTER"}, 4000),
        (
            {
                "enableDLegerCommitLog": "false",
                "brokerRole": "SYNC_MASTER",
                "slaveTimeout": "100",
            },
            2500,
        ),
    ],
)
def test_a_wait_for_a_slave_ends_before_the_send_does(
    tmp_path: Path, settings: dict[str, str], expected: int
) -> None:
    config = load_broker_config(None, {"storePathRootDir": str(tmp_path), **settings})
    assert answer_ms_max(config) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"brokerIP1": "10.0.0.1"}, "10.0.0.1:10912"),
        ({"brokerIP1": "10.0.0.1", "brokerIP2": "10.1.0.1"}, "10.1.0.1:10912"),
        ({"brokerIP1": "10.0.0.1", "haListenPort": "9"}, "10.0.0.1:9"),
        ({"brokerIP1": "10.0.0.1", "listenPort": "20911"}, "10.0.0.1:20912"),
    ],
)
def test_slaves_are_told_the_port_beside_that_of_clients(
    settings: dict[str, str], expected: str
) -> None:
    assert ha_address(load_broker_config(None, settings), None) == expected
