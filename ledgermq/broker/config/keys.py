"""The table of configuration keys: upstream's names, our fields, defaults, units, ranges and one
line of explanation.

`KEYS` lists every key that changes something here; `conf/` and docs/operations.md explain the same
keys. Keys of upstream's files that have no effect in this broker are in `ignored_keys.py`.
`broker_config.py` turns a file into typed fields.
"""

from typing import Final

from ledgermq.broker.config.audit_keys import AUDIT_KEYS
from ledgermq.broker.config.cost_keys import COST_KEYS
from ledgermq.broker.config.http_keys import HTTP_KEYS
from ledgermq.broker.config.key import (
    GIB,
    I32_MAX,
    I64_MAX,
    Key,
    integer,
    switch,
    text_key,
)
from ledgermq.broker.config.member_keys import MEMBER_KEYS
from ledgermq.broker.config.otlp_keys import OTLP_KEYS
from ledgermq.broker.config.replication_keys import REPLICATION_KEYS
from ledgermq.broker.config.store_keys import LEDGER_KEYS, STORE_KEYS
from ledgermq.protocol.tls.contexts import SERVER_MODES

_IDENTITY: Final = (
    text_key("brokerClusterName", "cluster_name", "DefaultCluster", "Cluster this broker joins."),
    text_key("brokerName", "broker_name", None, "Name of the group of replicas; the host name."),
    text_key(
        "brokerIP1", "address_host", None, "Address told to clients; the first local address."
    ),
    text_key(
        "bindAddress", "bind_host", None, "Address to listen on; all, or brokerIP1 on loopback."
    ),
    integer(
        "listenPort", "listen_port", 10911, "", 0, 65535, "Port for clients; 0 takes a free one."
    ),
    switch(
        "vipChannelEnable",
        "has_vip_port",
        False,
        "Listen on listenPort - 2, too, for clients that use upstream's VIP channel.",
    ),
    text_key(
        "namesrvAddr", "namesrv_addresses", "", "Name servers, host:port joined with a semicolon."
    ),
    text_key(
        "namesrvAccessKey",
        "namesrv_access_key",
        "",
        "Account by which this broker registers at name servers; empty: none.",
    ),
    text_key(
        "namesrvSecretKeyFile",
        "namesrv_secret_file",
        "",
        "File with the secret key of namesrvAccessKey, readable by its owner only.",
    ),
    text_key(
        "namesrvSignature",
        "namesrv_signature",
        "stock",
        "Form of the signatures of that account; strong: nobody can repeat them, and the clocks of"
        " broker and name server may be 5 minutes apart at the most.",
        ("stock", "strong"),
    ),
    integer(
        "registerNameServerPeriod",
        "register_period_ms",
        30_000,
        "ms",
        1,
        I32_MAX,
        "Time between two looks whether a name server knows all; taken into 10,000 to 60,000.",
    ),
    integer(
        "registerBrokerTimeoutMills",
        "register_timeout_ms",
        6000,
        "ms",
        1,
        I32_MAX,
        "Longest wait for the answer to a registration.",
    ),
    text_key("regionId", "region_id", "DefaultRegion", "Region told to tracing clients."),
    switch("traceOn", "is_trace_on", True, "Whether clients are told to trace."),
    switch("aclEnable", "is_acl_on", False, "Access control by the rules in aclFile."),
    text_key(
        "aclFile", "acl_file", None, "Rules of access control; plain_acl.yml beside this file."
    ),
    text_key(
        "aclSignature",
        "signature_wanted",
        "any",
        "Forms of signatures under access control; strong: what only LedgerMQ's clients give.",
        ("any", "strong"),
    ),
    text_key(
        "aclSignedAddresses",
        "signed_addresses",
        "",
        "Addresses host:port, joined with a semicolon, by which clients reach this broker besides"
        " the one that name servers tell and its own: strong signatures for others are refused.",
    ),
    text_key(
        "aclShowSecretKeys",
        "secret_keys_shown",
        "local",
        "Whether an admin who asks for the accounts (54) gets their secret keys, too; local: who"
        " asks on this machine or signs strongly.",
        ("always", "local", "never"),
    ),
    text_key(
        "logFormat",
        "log_form",
        "text",
        "Lines of the log on stderr: text, or json for programs that collect logs.",
        ("text", "json"),
    ),
    text_key(
        "tls.config.file", "tls_file", "", "Certificates, as upstream's tls.properties names them."
    ),
    text_key(
        "tls.server.mode",
        "tls_mode",
        "",
        "TLS on the port for clients; empty: permissive with a tls.config.file, else disabled.",
        SERVER_MODES,
    ),
    switch("tls.enable", "uses_tls", False, "TLS to the name servers."),
    text_key(
        "brokerRole",
        "broker_role",
        "ASYNC_MASTER",
        "Of a plain commit log; in a group the ledger decides about roles.",
        ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    ),
)

