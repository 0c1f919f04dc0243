"""The configuration keys of what clients may cost; `keys.py` has the whole table."""

from typing import Final

from ledgermq.broker.config.key import GIB, I32_MAX, I64_MAX, integer

COST_KEYS: Final = (
    integer(
        "slowRequestMs",
        "slow_request_ms",
        500,
        "ms",
        0,
        600_000,
        "A request that takes longer is told in the log, with what it waited for; 0: none is.",
    ),
    integer(
        "receiveBudgetBytes",
        "receive_budget_bytes",
        0,
        "bytes",
        0,
        1024 * GIB,
        "Requests that came in and are not worked on, unfinished ones included, of all clients"
        " together; 0: an eighth of the machine's memory, from 64 MiB to 1 GiB.",
    ),
    integer(
        "sendBudgetBytes",
        "send_budget_bytes",
        0,
        "bytes",
        0,
        1024 * GIB,
        "Answers that their clients have not read, of all clients together; 0: an eighth of the"
        " machine's memory, from 64 MiB to 1 GiB.",
    ),
    integer(
        "maxUnsignedFrameBytes",
        "unsigned_frame_bytes_max",
        65_536,
        "bytes",
        4096,
        16 << 20,
        "With access control: largest request of a connection before its first valid signature,"
        " unless it names an account that is there.",
    ),
    integer(
        "maxMessagesPerSecond",
        "account_messages_s",
        0,
        "messages/s",
        0,
        I32_MAX,
        "Messages and other requests of one account a second; 0: as many as it likes. A member of"
        " that name in its rules goes before.",
    ),
    integer(
        "maxBytesPerSecond",
        "account_bytes_s",
        0,
        "bytes/s",
        0,
        I64_MAX,
        "The same for bytes of requests.",
    ),
    integer(
        "maxConnectionsPerAccount",
        "account_connections",
        0,
        "connections",
        0,
        I32_MAX,
        "Open connections of one account; 0: as many as it likes. The member maxConnections of"
        " its rules goes before.",
    ),
)
