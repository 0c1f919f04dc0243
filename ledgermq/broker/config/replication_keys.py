"""The configuration keys of master and slave without a ledger; `keys.py` has the whole
table.
"""

from typing import Final

from ledgermq.broker.config.key import GIB, I32_MAX, integer, text_key

REPLICATION_KEYS: Final = (
    integer(
        "brokerId",
        "broker_id",
        0,
        "",
        0,
        I32_MAX,
        "Number of a SLAVE, above 0; masters are 0, members of a group have theirs plus 1.",
    ),
    text_key("brokerIP2", "ha_host", None, "Address of a master told to its slaves; brokerIP1."),
    integer(
        "haListenPort",
        "ha_listen_port",
        0,
        "",
        0,
        65535,
        "Port of a master for its slaves; 0: listenPort + 1.",
    ),
    text_key(
        "haMasterAddress",
        "ha_master_address",
        "",
        "host:port where a SLAVE copies; empty: as the name server says.",
    ),
    integer(
        "haTransferBatchSize",
        "ha_batch_bytes",
        32_768,
        "bytes",
        1,
        (4 << 20) - 12,
        "Most bytes of the log that a master sends in one piece.",
    ),
    integer(
        "haSendHeartbeatInterval",
        "ha_heartbeat_ms",
        5000,
        "ms",
        10,
        600_000,
        "After so long without anything else master and slave send a sign of life.",
    ),
    integer(
        "haHousekeepingInterval",
        "ha_silence_ms",
        20_000,
        "ms",
        20,
        3_600_000,
        "A master or slave silent for this long is given up.",
    ),
    integer(
        "haSlaveFallbehindMax",
        "slave_behind_bytes",
        256 << 20,
        "bytes",
        1,
        1024 * GIB,
        "A slave so far behind counts as none for a SYNC_MASTER.",
    ),
    integer(
        "slaveTimeout",
        "slave_timeout_ms",
        3000,
        "ms",
        1,
        600_000,
        "Longest wait of a send to a SYNC_MASTER for a slave.",
    ),
    integer(
        "accessMessageInMemoryMaxRatio",
        "memory_percent",
        40,
        "%",
        1,
        100,
        "A reader that is behind by more than this part of the memory is slow (slaveReadEnable).",
    ),
)