_TOPICS: Final = (
    integer("brokerPermission", "broker_permission", 6, "bits", 0, 7, "4 read, 2 write."),
    integer(
        "defaultTopicQueueNums",
        "default_queue_count",
        8,
        "queues",
        1,
        1024,
        "Queues of TBW102, the most that an automatically created topic gets.",
    ),
    switch("autoCreateTopicEnable", "auto_create_topics", True, "Create unknown topics on send."),
    switch(
        "clusterTopicEnable", "is_cluster_topic_open", True, "Permission 7 for the cluster topic."
    ),
    switch("brokerTopicEnable", "is_broker_topic_open", True, "Permission 7 for the broker topic."),
    switch(
        "autoCreateSubscriptionGroup", "auto_create_groups", True, "Create unknown groups on use."
    ),
    switch("traceTopicEnable", "has_trace_topic", False, "Create the topic for message traces."),
    text_key("msgTraceTopicName", "trace_topic", "RMQ_SYS_TRACE_TOPIC", "Name of the trace topic."),
    switch("enableLmq", "knows_light_queues", False, "Names with %LMQ% are light queues."),
    switch(
        "enableMultiDispatch",
        "dispatches_to_light_queues",
        False,
        "With enableLmq: messages are put into the light queues that INNER_MULTI_DISPATCH names.",
    ),
    integer(
        "maxLmqConsumeQueueNum",
        "light_queues_max",
        20_000,
        "queues",
        1,
        10_000_000,
        "Most light queues.",
    ),
    integer("maxTopicCount", "topics_max", 50_000, "topics", 10, 1_000_000, "Most topics kept."),
    integer("maxGroupCount", "groups_max", 20_000, "groups", 10, 500_000, "Most groups kept."),
    switch(
        "enableTopicMessageTypeCheck",
        "checks_message_types",
        True,
        "A topic with the attribute message.type takes no messages of another type.",
    ),
    switch(
        "enableMixedMessageType",
        "allows_mixed_types",
        False,
        "Whether a topic may have the attribute message.type=MIXED.",
    ),
)

