"""Rules and dashboards, judged by promtool."""

from __future__ import annotations

import json
from pathlib import Path

from ledgermq.broker.watching.alerts import ALERTS
from ledgermq.broker.watching.dashboards import DASHBOARDS
from ledgermq.cli.main import main
from tests.e2e.prometheus import run_promtool

# Series of one minute each, an alert, when it is asked for, and of whom it is told.
_MEMBER = 'cluster="C",broker="a",member="{}"'
_READ = 'cluster="C",node_id="a",consumer_group="g",topic="t",is_retry="false"'
_CASES = (
    ("NoLeader", {"ledgermq_raft_is_serving": "1 1 0x20"}, "4m", {"cluster": "C", "broker": "a"}),
    ("MemberFailed", {"ledgermq_ledger_failed": "0 1x20"}, "2m", {"member": "n0"}),
    ("DiskRefusing", {"ledgermq_disk_is_full": "0 1x20"}, "4m", {"member": "n0"}),
    ("RepairRunning", {"ledgermq_ledger_repair_state": "1x30"}, "12m", {"member": "n0"}),
    ("CorruptionFound", {"ledgermq_ledger_corruptions_total": "0 1x20"}, "2m", {"member": "n0"}),
    ("AclAlarm", {"ledgermq_acl_alarm": "1x30"}, "3m", {"member": "n0"}),
    ("StateAlarm", {"ledgermq_state_alarm": "1x30"}, "8m", {"member": "n0"}),
    ("SettingsDiffer", {"ledgermq_ledger_settings_differ": "1x90"}, "70m", {"member": "n0"}),
    ("ClocksDiffer", {"ledgermq_clock_alarm": "0 1x20"}, "4m", {"member": "n0"}),
    ("LogAhead", {"ledgermq_log_ahead_seconds": "3600x30"}, "8m", {"member": "n0"}),
    ("LeaderChanges", {"ledgermq_raft_leader_changes_total": "0x4 5x30"}, "10m", {"broker": "a"}),
    ("FollowerBehind", {"ledgermq_raft_follower_lag_bytes": "0+20000000x30"}, "12m",
     {"member": "n0"}),
    ("SendsFail", {"ledgermq_raft_proposals_failed_total": "0+120x30"}, "14m", {"broker": "a"}),
    ("HalfMessagesOld", {"ledgermq_half_message_age_seconds": "3500+60x30"}, "12m",
     {"member": "n0"}),
    ("CertificateEnds", {"ledgermq_certificate_expiry_seconds": "1209000-60x120"}, "70m",
     {"member": "n0"}),
    ("DiskFullIn24h", {"ledgermq_disk_free_bytes": "1000000-1000x500",
                       "ledgermq_disk_used_ratio": "0.7x500"}, "420m", {"member": "n0"}),
)  # fmt: skip
# Of topic and group.
_READERS = (
    ("LagGrowing", {"rocketmq_consumer_lag_messages": "0+10x60",
                    "rocketmq_consumer_lag_latency_milliseconds": "0+60000x60"}, "20m"),
    ("NoConsumers", {"rocketmq_consumer_lag_messages": "0+10x60"}, "20m"),
    # The first dead letters of a group, and more of them later.
    ("DeadLetters", {"rocketmq_send_to_dlq_messages_total": "_x9 3x60"}, "11m"),
    ("DeadLetters", {"rocketmq_send_to_dlq_messages_total": "3x59 4x60"}, "61m"),
)  # fmt: skip
_QUIET_READERS = (
    ("LagGrowing", {"rocketmq_consumer_lag_messages": "100-1x60",
                    "rocketmq_consumer_lag_latency_milliseconds": "400000x60"}, "20m"),
    ("NoConsumers", {"rocketmq_consumer_lag_messages": "0+10x60",
                     "rocketmq_consumer_connections": "2x60"}, "20m"),
    ("DeadLetters", {"rocketmq_send_to_dlq_messages_total": "3x60"}, "30m"),
    # Nobody led for a while.
    ("DeadLetters", {"rocketmq_send_to_dlq_messages_total": "3x40 _x9 3x60"}, "60m"),
)  # fmt: skip
# Of histograms: an alert, and values a minute; all of them take 600 ms, or half a millisecond.
_SLOW = (
    ("CommitSlow", "ledgermq_raft_commit_duration_seconds"),
    ("SyncSlow", "ledgermq_disk_sync_duration_seconds"),
    ("ReactorSaturated", "ledgermq_reactor_lag_seconds"),
)
# The same, but well.
_QUIET = (
    ("NoLeader", {"ledgermq_raft_is_serving": "1x20"}, "10m"),
    ("CorruptionFound", {"ledgermq_ledger_corruptions_total": "0x20"}, "10m"),
    ("QuorumAtRisk", {"ledgermq_raft_members": "1x20"}, "10m"),
    ("DiskFullIn24h", {"ledgermq_disk_free_bytes": "100x500"}, "480m"),
    ("StateAlarm", {"ledgermq_state_alarm": "0x30"}, "20m"),
    ("SettingsDiffer", {"ledgermq_ledger_settings_differ": "1x30 0x90"}, "110m"),
    ("ClocksDiffer", {"ledgermq_clock_alarm": "0x20"}, "10m"),
    ("LogAhead", {"ledgermq_log_ahead_seconds": "59x30"}, "20m"),
    ("LeaderChanges", {"ledgermq_raft_leader_changes_total": "0x4 1x30"}, "10m"),
    ("FollowerBehind", {"ledgermq_raft_follower_lag_bytes": "60000000x30"}, "20m"),
    ("SendsFail", {"ledgermq_raft_proposals_failed_total": "0+30x30"}, "20m"),
    ("HalfMessagesOld", {"ledgermq_half_message_age_seconds": "3000x30"}, "20m"),
    ("CertificateEnds", {"ledgermq_certificate_expiry_seconds": "2000000x120"}, "70m"),
    ("MemberFailed", {"ledgermq_ledger_failed": "0x20"}, "10m"),
    ("DiskRefusing", {"ledgermq_disk_is_full": "0x20"}, "10m"),
    ("RepairRunning", {"ledgermq_ledger_repair_state": "1x5 0x30"}, "20m"),
    ("AclAlarm", {"ledgermq_acl_alarm": "0x20"}, "10m"),
)


