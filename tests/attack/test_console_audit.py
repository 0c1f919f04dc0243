"""Who has no account, and the audit log of the console: it is neither filled nor emptied."""

from __future__ import annotations

from pathlib import Path

from tests.attack.closed_broker import ROOT, write_rules
from tests.e2e.console.api_client import Api
from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until

_TRIES = 300


def test_tries_that_are_not_made_are_no_lines(tmp_path: Path) -> None:
    """Each was a line, as fast as requests come: 10,000 drove out what admins had done."""
    settings = ("aclEnable=true", f"aclFile={write_rules(tmp_path)}")
    with UpCluster(tmp_path / "up", node_count=1, settings=settings, console=True) as cluster:
        root, nobody = Api(cluster.console), Api(cluster.console)
        wait_until(lambda: root.call("get_session").sign_in_needed, what="a broker that asks")
        root.sign_in(ROOT.access_key, ROOT.secret_key)
        wrong = {"access_key": "n" * 64, "secret_key": "x" * 64}
        told = [nobody.raw("POST", "/api/v1/session", wrong)[0] for _ in range(_TRIES)]
        assert told.count(401) + told.count(429) == _TRIES and told.count(401) == 4
        lines = root.call("get_audit", query={"limit": 200})
        assert lines.total <= 6
        assert [entry.outcome for entry in lines.entries].count("refused") >= 4
        assert lines.entries[-1].account == ROOT.access_key