_TRAFFIC: Final = (
    integer(
        "startAcceptSendRequestTimeStamp",
        "accept_sends_from_ms",
        0,
        "ms since 1970",
        0,
        I64_MAX,
        "Sends before this time are refused.",
    ),
    integer(
        "maxMessageSize",
        "message_bytes_max",
        4_194_304,
        "bytes",
        1024,
        4_194_304,
        "Largest stored record, and largest body of a batch.",
    ),
    text_key(
        "messageDelayLevel",
        "delay_levels",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of the levels from 1 on; the same on all members. Units: s, m, h, d.",
    ),
    switch("storeReplyMessageEnable", "stores_replies", True, "Store replies to requests, too."),
    switch("rejectTransactionMessage", "refuses_transactions", False, "Refuse half messages."),
    integer(
        "transactionCheckInterval",
        "transaction_check_ms",
        60_000,
        "ms",
        100,
        86_400_000,
        "Time between two looks for half messages whose producer has to be asked.",
    ),
    integer(
        "transactionTimeOut",
        "transaction_immunity_ms",
        6000,
        "ms",
        0,
        86_400_000,
        "Age of a half message from which on its producer is asked.",
    ),
    integer(
        "transactionCheckMax",
        "transaction_checks_max",
        15,
        "checks",
        1,
        1000,
        "So often a producer is asked before its half message is put aside.",
    ),
    switch(
        "enablePropertyFilter",
        "filters_by_properties",
        False,
        "Let consumers filter messages by SQL92 expressions over properties.",
    ),
    switch("longPollingEnable", "is_long_polling_on", True, "Hold pulls that find nothing."),
    integer(
        "shortPollingTimeMills",
        "short_polling_ms",
        1000,
        "ms",
        1,
        60_000,
        "How long such a pull is held when longPollingEnable is false.",
    ),
    switch(
        "notifyConsumerIdsChangedEnable",
        "notifies_members",
        True,
        "Tell the members of a group at once when one comes or goes.",
    ),
    switch(
        "slaveReadEnable", "steers_reads_to_slaves", False, "Suggest a follower to slow readers."
    ),
    switch(
        "offsetCheckInSlave", "corrects_offsets_on_follower", False, "Correct offsets on followers."
    ),
    integer(
        "flushConsumerOffsetInterval",
        "offsets_flush_ms",
        5000,
        "ms",
        100,
        3_600_000,
        "Time between two writes of consumerOffset.json.",
    ),
    integer(
        "offsetReplicationIntervalMs",
        "offsets_replication_ms",
        1000,
        "ms",
        10,
        60_000,
        "Time between two records of changed consumer offsets in the ledger.",
    ),
    integer(
        "offsetsRetentionMinutes",
        "offsets_retention_minutes",
        10_080,
        "min",
        0,
        I32_MAX,
        "Age of offsets that no client and no commit used, from which on they go; never younger"
        " than fileReservedTime; 0 keeps them for ever.",
    ),
    integer(
        "defaultQueryMaxNum",
        "unique_key_hits_max",
        32,
        "messages",
        1,
        1024,
        "Most messages answered to a query by unique key.",
    ),
    integer(
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
    integer(
        "sendThreadPoolQueueCapacity",
        "waiting_sends_max",
        10_000,
        "requests",
        1,
        1_000_000,
        "Most sends that wait for the commit of their message.",
    ),
    integer(
        "maxSendBytesInFlight",
        "waiting_bytes_max",
        64 << 20,
        "bytes",
        1 << 20,
        4 * GIB,
        "Most bytes of messages that wait for their commit.",
    ),
    integer(
        "maxWaitAckTimeMs",
        "commit_timeout_ms",
        2500,
        "ms",
        100,
        600_000,
        "Longest wait of a send for the majority.",
    ),
    integer(
        "pullThreadPoolQueueCapacity",
        "parked_pulls_max",
        100_000,
        "requests",
        1,
        10_000_000,
        "Most pulls held by long polling.",
    ),
    integer(
        "maxConnections",
        "connections_max",
        10_000,
        "connections",
        1,
        1_000_000,
        "Most connections of clients; more are closed at once.",
    ),
    integer(
        "maxConnectionsPerAddress",
        "connections_per_host_max",
        1000,
        "connections",
        1,
        1_000_000,
        "The same for one address.",
    ),
    integer(
        "maxNewConnectionsPerAddress",
        "connections_per_host_rate",
        100,
        "connections/s",
        1,
        1_000_000,
        "New connections of one address a second, and as many at once; more are closed.",
    ),
    integer(
        "maxNewTopicsPerAddress",
        "new_topics_rate",
        10,
        "topics/s",
        1,
        1_000_000,
        "Topics that come into being for one address a second, by sends and by tools.",
    ),
    integer(
        "maxNewTopicsPerAccount",
        "account_topics_rate",
        10,
        "topics/s",
        1,
        1_000_000,
        "The same for one account, with access control.",
    ),
    integer(
        "maxNewTopicsAtOnce",
        "new_topics_burst",
        2000,
        "topics",
        1,
        1_000_000,
        "So many topics of one address, or account, at once after a pause.",
    ),
    integer(
        "maxNewGroupsPerAddress",
        "new_groups_rate",
        20,
        "groups/s",
        1,
        1_000_000,
        "Consumer groups that come into being for one address a second, by use and by tools.",
    ),
    integer(
        "maxNewGroupsPerAccount",
        "account_groups_rate",
        20,
        "groups/s",
        1,
        1_000_000,
        "The same for one account, with access control.",
    ),
    integer(
        "maxNewGroupsAtOnce",
        "new_groups_burst",
        5000,
        "groups",
        1,
        1_000_000,
        "So many groups of one address, or account, at once after a pause.",
    ),
    integer(
        "maxHeartbeatBytes",
        "heart_beat_bytes_max",
        256 << 10,
        "bytes",
        1024,
        8 << 20,
        "Largest body of a heart beat, and of a question whether a subscription can be served.",
    ),
    integer(
        "maxHeartbeatGroups",
        "heart_beat_groups_max",
        1000,
        "groups",
        1,
        100_000,
        "Groups that one heart beat names at most, and that the clients of one connection are in.",
    ),
    integer(
        "maxLockQueues",
        "lock_queues_max",
        1000,
        "queues",
        1,
        65_536,
        "Queues that one request locks or gives back at most; 1 KiB of its body for each.",
    ),
    integer(
        "serverChannelMaxIdleTimeSeconds",
        "idle_seconds_max",
        120,
        "s",
        1,
        86_400,
        "A connection silent for this long is closed.",
    ),
    integer(
        "channelExpiredTimeout",
        "client_expiry_ms",
        120_000,
        "ms",
        1000,
        86_400_000,
        "A client without a heart beat for this long is dropped.",
    ),
    integer(
        "shutdownWaitTimeSeconds",
        "drain_seconds_max",
        5,
        "s",
        0,
        600,
        "Longest wait at stop for messages that are not yet committed.",
    ),
)

KEYS: Final[tuple[Key, ...]] = (
    *_IDENTITY,
    *_TOPICS,
    *_TRAFFIC,
    *_LIMITS,
    *COST_KEYS,
    *HTTP_KEYS,
    *OTLP_KEYS,
    *AUDIT_KEYS,
    *STORE_KEYS,
    *LEDGER_KEYS,
    *MEMBER_KEYS,
    *REPLICATION_KEYS,
)

KEY_BY_NAME: Final[dict[str, Key]] = {key.name: key for key in KEYS}

assert len(KEY_BY_NAME) == len(KEYS), "a configuration key stands twice in the table"
assert len({key.field for key in KEYS}) == len(KEYS), (
    "a configuration field stands twice in the table"
)
