"""The files that Prometheus and Grafana are given, by their names below one folder."""

from ledgermq.broker.watching.alerts import rules_file
from ledgermq.broker.watching.dashboards import DASHBOARDS, dashboard_file


def monitoring_files() -> dict[str, str]:
    """Returns the text of each file."""
    boards = {f"grafana/{board.uid}.json": dashboard_file(board) for board in DASHBOARDS}
    return {"prometheus/ledgermq.rules.yml": rules_file(), **boards}
