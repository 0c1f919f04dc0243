"""The alerts that we ship, as a table, and the file of rules that Prometheus reads.

Each has a section in docs/operations.md that says what it means and what to do.
"""

import json
from typing import Final, NamedTuple

GUIDE: Final = "docs/operations.md"


class Alert(NamedTuple):
    """One alert.

    Attributes:
        name: of the alert, and of its section in the guide.
        expr: of Prometheus.
        for_: how long it has to be so.
        severity: critical wakes people, warning waits for the morning.
        summary: one sentence; {{ $labels.x }} and {{ $value }} are filled in.
    """

    name: str
    expr: str
    for_: str
    severity: str
    summary: str


_GROUP: Final = "by (cluster, broker)"
_READERS: Final = "by (cluster, node_id, consumer_group)"
_P99: Final = "histogram_quantile(0.99, sum by (cluster, broker, member, le) (rate({}_bucket[5m])))"
_WHO: Final = "{{ $labels.broker }}"
_MEMBER: Final = "{{ $labels.member }} of {{ $labels.broker }}"
_READER: Final = "{{ $labels.consumer_group }} on {{ $labels.topic }}"

ALERTS: Final = (
    Alert(
        "NoLeader",
        f"max {_GROUP} (ledgermq_raft_is_serving) == 0",
        "1m",
        "critical",
        f"No member of {_WHO} takes messages.",
    ),
    Alert(
        "MemberDown",
        f"max {_GROUP} (ledgermq_raft_members) - count {_GROUP} (ledgermq_raft_members) > 0",
        "5m",
        "warning",
        f"{{{{ $value }}}} members of {_WHO} are not there.",
    ),
    Alert(
        "QuorumAtRisk",
        f"(1 + sum {_GROUP} (ledgermq_raft_follower_counts)"
        f" < floor(max {_GROUP} (ledgermq_raft_members) / 2) + 2)"
        f" and max {_GROUP} (ledgermq_raft_members) > 2",
        "2m",
        "critical",
        f"One more member less, and {_WHO} takes no messages.",
    ),
    Alert(
        "MemberFailed",
        "ledgermq_ledger_failed == 1",
        "0m",
        "critical",
        f"{_MEMBER} has stopped for good; its log says why.",
    ),
    Alert(
        "MembershipDiffers",
        'ledgermq_raft_peer_rejected{reason="membership"} == 1',
        "1m",
        "critical",
        f"{{{{ $labels.peer }}}} and {_MEMBER} have different member lists or cluster ids.",
    ),
    Alert(
        "LogContradicted",
        'ledgermq_raft_peer_rejected{reason="contradiction"} == 1',
        "0m",
        "critical",
        f"{{{{ $labels.peer }}}} contradicts entries that are committed on {_MEMBER}.",
    ),
    Alert(
        "LeaderChanges",
        f"max {_GROUP} (increase(ledgermq_raft_leader_changes_total[15m])) >= 4",
        "0m",
        "warning",
        f"{_WHO} changed its leader {{{{ $value }}}} times in 15 minutes.",
    ),
    Alert(
        "FollowerBehind",
        "ledgermq_raft_follower_lag_bytes > 67108864",
        "5m",
        "warning",
        f"{{{{ $labels.peer }}}} of {_WHO} is {{{{ $value | humanize1024 }}}}B behind its leader.",
    ),
    Alert(
        "RepairRunning",
        "ledgermq_ledger_repair_state > 0",
        "10m",
        "warning",
        f"{_MEMBER} has lost files and is filled from the others.",
    ),
    Alert(
        "SettingsDiffer",
        "ledgermq_ledger_settings_differ == 1",
        "1h",
        "warning",
        f"{_MEMBER} and another member acknowledge in different flush modes.",
    ),
    Alert(
        "ClocksDiffer",
        "ledgermq_clock_alarm == 1",
        "1m",
        "critical",
        f"{_MEMBER} and another member have clocks that are too far apart.",
    ),
    Alert(
        "LogAhead",
        "ledgermq_log_ahead_seconds > 60",
        "5m",
        "warning",
        f"The log of {_MEMBER} is {{{{ $value }}}} s ahead of its clock.",
    ),
    Alert(
        "CommitSlow",
        _P99.format("ledgermq_raft_commit_duration_seconds") + " > 0.25",
        "10m",
        "warning",
        f"Of {_MEMBER} 1 % of the appends wait {{{{ $value }}}} s for a majority.",
    ),
    Alert(
        "SyncSlow",
        _P99.format("ledgermq_disk_sync_duration_seconds") + " > 0.5",
        "10m",
        "warning",
        f"Of {_MEMBER} 1 % of the syncs take {{{{ $value }}}} s.",
    ),
    Alert(
        "PeerSlow",
        "histogram_quantile(0.99, sum by (cluster, broker, peer, le)"
        " (rate(ledgermq_raft_peer_round_trip_seconds_bucket[5m]))) > 0.25",
        "10m",
        "warning",
        f"Of the pushes to {{{{ $labels.peer }}}} of {_WHO} 1 % take {{{{ $value }}}} s.",
    ),
    Alert(
        "CorruptionFound",
        "ledgermq_ledger_corruptions_total > 0",
        "0m",
        "warning",
        f"Files of {_MEMBER} are damaged; it mends them from its peers, where there are any.",
    ),
    Alert(
        "DiskFullIn24h",
        "predict_linear(ledgermq_disk_free_bytes[6h], 86400) < 0"
        " and ledgermq_disk_used_ratio > 0.6",
        "30m",
        "warning",
        f"The disk of {_MEMBER} will be full within a day.",
    ),
    Alert(
        "DiskRefusing",
        "ledgermq_disk_is_full == 1",
        "1m",
        "critical",
        f"The disk of {_MEMBER} is full, it takes no messages.",
    ),
    Alert(
        "SendsFail",
        f"sum {_GROUP} (rate(ledgermq_raft_proposals_failed_total[5m])) > 1",
        "5m",
        "warning",
        f"{_WHO} fails {{{{ $value }}}} messages a second.",
    ),
    Alert(
        "ReactorSaturated",
        _P99.format("ledgermq_reactor_lag_seconds") + " > 0.05",
        "5m",
        "warning",
        f"{_MEMBER} has more work than its core can do.",
    ),
    Alert(
        "LagGrowing",
        'deriv(rocketmq_consumer_lag_messages{is_retry="false"}[10m]) > 0'
        " and rocketmq_consumer_lag_latency_milliseconds > 300000",
        "5m",
        "warning",
        f"{_READER} falls behind, by {{{{ $value }}}} messages a second.",
    ),
    Alert(
        "NoConsumers",
        f"sum {_READERS}"
        ' (delta(rocketmq_consumer_lag_messages{consumer_group!="_other"}[10m])) > 0'
        " unless sum by (cluster, node_id, consumer_group) (rocketmq_consumer_connections) > 0",
        "10m",
        "warning",
        "Messages for {{ $labels.consumer_group }} come in, and nobody consumes them.",
    ),
    Alert(
        "DeadLetters",
        # A group has no series before its first dead letter, and increase needs two values.
        f"max {_READERS} (increase(rocketmq_send_to_dlq_messages_total[15m])) > 0"
        f" or max {_READERS} (rocketmq_send_to_dlq_messages_total)"
        # Nor has anybody one while nobody leads: so a moment will not do.
        f" unless max {_READERS}"
        " (max_over_time(rocketmq_send_to_dlq_messages_total[1h] offset 15m))",
        "0m",
        "warning",
        "{{ $value }} messages of {{ $labels.consumer_group }} were given up.",
    ),
    Alert(
        "HalfMessagesOld",
        "ledgermq_half_message_age_seconds > 3600",
        "5m",
        "warning",
        f"A transaction on {_WHO} has had no end for {{{{ $value | humanizeDuration }}}}.",
    ),
    Alert(
        "CertificateEnds",
        "ledgermq_certificate_expiry_seconds < 1209600",
        "1h",
        "warning",
        f"A certificate of {_MEMBER} ends in {{{{ $value | humanizeDuration }}}}.",
    ),
    Alert(
        "AclAlarm",
        "ledgermq_acl_alarm == 1",
        "1m",
        "critical",
        f"Rules of access on {_MEMBER} are not as they should be.",
    ),
    Alert(
        "StateAlarm",
        "ledgermq_state_alarm == 1",
        "5m",
        "warning",
        f"{_MEMBER} cannot store some of its state.",
    ),
)


def rules_file() -> str:
    """Returns the file of rules."""
    lines = [
        "# Alerts of LedgerMQ for Prometheus; made by `ledgermq monitoring`.",
        "groups:",
        "  - name: ledgermq",
        "    rules:",
    ]
    for alert in ALERTS:
        lines += [
            f"      - alert: LedgerMQ{alert.name}",
            f"        expr: {json.dumps(alert.expr)}",
            f"        for: {alert.for_}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          runbook_url: {GUIDE}#{alert.name.lower()}",
        ]
    return "\n".join(lines) + "\n"
