"""The table of metrics: every name that a broker serves, once.

The page of metrics, docs/metrics.md, the rules of alerts and the dashboards are made of it. The
names that begin with `rocketmq_` are those of RocketMQ 5, as its exporter for Prometheus spells
them; the others are this broker's own.
"""

from typing import Final, NamedTuple


class Family(NamedTuple):
    """One metric.

    Attributes:
        name: as it is served.
        kind: counter, gauge or histogram.
        labels: its own, beside the common ones, in the order in which their values are given.
        help: one line.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


_TOPIC: Final = ("topic", "message_type", "is_system")
_READ: Final = ("topic", "consumer_group", "is_retry", "is_system")

_ROWS: Final = (
    Family("ledgermq_build_info", "gauge", ("version", "python", "kernel"), "1; what runs."),
    Family("ledgermq_up_seconds", "gauge", (), "Time since the broker has begun to serve."),
    # The ledger.
    Family("ledgermq_raft_has_leader", "gauge", (), "1 while this member knows its leader."),
    Family("ledgermq_raft_is_leader", "gauge", (), "1 while this member leads."),
    Family("ledgermq_raft_is_serving", "gauge", (), "1 while this member takes writes."),
    Family("ledgermq_raft_term", "gauge", (), "Term of this member."),
    Family("ledgermq_raft_members", "gauge", (), "Members of the group, by configuration."),
    Family("ledgermq_raft_leader_changes_total", "counter", (), "Leaders seen since the start."),
    Family("ledgermq_raft_elections_total", "counter", ("result",), "Elections won and lost here."),
    Family("ledgermq_raft_begin_index", "gauge", (), "First entry that is kept."),
    Family("ledgermq_raft_last_index", "gauge", (), "Last entry of the log."),
    Family("ledgermq_raft_commit_index", "gauge", (), "Last committed entry, as known here."),
    Family("ledgermq_raft_applied_index", "gauge", (), "Last entry that readers may see."),
    Family(
        "ledgermq_raft_follower_lag_entries",
        "gauge",
        ("peer",),
        "Entries that a follower has not confirmed; told by the leader.",
    ),
    Family(
        "ledgermq_raft_follower_lag_bytes",
        "gauge",
        ("peer",),
        "Bytes of the log that a follower has not confirmed; told by the leader.",
    ),
    Family(
        "ledgermq_raft_follower_last_contact_seconds",
        "gauge",
        ("peer",),
        "Time since a follower last answered; told by the leader.",
    ),
    Family(
        "ledgermq_raft_peer_round_trip_seconds",
        "histogram",
        ("peer",),
        "From a push to its answer, the follower's sync included; told by the leader.",
    ),
    Family(
        "ledgermq_raft_follower_counts",
        "gauge",
        ("peer",),
        "1 while a follower answers and a commit may count it; told by the leader.",
    ),
    Family(
        "ledgermq_raft_peer_rejected",
        "gauge",
        ("peer", "reason"),
        "1 while a peer does not count here: another member list or cluster id (membership),"
        " or entries that contradict committed ones (contradiction).",
    ),
    Family(
        "ledgermq_raft_memory_bytes",
        "gauge",
        ("kind",),
        "What this member keeps in memory for its disk and its peers: messages that wait for the"
        " disk (inbox), answers that wait for a sync (answers), entries of the log (entries).",
    ),
    Family("ledgermq_raft_proposals_pending", "gauge", (), "Messages that wait for a majority."),
    Family("ledgermq_raft_proposals_pending_bytes", "gauge", (), "Bytes that wait for a majority."),
    Family(
        "ledgermq_raft_proposals_committed_total", "counter", (), "Messages committed and answered."
    ),
    Family(
        "ledgermq_raft_proposals_failed_total",
        "counter",
        ("reason",),
        "Messages that failed: timeout, busy, unavailable, illegal, other.",
    ),
    Family(
        "ledgermq_raft_commit_duration_seconds",
        "histogram",
        (),
        "From the append to a majority, once for each turn of the reactor.",
    ),
    # Disk and files.
    Family(
        "ledgermq_disk_sync_duration_seconds",
        "histogram",
        (),
        "Each sync of the log, in its thread.",
    ),
    Family(
        "ledgermq_disk_write_duration_seconds",
        "histogram",
        (),
        "Each write of entries to the log, before any sync.",
    ),
    Family("ledgermq_disk_used_ratio", "gauge", (), "Used part of the store's file system."),
    Family("ledgermq_disk_free_bytes", "gauge", (), "Free bytes of the store's file system."),
    Family("ledgermq_disk_size_bytes", "gauge", (), "Size of the store's file system."),
    Family("ledgermq_disk_is_full", "gauge", (), "1 while messages are refused for want of room."),
    Family("ledgermq_log_bytes", "gauge", (), "Bytes of the log, first to last entry."),
    Family("ledgermq_retention_seconds", "gauge", (), "Age of the oldest message that is kept."),
    Family(
        "ledgermq_ledger_settings_differ",
        "gauge",
        (),
        "1 while another member has another flushDiskType.",
    ),
    Family(
        "ledgermq_clock_difference_seconds",
        "gauge",
        (),
        "This member's wall clock minus the median of the group's; 0 for no other known.",
    ),
    Family(
        "ledgermq_clock_alarm",
        "gauge",
        (),
        "1 while clocks of the group are further apart than ledgerClockSkewMax.",
    ),
    Family(
        "ledgermq_log_ahead_seconds",
        "gauge",
        (),
        "How far the last store time of the log is ahead of this member's clock.",
    ),
    Family(
        "ledgermq_ledger_repair_state",
        "gauge",
        (),
        "0 whole; 1 files are filled from the peers; 2 lost state is caught up.",
    ),
    Family(
        "ledgermq_ledger_corruptions_total",
        "counter",
        (),
        "Damage of files that was found since the start, the start included.",
    ),
    Family(
        "ledgermq_deleted_files_total",
        "counter",
        ("reason",),
        "Files of the log that retention gave up: hour, disk, disk_forced, asked.",
    ),
    Family("ledgermq_ledger_failed", "gauge", (), "1 when this member has stopped for good."),
    Family("ledgermq_ledger_scrub_bytes_total", "counter", (), "Bytes of the log looked at again."),
    Family("ledgermq_ledger_scrub_rounds_total", "counter", (), "Times that all was looked at."),
    # Clients and work.
    Family(
        "ledgermq_request_duration_seconds",
        "histogram",
        ("code",),
        "Requests, by code: work and wait, not the wait of a pull; sends of all codes in one.",
    ),
    Family(
        "ledgermq_slow_requests_total",
        "counter",
        ("code",),
        "Requests that took longer than slowRequestMs; the log tells of some what they waited for.",
    ),
    Family("ledgermq_refused_total", "counter", ("reason",), "Requests refused, by reason."),
    Family("ledgermq_connections", "gauge", (), "Open connections of clients."),
    Family("ledgermq_connections_refused_total", "counter", (), "Connections refused for a limit."),
    Family("ledgermq_unsent_bytes", "gauge", (), "Answers that clients have not read yet."),
    Family("ledgermq_parked_pulls", "gauge", (), "Pulls that wait for messages."),
    Family("ledgermq_delayed_messages", "gauge", ("level",), "Delayed messages not delivered yet."),
    Family(
        "ledgermq_half_message_age_seconds",
        "gauge",
        (),
        "Age of the oldest transaction without an end; 0 when there is none.",
    ),
    Family("ledgermq_reactor_lag_seconds", "histogram", (), "Lateness of a timer; ten a second."),
    Family("ledgermq_reactor_turn_seconds", "histogram", (), "Turns of the reactor; ten a second."),
    Family("ledgermq_acl_alarm", "gauge", (), "1 while rules of access are not as they should be."),
    Family("ledgermq_state_alarm", "gauge", (), "1 while the broker's state cannot be stored."),
    Family(
        "ledgermq_certificate_expiry_seconds", "gauge", ("port",), "Time until a certificate ends."
    ),
    # RocketMQ 5.
    Family(
        "rocketmq_processor_watermark", "gauge", ("processor",), "Requests that wait, by processor."
    ),
    Family("rocketmq_broker_permission", "gauge", (), "Permission: 4 read, 2 write, 6 both."),
    Family("rocketmq_topic_number", "gauge", (), "Topics."),
    Family("rocketmq_consumer_group_number", "gauge", (), "Consumer groups."),
    Family("rocketmq_messages_in_total", "counter", _TOPIC, "Messages sent to a topic."),
    Family("rocketmq_throughput_in_total", "counter", _TOPIC, "Bytes sent to a topic."),
    Family(
        "rocketmq_message_size_bytes",
        "histogram",
        (),
        "Records of messages sent, of all topics together; those of a batch count as its average.",
    ),
    Family("rocketmq_half_messages", "gauge", (), "Transactions without an end, of all topics."),
    Family("rocketmq_messages_out_total", "counter", _READ, "Messages that a group got."),
    Family("rocketmq_throughput_out_total", "counter", _READ, "Bytes that a group got."),
    Family("rocketmq_consumer_lag_messages", "gauge", _READ, "Messages a group has to consume."),
    Family(
        "rocketmq_consumer_lag_latency_milliseconds",
        "gauge",
        _READ,
        "Age of the first message that a group has not consumed.",
    ),
    Family("rocketmq_consumer_ready_messages", "gauge", _READ, "Messages a group may pull."),
    Family(
        "rocketmq_send_to_dlq_messages_total",
        "counter",
        ("consumer_group", "topic", "is_system"),
        "Dead letters of a group.",
    ),
    Family(
        "rocketmq_producer_connections",
        "gauge",
        ("language", "version", "protocol_type"),
        "Producers.",
    ),
    Family(
        "rocketmq_consumer_connections",
        "gauge",
        ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        "Consumers of a group.",
    ),
    Family("rocketmq_commit_messages_total", "counter", ("topic",), "Transactions committed here."),
    Family(
        "rocketmq_rollback_messages_total", "counter", ("topic",), "Transactions rolled back here."
    ),
    Family(
        "rocketmq_finish_message_latency_milliseconds",
        "histogram",
        (),
        "Seconds (so RocketMQ 5 has it) from the birth of a half message to its end; all topics.",
    ),
    Family("rocketmq_timing_messages", "gauge", (), "Delayed messages that wait, of all topics."),
    Family("rocketmq_timer_enqueue_total", "counter", (), "Delayed messages stored, ever."),
    Family("rocketmq_timer_dequeue_total", "counter", (), "Delayed messages delivered, ever."),
    Family(
        "rocketmq_timer_dequeue_lag", "gauge", (), "Delayed messages that are due and wait still."
    ),
    Family(
        "rocketmq_timer_dequeue_latency_milliseconds",
        "gauge",
        (),
        "How late the delivery of the first of them is.",
    ),
    Family(
        "rocketmq_timer_message_snapshot",
        "gauge",
        ("timer_bound_s",),
        "Delayed messages that are due within so many seconds, and not within the bound before.",
    ),
    Family(
        "rocketmq_delay_message_latency_seconds",
        "histogram",
        (),
        "From the birth of a delayed message to its delivery here; all topics together.",
    ),
    Family(
        "rocketmq_rpc_latency_milliseconds",
        "histogram",
        ("protocol_type", "request_code", "is_long_polling"),
        "Requests, by code, whatever the answer; as ledgermq_request_duration_seconds.",
    ),
    Family(
        "rocketmq_topic_create_execution_time_milliseconds",
        "histogram",
        (),
        "Requests that create or change a topic, whatever the answer.",
    ),
    Family(
        "rocketmq_consumer_group_create_execution_time_milliseconds",
        "histogram",
        (),
        "Requests that create or change a consumer group, whatever the answer.",
    ),
    Family("rocketmq_storage_size_bytes", "gauge", (), "Used bytes of the disk."),
    Family(
        "rocketmq_storage_flush_behind_bytes", "gauge", (), "Bytes of the log not on the disk yet."
    ),
    Family("rocketmq_storage_dispatch_behind_bytes", "gauge", (), "Bytes not in queues yet."),
    Family(
        "rocketmq_storage_message_reserve_time_milliseconds",
        "gauge",
        (),
        "Age of the oldest message that is kept.",
    ),
    # The process.
    Family("process_cpu_seconds_total", "counter", (), "User and system time."),
    Family("process_resident_memory_bytes", "gauge", (), "Resident memory."),
    Family("process_virtual_memory_bytes", "gauge", (), "Mapped memory, files included."),
    Family("process_open_fds", "gauge", (), "Open file descriptors."),
    Family("process_max_fds", "gauge", (), "Most file descriptors that may be open."),
    Family("process_start_time_seconds", "gauge", (), "When the process began, Unix time."),
    Family("python_gc_collections_total", "counter", ("generation",), "Collections of cycles."),
    Family(
        "python_gc_objects_collected_total", "counter", ("generation",), "Objects so collected."
    ),
    Family(
        "python_gc_objects_uncollectable_total",
        "counter",
        ("generation",),
        "Objects that could not be collected.",
    ),
)

FAMILIES: Final = {row.name: row for row in _ROWS}
# Labels of all metrics of a kind: their names begin so.
COMMON_LABELS: Final = {
    "ledgermq_": ("cluster", "broker", "member"),
    "rocketmq_": ("cluster", "node_type", "node_id"),
    "rocketmq_storage_": ("cluster", "node_type", "node_id", "storage_type", "storage_medium"),
    "process_": ("cluster", "broker", "member"),
    "python_": ("cluster", "broker", "member"),
}

assert len(FAMILIES) == len(_ROWS)


def shared_labels_of(name: str) -> tuple[str, ...]:
    """Returns the names of the labels that a metric has beside its own."""
    prefixes = [prefix for prefix in COMMON_LABELS if name.startswith(prefix)]
    return COMMON_LABELS[max(prefixes, key=len)]