def test_command_writes_rules_that_prometheus_takes(tmp_path: Path) -> None:
    assert main(["monitoring", str(tmp_path)]) == 0
    rules = tmp_path / "prometheus" / "ledgermq.rules.yml"
    code, text = run_promtool("check", "rules", str(rules))
    assert code == 0 and f"{len(ALERTS)} rules found" in text, text
    assert len(list((tmp_path / "grafana").glob("*.json"))) == 4


def test_panels_ask_what_prometheus_understands(tmp_path: Path) -> None:
    records = []
    for board in DASHBOARDS:
        for panel in board.panels:
            for expr, _ in panel.queries:
                expr = expr.replace("$__rate_interval", "1m").replace("$cluster", ".*")
                expr = expr.replace("$broker", ".*")
                records.append(f"      - record: panel\n        expr: {json.dumps(expr)}")
    file = tmp_path / "panels.yml"
    file.write_text("groups:\n  - name: panels\n    rules:\n" + "\n".join(records) + "\n")
    code, text = run_promtool("check", "rules", "--lint=none", str(file))
    assert code == 0, text


def quorum_series(counting: int) -> list[tuple[str, str]]:
    """Three members, and of two followers as many that count."""
    peers = [f'ledgermq_raft_follower_counts{{{_MEMBER.format("n0")},peer="n{i}"}}' for i in (1, 2)]
    return [
        *((f"ledgermq_raft_members{{{_MEMBER.format(f'n{i}')}}}", "3x20") for i in range(3)),
        *((peer, f"{int(i < counting)}x20") for i, peer in enumerate(peers)),
    ]


def rejected(reason: str, value: int) -> list[tuple[str, str]]:
    """What a member reports of one peer; the other reason never holds."""
    name = "ledgermq_raft_peer_rejected"
    labels = _MEMBER.format("n0") + ',peer="n3",reason="{}"'
    reasons = {"membership": 0, "contradiction": 0, reason: value}
    return [(f"{name}{{{labels.format(one)}}}", f"{value}x20") for one, value in reasons.items()]


