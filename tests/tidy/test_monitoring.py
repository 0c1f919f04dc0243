"""What is made of the tables of metrics, alerts and dashboards is what the tables make."""

import json
import re

from ledgermq.broker.watching.alerts import ALERTS, GUIDE
from ledgermq.broker.watching.dashboards import DASHBOARDS
from ledgermq.broker.watching.families import FAMILIES
from ledgermq.broker.watching.metric_docs import metrics_page
from ledgermq.broker.watching.monitoring_files import monitoring_files
from tests.tidy.sources import ROOT

_NAME = re.compile(r"\b(?:ledgermq|rocketmq|process|python)_\w+")


def expressions() -> list[str]:
    """All that is asked of Prometheus, by alerts and by dashboards."""
    panels = [panel for board in DASHBOARDS for panel in board.panels]
    asked = [expr for panel in panels for expr, _ in panel.queries]
    return [*asked, *(alert.expr for alert in ALERTS)]


def served() -> set[str]:
    """Names of series on a page of metrics."""
    names = set()
    for family in FAMILIES.values():
        is_histogram = family.kind == "histogram"
        ends = ("_bucket", "_sum", "_count") if is_histogram else ("",)
        names |= {family.name + end for end in ends}
    return names


def test_page_of_metrics_is_that_of_the_table() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == metrics_page()


def test_rules_and_dashboards_are_those_of_the_tables() -> None:
    for name, text in monitoring_files().items():
        assert (ROOT / "conf" / name).read_text() == text, f"ledgermq monitoring conf: {name}"
    there = {path.name for folder in ("prometheus", "grafana") for path in
             (ROOT / "conf" / folder).iterdir()}  # fmt: skip
    assert there == {name.rpartition("/")[2] for name in monitoring_files()}


def test_only_what_is_served_is_asked_for() -> None:
    for expr in expressions():
        names = set(_NAME.findall(expr))
        assert names and names <= served(), (expr, names - served())


def test_every_alert_has_a_section_that_says_what_to_do() -> None:
    guide = (ROOT / GUIDE).read_text().partition("\n## Alerts\n")[2]
    sections = re.findall(r"^### (\w+)\n(.+)", guide, re.MULTILINE)
    assert [name for name, _ in sections] == [alert.name for alert in ALERTS]


def test_dashboards_have_panels_side_by_side() -> None:
    assert len(DASHBOARDS) == 4
    for name, text in monitoring_files().items():
        if not name.endswith(".json"):
            continue
        board = json.loads(text)
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
        assert len(places) == len(set(places)) >= 9
        assert len({panel["id"] for panel in board["panels"]}) == len(places)
