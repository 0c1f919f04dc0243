"""The table of configuration keys: upstream's names, our fields, defaults, units, ranges and one
line of explanation.

`KEYS` lists every key that changes something here; `conf/` and docs/broker.md explain the same
keys. Keys of upstream's files that have no effect in this broker are in `config_ignored.py`.
`config.py` turns a file into typed fields.
"""

from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """How the text of a value is read."""

    INTEGER = "integer"
    BOOLEAN = "boolean"
    TEXT = "text"


class Key(NamedTuple):
    """One configuration key.

    Attributes:
        name: the key in the file, as upstream spells it where upstream has it.
        field: the field of BrokerConfig.
        kind: how the text is read.
        default: text used when the key is absent; `None` means that `config.py` derives the value.
        unit: unit of the value, or an empty string.
        low: smallest allowed number, `None` for text.
        high: largest allowed number, `None` for text.
        choices: allowed texts; empty means any.
        doc: what the key does, one sentence.
    """

    name: str
    field: str
    kind: Kind
    default: str | None
    unit: str
    low: int | None
    high: int | None
    choices: tuple[str, ...]
    doc: str


_I32_MAX: Final = 2**31 - 1
_I64_MAX: Final = 2**63 - 1
_GIB: Final = 1 << 30


def _integer(name: str, field: str, default: int, unit: str, low: int, high: int, doc: str) -> Key:
    return Key(name, field, Kind.INTEGER, str(default), unit, low, high, (), doc)


def _switch(name: str, field: str, default: bool, doc: str) -> Key:
    text = "true" if default else "false"
    return Key(name, field, Kind.BOOLEAN, text, "", None, None, ("true", "false"), doc)


def _text(
    name: str, field: str, default: str | None, doc: str, choices: tuple[str, ...] = ()
) -> Key:
    return Key(name, field, Kind.TEXT, default, "", None, None, choices, doc)


_IDENTITY: Final = (
    _text("brokerClusterName", "cluster_name", "DefaultCluster", "Cluster this broker joins."),
    _text("brokerName", "broker_name", None, "Name of the group of replicas; the host name."),
    _text("brokerIP1", "address_host", None, "Address told to clients; the first local address."),
    _text("bindAddress", "bind_host", None, "Address to listen on; all, or brokerIP1 on loopback."),
    _integer(
        "listenPort", "listen_port", 10911, "", 0, 65535, "Port for clients; 0 takes a free one."
    ),
    _text(
        "namesrvAddr", "namesrv_addresses", "", "Name servers, host:port joined with a semicolon."
    ),
    _integer(
        "registerNameServerPeriod",
        "register_period_ms",
        30_000,
        "ms",
        1,
        _I32_MAX,
        "Time between two registrations; taken into 10,000 to 60,000.",
    ),
    _integer(
        "registerBrokerTimeoutMills",
        "register_timeout_ms",
        6000,
        "ms",
        1,
        _I32_MAX,
        "Longest wait for the answer to a registration.",
    ),
    _text("regionId", "region_id", "DefaultRegion", "Region told to tracing clients."),
    _switch("traceOn", "is_trace_on", True, "Whether clients are told to trace."),
    _text(
        "aclEnable",
        "acl_enable",
        "false",
        "Access control is not part of this release: true refuses to start.",
        ("false",),
    ),
    _text(
        "brokerRole",
        "broker_role",
        "ASYNC_MASTER",
        "The ledger decides about roles: any value in a group; SLAVE of a plain master is refused.",
        ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    ),
)

_TOPICS: Final = (
    _integer("brokerPermission", "broker_permission", 6, "bits", 0, 7, "4 read, 2 write."),
    _integer(
        "defaultTopicQueueNums",
        "default_queue_count",
        8,
        "queues",
        1,
        1024,
        "Queues of TBW102, the most that an automatically created topic gets.",
    ),
    _switch("autoCreateTopicEnable", "auto_create_topics", True, "Create unknown topics on send."),
    _switch(
        "clusterTopicEnable", "is_cluster_topic_open", True, "Permission 7 for the cluster topic."
    ),
    _switch(
        "brokerTopicEnable", "is_broker_topic_open", True, "Permission 7 for the broker topic."
    ),
    _switch(
        "autoCreateSubscriptionGroup", "auto_create_groups", True, "Create unknown groups on use."
    ),
    _switch("traceTopicEnable", "has_trace_topic", False, "Create the topic for message traces."),
    _text("msgTraceTopicName", "trace_topic", "RMQ_SYS_TRACE_TOPIC", "Name of the trace topic."),
    _integer("maxTopicCount", "topics_max", 50_000, "topics", 10, 1_000_000, "Most topics kept."),
    _integer("maxGroupCount", "groups_max", 20_000, "groups", 10, 1_000_000, "Most groups kept."),
)

