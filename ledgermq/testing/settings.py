"""Settings of the brokers of a cluster inside a test: small files, no waits that a test would feel.

What a test says wins, but for what makes the cluster one: addresses, folders, membership.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ledgermq.testing.ports import LOOPBACK

BROKER_NAME: Final = "broker-a"
CLUSTER_NAME: Final = "DefaultCluster"

Setting = str | int | bool

_MIB: Final = 1024 * 1024
_DEFAULTS: Final = {
    # What was acknowledged has to survive a kill of a node, not a power cut of this machine.
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": str(8 * _MIB),
    "mappedFileSizeDLedgerIndex": str(_MIB),
    "mappedFileSizeConsumeQueue": "100000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    # A cluster begins with an election. The heart beats are the usual ones: a machine that is busy
    # for half a second shall not cause another.
    "minVoteIntervalMs": "10",
    "maxVoteIntervalMs": "50",
    # All brokers have one clock, which tests move by leaps.
    "ledgerClockSkewMax": "0",
    # A clock that is weeks ahead makes no message too old, and a laptop's disk may be rather full.
    "fileReservedTime": "1000000",
    "diskMaxUsedSpaceRatio": "95",
    "scrubBytesPerSecond": "0",
    # All clients come from one address, perhaps many a second.
    "maxConnectionsPerAddress": "10000",
    "maxNewConnectionsPerAddress": "100000",
    "maxNewTopicsPerAddress": "100000",
    "maxNewTopicsPerAccount": "100000",
    "maxNewGroupsPerAddress": "100000",
    "maxNewGroupsPerAccount": "100000",
}
# What the cluster says itself.
_OWN: Final = frozenset(
    {
        "bindAddress", "brokerClusterName", "brokerIP1", "brokerName", "dLegerGroup", "dLegerPeers",
        "dLegerSelfId", "enableDLegerCommitLog", "listenPort", "namesrvAddr", "storePathRootDir",
        "vipChannelEnable",
    }
)  # fmt: skip


def broker_settings(
    given: Mapping[str, Setting],
    *,
    name: str,
    peers: str,
    port: int,
    name_server: str,
    folder: Path,
) -> dict[str, str]:
    """Returns the settings of one broker, with the keys of its configuration file.

    Args:
        given: by the test.
        name: of the node; its id in the group.
        peers: the group, as the key dLegerPeers has it.

    Raises:
        ValueError: the test sets what only the cluster can.
    """
    refused = sorted(_OWN & given.keys())
    if refused:
        raise ValueError(f"the cluster itself sets {', '.join(refused)}")
    return {
        **_DEFAULTS,
        **{key: _text(value) for key, value in given.items()},
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": BROKER_NAME,
        "brokerIP1": LOOPBACK,
        "listenPort": str(port),
        "namesrvAddr": name_server,
        "storePathRootDir": str(folder),
        "enableDLegerCommitLog": "true",
        "dLegerGroup": BROKER_NAME,
        "dLegerPeers": peers,
        "dLegerSelfId": name,
    }


def name_server_settings(port: int, folder: Path) -> dict[str, str]:
    """Returns the settings of the name server."""
    return {
        "listenPort": str(port),
        "bindAddress": LOOPBACK,
        "kvConfigPath": str(folder / "kvConfig.json"),
    }


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
