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
_CASES = (
    ("NoLeader", {"ledgermq_raft_is_serving": "1 1 0x20"}, "4m", {"cluster": "C", "broker": "a"}),
    ("MemberFailed", {"ledgermq_ledger_failed": "0 1x20"}, "2m", {"member": "n0"}),
    ("DiskRefusing", {"ledgermq_disk_is_full": "0 1x20"}, "4m", {"member": "n0"}),
    ("RepairRunning", {"ledgermq_ledger_repair_state": "1x30"}, "12m", {"member": "n0"}),
    ("CorruptionFound", {"ledgermq_ledger_corruptions_total": "0 1x20"}, "2m", {"member": "n0"}),
    ("AclAlarm", {"ledgermq_acl_alarm": "1x30"}, "3m", {"member": "n0"}),
)
# The same, but well.
_QUIET = (
    ("NoLeader", {"ledgermq_raft_is_serving": "1x20"}, "10m"),
    ("CorruptionFound", {"ledgermq_ledger_corruptions_total": "0x20"}, "10m"),
    ("QuorumAtRisk", {"ledgermq_raft_members": "1x20"}, "10m"),
    ("DiskFullIn24h", {"ledgermq_disk_free_bytes": "100x500"}, "480m"),
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
    tests.append(_test("PeerSlow", pushes(100), "20m", {**group, "peer": "n1"}))
    tests.append(_test("PeerSlow", pushes(0), "20m", None))
    rules = tmp_path / "prometheus" / "ledgermq.rules.yml"
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"rule_files": [str(rules)], "tests": tests}))
    code, text = run_promtool("test", "rules", str(file))
    assert code == 0, text


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