_TRAFFIC: Final = (
    _integer(
        "startAcceptSendRequestTimeStamp",
        "accept_sends_from_ms",
        0,
        "ms since 1970",
        0,
        _I64_MAX,
        "Sends before this time are refused.",
    ),
    _integer(
        "maxMessageSize",
        "message_bytes_max",
        4_194_304,
        "bytes",
        1024,
        4_194_304,
        "Largest stored record, and largest body of a batch.",
    ),
    _switch("rejectTransactionMessage", "refuses_transactions", False, "Refuse half messages."),
    _switch("longPollingEnable", "is_long_polling_on", True, "Hold pulls that find nothing."),
    _integer(
        "shortPollingTimeMills",
        "short_polling_ms",
        1000,
        "ms",
        1,
        60_000,
        "How long such a pull is held when longPollingEnable is false.",
    ),
    _switch(
        "notifyConsumerIdsChangedEnable",
        "notifies_members",
        True,
        "Tell the members of a group at once when one comes or goes.",
    ),
    _switch(
        "slaveReadEnable", "steers_reads_to_slaves", False, "Suggest a follower to slow readers."
    ),
    _switch(
        "offsetCheckInSlave", "corrects_offsets_on_follower", False, "Correct offsets on followers."
    ),
    _integer(
        "flushConsumerOffsetInterval",
        "offsets_flush_ms",
        5000,
        "ms",
        100,
        3_600_000,
        "Time between two writes of consumerOffset.json.",
    ),
    _integer(
        "offsetReplicationIntervalMs",
        "offsets_replication_ms",
        1000,
        "ms",
        10,
        60_000,
        "Time between two records of changed consumer offsets in the ledger.",
    ),
    _integer(
        "defaultQueryMaxNum",
        "unique_key_hits_max",
        32,
        "messages",
        1,
        1024,
        "Most messages answered to a query by unique key.",
    ),
    _integer(
        "maxMsgsNumBatch",
        "query_hits_max",
        64,
        "messages",
        1,
        1024,
        "Most messages answered to a query by key.",
    ),
)

_LIMITS: Final = (
    _integer(
        "sendThreadPoolQueueCapacity",
        "waiting_sends_max",
        10_000,
        "requests",
        1,
        1_000_000,
        "Most sends that wait for the commit of their message.",
    ),
    _integer(
        "maxSendBytesInFlight",
        "waiting_bytes_max",
        64 << 20,
        "bytes",
        1 << 20,
        4 * _GIB,
        "Most bytes of messages that wait for their commit.",
    ),
    _integer(
        "maxWaitAckTimeMs",
        "commit_timeout_ms",
        2500,
        "ms",
        100,
        600_000,
        "Longest wait of a send for the majority.",
    ),
    _integer(
        "pullThreadPoolQueueCapacity",
        "parked_pulls_max",
        100_000,
        "requests",
        1,
        10_000_000,
        "Most pulls held by long polling.",
    ),
    _integer(
        "maxConnections",
        "connections_max",
        10_000,
        "connections",
        1,
        1_000_000,
        "Most connections of clients; more are closed at once.",
    ),
    _integer(
        "serverChannelMaxIdleTimeSeconds",
        "idle_seconds_max",
        120,
        "s",
        1,
        86_400,
        "A connection silent for this long is closed.",
    ),
    _integer(
        "channelExpiredTimeout",
        "client_expiry_ms",
        120_000,
        "ms",
        1000,
        86_400_000,
        "A client without a heart beat for this long is dropped.",
    ),
    _integer("serverSocketBacklog", "backlog", 1024, "connections", 1, 65_535, "Listen backlog."),
    _integer(
        "shutdownWaitTimeSeconds",
        "drain_seconds_max",
        5,
        "s",
        0,
        600,
        "Longest wait at stop for messages that are not yet committed.",
    ),
)

