"""The four dashboards for Grafana, as tables of panels, and the JSON that Grafana imports."""

import json
from typing import Any, Final, NamedTuple

_PANEL_WIDTH: Final = 8
_PANEL_HEIGHT: Final = 7
_ROW_WIDTH: Final = 24
_SCHEMA: Final = 39


class Panel(NamedTuple):
    """One plot.

    Attributes:
        title: of the panel.
        unit: as Grafana calls it.
        queries: expression of Prometheus and legend of each line.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


class Dashboard(NamedTuple):
    """One page of panels."""

    uid: str
    title: str
    panels: tuple[Panel, ...]


_OURS: Final = 'cluster=~"$cluster",broker=~"$broker"'
_THEIRS: Final = 'cluster=~"$cluster",node_id=~"$broker"'
_MEMBER: Final = "{{broker}} {{member}}"
_PAIR: Final = "{{consumer_group}} {{topic}}"


def _rate(name: str, labels: str, by: str) -> str:
    return f"sum by ({by}) (rate({name}{{{labels}}}[$__rate_interval]))"


def _share(name: str, share: float) -> tuple[str, str]:
    rate = _rate(f"{name}_bucket", _OURS, "broker, member, le")
    return f"histogram_quantile({share}, {rate})", f"p{share * 100:g} {_MEMBER}"


def _shares(name: str) -> tuple[tuple[str, str], ...]:
    return _share(name, 0.5), _share(name, 0.99)


def _one(name: str, legend: str = _MEMBER) -> tuple[tuple[str, str], ...]:
    return ((f"{name}{{{_OURS}}}", legend),)


DASHBOARDS: Final = (
    Dashboard(
        "ledgermq-cluster",
        "LedgerMQ: cluster",
        (
            Panel("Serving groups", "short",
                  (("max by (broker) (ledgermq_raft_is_serving{" + _OURS + "})", "{{broker}}"),)),
            Panel("Members there", "short",
                  (("count by (broker) (ledgermq_raft_members{" + _OURS + "})", "{{broker}}"),)),
            Panel("Messages in", "cps",
                  ((_rate("rocketmq_messages_in_total", _THEIRS, "node_id"), "{{node_id}}"),)),
            Panel("Messages out", "cps",
                  ((_rate("rocketmq_messages_out_total", _THEIRS, "node_id"), "{{node_id}}"),)),
            Panel("Bytes in", "Bps",
                  ((_rate("rocketmq_throughput_in_total", _THEIRS, "node_id"), "{{node_id}}"),)),
            Panel("Bytes out", "Bps",
                  ((_rate("rocketmq_throughput_out_total", _THEIRS, "node_id"), "{{node_id}}"),)),
            Panel("Lag of all groups", "short",
                  (("sum by (node_id) (rocketmq_consumer_lag_messages{" + _THEIRS + "})",
                    "{{node_id}}"),)),
            Panel("Requests, p99", "s",
                  (("histogram_quantile(0.99, "
                    + _rate("ledgermq_request_duration_seconds_bucket", _OURS, "broker, code, le")
                    + ")", "{{broker}} {{code}}"),)),
            Panel("Slow requests", "cps",
                  ((_rate("ledgermq_slow_requests_total", _OURS, "broker, code"),
                    "{{broker}} {{code}}"),)),
            Panel("Refused", "cps",
                  ((_rate("ledgermq_refused_total", _OURS, "broker, reason"),
                    "{{broker}} {{reason}}"),)),
            Panel("Disk used", "percentunit", _one("ledgermq_disk_used_ratio")),
        ),
    ),
    Dashboard(
        "ledgermq-group",
        "LedgerMQ: group of members",
        (
            Panel("Leader", "short", _one("ledgermq_raft_is_leader")),
            Panel("Term", "short", _one("ledgermq_raft_term")),
            Panel("Leader changes", "short",
                  (("increase(ledgermq_raft_leader_changes_total{" + _OURS + "}[15m])", _MEMBER),)),
            Panel("Commit", "s", _shares("ledgermq_raft_commit_duration_seconds")),
            Panel("Sync", "s", _shares("ledgermq_disk_sync_duration_seconds")),
            Panel("Write", "s", _shares("ledgermq_disk_write_duration_seconds")),
            Panel("Push to answer", "s",
                  (("histogram_quantile(0.99, "
                    + _rate("ledgermq_raft_peer_round_trip_seconds_bucket", _OURS,
                            "broker, peer, le") + ")",
                    "p99 {{broker}} {{peer}}"),)),
            Panel("Not on the disk yet", "bytes",
                  (("rocketmq_storage_flush_behind_bytes{" + _THEIRS + "}", "{{node_id}}"),)),
            Panel("Waits for a majority", "short", _one("ledgermq_raft_proposals_pending")),
            Panel("Followers behind", "bytes",
                  _one("ledgermq_raft_follower_lag_bytes", "{{broker}} {{peer}}")),
            Panel("Followers last heard", "s",
                  _one("ledgermq_raft_follower_last_contact_seconds", "{{broker}} {{peer}}")),
            Panel("Repair", "short", _one("ledgermq_ledger_repair_state")),
            Panel("Rejected peers", "short",
                  _one("ledgermq_raft_peer_rejected", _MEMBER + " {{peer}} {{reason}}")),
            Panel("Committed entries", "cps",
                  (("rate(ledgermq_raft_commit_index{" + _OURS + "}[$__rate_interval])",
                    _MEMBER),)),
            Panel("Not applied", "short",
                  (("ledgermq_raft_commit_index{" + _OURS + "} - ledgermq_raft_applied_index{"
                    + _OURS + "}", _MEMBER),)),
            Panel("Failed messages", "cps",
                  ((_rate("ledgermq_raft_proposals_failed_total", _OURS, "broker, reason"),
                    "{{broker}} {{reason}}"),)),
        ),
    ),
    Dashboard(
        "ledgermq-topics",
        "LedgerMQ: topics and groups",
        (
            Panel("Messages in by topic", "cps",
                  (("topk(20, " + _rate("rocketmq_messages_in_total", _THEIRS, "topic") + ")",
                    "{{topic}}"),)),
            Panel("Bytes in by topic", "Bps",
                  (("topk(20, " + _rate("rocketmq_throughput_in_total", _THEIRS, "topic") + ")",
                    "{{topic}}"),)),
            Panel("Messages out by group", "cps",
                  (("topk(20, "
                    + _rate("rocketmq_messages_out_total", _THEIRS, "consumer_group, topic") + ")",
                    _PAIR),)),
            Panel("Lag in messages", "short",
                  (("topk(20, rocketmq_consumer_lag_messages{" + _THEIRS + "})", _PAIR),)),
            Panel("Lag in time", "ms",
                  (("topk(20, rocketmq_consumer_lag_latency_milliseconds{" + _THEIRS + "})",
                    _PAIR),)),
            Panel("Dead letters", "short",
                  (("rocketmq_send_to_dlq_messages_total{" + _THEIRS + "}",
                    "{{consumer_group}}"),)),
            Panel("Consumers", "short",
                  (("sum by (consumer_group) (rocketmq_consumer_connections{" + _THEIRS + "})",
                    "{{consumer_group}}"),)),
            Panel("Delayed messages", "short",
                  (("ledgermq_delayed_messages{" + _OURS + "}", "level {{level}}"),)),
            Panel("Oldest open transaction", "s", _one("ledgermq_half_message_age_seconds")),
            Panel("Open transactions", "short",
                  (("rocketmq_half_messages{" + _THEIRS + "}", "{{node_id}}"),)),
            Panel("Size of messages", "bytes",
                  (("histogram_quantile(0.99, "
                    + _rate("rocketmq_message_size_bytes_bucket", _THEIRS, "node_id, le") + ")",
                    "p99 {{node_id}}"),)),
        ),
    ),
    Dashboard(
        "ledgermq-node",
        "LedgerMQ: node",
        (
            Panel("Reactor lag", "s", _shares("ledgermq_reactor_lag_seconds")),
            Panel("Reactor turn", "s", _shares("ledgermq_reactor_turn_seconds")),
            Panel("Processor time", "percentunit",
                  (("rate(process_cpu_seconds_total{" + _OURS + "}[$__rate_interval])", _MEMBER),)),
            Panel("Memory", "bytes", _one("process_resident_memory_bytes")),
            Panel("Open files", "short", _one("process_open_fds")),
            Panel("Connections", "short", _one("ledgermq_connections")),
            Panel("Unsent answers", "bytes", _one("ledgermq_unsent_bytes")),
            Panel("Disk free", "bytes", _one("ledgermq_disk_free_bytes")),
            Panel("Oldest message kept", "s", _one("ledgermq_retention_seconds")),
            Panel("Deleted files", "short",
                  (("increase(ledgermq_deleted_files_total{" + _OURS + "}[1h])",
                    _MEMBER + " {{reason}}"),)),
        ),
    ),
)  # fmt: skip


def dashboard_file(dashboard: Dashboard) -> str:
    """Returns what Grafana imports."""
    document: dict[str, Any] = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["ledgermq"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(document, indent=1) + "\n"


def _variables() -> list[dict[str, Any]]:
    """The data source, and which clusters and groups are shown."""
    source: dict[str, Any] = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    queries = {
        "cluster": "label_values(ledgermq_raft_term, cluster)",
        "broker": 'label_values(ledgermq_raft_term{cluster=~"$cluster"}, broker)',
    }
    return [
        source,
        *(
            {
                "name": name,
                "type": "query",
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "query": query,
                "refresh": 2,
                "multi": True,
                "includeAll": True,
                "current": {"text": "All", "value": "$__all"},
            }
            for name, query in queries.items()
        ),
    ]


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    in_row = _ROW_WIDTH // _PANEL_WIDTH
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {
            "x": number % in_row * _PANEL_WIDTH,
            "y": number // in_row * _PANEL_HEIGHT,
            "w": _PANEL_WIDTH,
            "h": _PANEL_HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend}
            for place, (expr, legend) in enumerate(panel.queries)
        ],
    }