def pushes(slow: int) -> list[tuple[str, str]]:
    """A follower that confirms 100 pushes a minute: so many within 256 ms, the rest within 4."""
    name = "ledgermq_raft_peer_round_trip_seconds_bucket"
    labels = _MEMBER.format("n0") + ',peer="n1"'
    return [
        (f'{name}{{{labels},le="{bound}"}}', f"0+{count}x30")
        for bound, count in (("0.004", 100 - slow), ("0.128", 100 - slow), ("0.256", 100),
                             ("+Inf", 100))
    ]  # fmt: skip


def test_alerts_ring_when_they_should_and_only_then(tmp_path: Path) -> None:
    main(["monitoring", str(tmp_path)])
    tests = []
    for name, series, at, labels in _CASES:
        tests.append(_test(name, _of_member(series), at, labels))
    for name, series, at in _QUIET:
        tests.append(_test(name, _of_member(series), at, None))
    group = {"cluster": "C", "broker": "a"}
    tests.append(_test("QuorumAtRisk", quorum_series(1), "5m", group))
    tests.append(_test("QuorumAtRisk", quorum_series(2), "5m", None))
    tests.append(_test("MemberDown", quorum_series(2)[1:], "8m", group))
    tests.append(_test("MemberDown", quorum_series(2), "8m", None))
    for name, reason, at in (
        ("MembershipDiffers", "membership", "2m"),
        ("LogContradicted", "contradiction", "0m"),
    ):
        labels = {**group, "member": "n0", "peer": "n3", "reason": reason}
        tests.append(_test(name, rejected(reason, 1), at, labels))
        tests.append(_test(name, rejected(reason, 0), at, None))
    tests.append(_test("PeerSlow", pushes(100), "20m", {**group, "peer": "n1"}))
    tests.append(_test("PeerSlow", pushes(0), "20m", None))
    for name, series, at in _READERS:
        told = {"cluster": "C", "node_id": "a", "consumer_group": "g"}
        tests.append(_test(name, _of_reader(series), at, told))
    for name, series, at in _QUIET_READERS:
        tests.append(_test(name, _of_reader(series), at, None))
    for name, metric in _SLOW:
        tests.append(_test(name, seconds(metric, "1.024"), "25m", {"member": "n0"}))
        tests.append(_test(name, seconds(metric, "0.0005"), "25m", None))
    assert {test["name"] for test in tests} == {alert.name for alert in ALERTS}
    rules = tmp_path / "prometheus" / "ledgermq.rules.yml"
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"rule_files": [str(rules)], "tests": tests}))
    code, text = run_promtool("test", "rules", str(file))
    assert code == 0, text


def seconds(name: str, bound: str) -> list[tuple[str, str]]:
    """A histogram that gets 100 values a minute, all between a bound and the one before."""
    bounds = ("0.00025", "0.0005", "0.512", "1.024", "+Inf")
    counts = [100 if bounds.index(one) >= bounds.index(bound) else 0 for one in bounds]
    return [
        (f'{name}_bucket{{{_MEMBER.format("n0")},le="{one}"}}', f"0+{count}x40")
        for one, count in zip(bounds, counts, strict=True)
    ]


def _of_reader(series: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"{name}{{{_READ}}}", values) for name, values in series.items()]


def _of_member(series: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"{name}{{{_MEMBER.format('n0')}}}", values) for name, values in series.items()]


def _test(
    name: str, series: list[tuple[str, str]], at: str, labels: dict[str, str] | None
) -> dict[str, object]:
    """One case: what comes in each minute, and whether the alert rings; its labels are asked of
    the series ALERTS, which has no annotations to compare.
    """
    state = f'alertname="LedgerMQ{name}",alertstate="firing"'
    told = [] if labels is None else [{"labels": "{}", "value": 1}]
    wanted = "".join(f',{key}="{value}"' for key, value in (labels or {}).items())
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series],
        "promql_expr_test": [
            {
                "expr": f"count(ALERTS{{{state}{wanted}}})",
                "eval_time": at,
                "exp_samples": told,
            }
        ],
    }