_STORE: Final = (
    _text(
        "storePathRootDir", "store_root", None, "Root of all files; store in the home directory."
    ),
    _text(
        "flushDiskType",
        "flush_disk_type",
        "SYNC_FLUSH",
        "SYNC_FLUSH: on the disks of a majority before the answer. ASYNC_FLUSH: in their memory.",
        ("SYNC_FLUSH", "ASYNC_FLUSH"),
    ),
    _integer(
        "mappedFileSizeCommitLog",
        "segment_bytes",
        _GIB,
        "bytes",
        1 << 16,
        _I32_MAX,
        "Size of one data file of the ledger; 4 MiB more than maxMessageSize is wise.",
    ),
    _integer(
        "mappedFileSizeDLedgerIndex",
        "index_segment_bytes",
        32 * 5 * 1024 * 1024,
        "bytes",
        1 << 15,
        _I32_MAX,
        "Size of one index file of the ledger; a multiple of 32.",
    ),
    _integer(
        "mappedFileSizeConsumeQueue",
        "queue_segment_bytes",
        6_000_000,
        "bytes",
        2000,
        _I32_MAX,
        "Size of one consume queue file; a multiple of 20.",
    ),
    _switch("messageIndexEnable", "has_key_index", True, "Index messages by their keys."),
    _integer(
        "maxHashSlotNum",
        "index_slots",
        5_000_000,
        "slots",
        16,
        100_000_000,
        "Slots of an index file.",
    ),
    _integer(
        "maxIndexNum",
        "index_units",
        20_000_000,
        "units",
        16,
        400_000_000,
        "Units of an index file.",
    ),
    _text(
        "deleteWhen",
        "delete_hours",
        "04",
        "Hours of the day for deletion, joined with a semicolon.",
    ),
    _integer(
        "fileReservedTime", "retention_hours", 72, "h", 1, 1_000_000, "Age at which files may go."
    ),
    _integer(
        "diskMaxUsedSpaceRatio",
        "disk_used_percent_max",
        75,
        "%",
        10,
        95,
        "Disk use at which old files go at any hour.",
    ),
    _switch(
        "cleanFileForciblyEnable", "cleans_forcibly", True, "Delete young files on a full disk."
    ),
    _integer(
        "cleanResourceInterval",
        "clean_interval_ms",
        10_000,
        "ms",
        100,
        86_400_000,
        "Time between two cleanings.",
    ),
    _integer(
        "flushIntervalConsumeQueue",
        "store_flush_ms",
        1000,
        "ms",
        50,
        600_000,
        "Time between two flushes of derived files.",
    ),
    _integer(
        "maxTransferBytesOnMessageInMemory",
        "pull_bytes_max",
        262_144,
        "bytes",
        1,
        1 << 24,
        "Most bytes of one pull answer.",
    ),
    _integer(
        "maxTransferCountOnMessageInMemory",
        "pull_count_max",
        32,
        "messages",
        1,
        100_000,
        "Most messages of one pull answer.",
    ),
)

_LEDGER: Final = (
    _switch(
        "enableDLegerCommitLog",
        "is_group_member",
        False,
        "true: a member of dLegerPeers. false: a ledger with this broker as its only member.",
    ),
    _text("dLegerGroup", "ledger_group", None, "Name of the DLedger group; brokerName."),
    _text("dLegerPeers", "ledger_peers", None, "Members, id-host:port joined with a semicolon."),
    _text("dLegerSelfId", "ledger_self_id", None, "Own member id, a letter and digits, as n0."),
    _text(
        "preferredLeaderId",
        "preferred_leader_ids",
        "",
        "Ids that should lead, joined with a semicolon.",
    ),
    _integer(
        "heartBeatTimeIntervalMs",
        "ledger_heartbeat_ms",
        0,
        "ms",
        0,
        600_000,
        "Heart beat of the leader; 0: 500, or 2000 with a Java member.",
    ),
    _integer(
        "maxHeartBeatLeak",
        "ledger_heartbeats_missed_max",
        3,
        "heart beats",
        1,
        100,
        "Missed heart beats before an election.",
    ),
    _integer(
        "minVoteIntervalMs",
        "ledger_vote_wait_min_ms",
        0,
        "ms",
        0,
        600_000,
        "Shortest wait before a vote; 0: 150, or 300 with a Java member.",
    ),
    _integer(
        "maxVoteIntervalMs",
        "ledger_vote_wait_max_ms",
        0,
        "ms",
        0,
        600_000,
        "Longest wait before a vote; 0: 450, or 1000 with a Java member.",
    ),
    _integer(
        "maxPendingRequestsNum",
        "ledger_pending_max",
        10_000,
        "entries",
        1,
        10_000_000,
        "Most entries that wait for a majority.",
    ),
)

KEYS: Final[tuple[Key, ...]] = (*_IDENTITY, *_TOPICS, *_TRAFFIC, *_LIMITS, *_STORE, *_LEDGER)

KEY_BY_NAME: Final[dict[str, Key]] = {key.name: key for key in KEYS}

assert len(KEY_BY_NAME) == len(KEYS), "a configuration key stands twice in the table"
assert len({key.field for key in KEYS}) == len(KEYS), (
    "a configuration field stands twice in the table"
)
