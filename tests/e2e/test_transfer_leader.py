"""`ledgermq admin transferLeader` against a group as users start it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from ledgermq.cli.main import main
from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until


def transfer(cluster: UpCluster, *words: str) -> tuple[int, Any, str]:
    """Runs the command in this process; returns exit code, its JSON and its complaint."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["admin", "transferLeader", "--json", "-n", cluster.name_server, *words])
    return code, json.loads(out.getvalue()) if code == 0 else None, err.getvalue()


def transfer_in_time(cluster: UpCluster, address: str, target_id: str) -> dict[str, Any]:
    """Asks until it is done: a member that began later than the others must catch up first."""
    complaints: list[str] = []

    def is_done() -> Any:
        code, rows, complaint = transfer(cluster, "-a", address, "--to", target_id)
        complaints.append(complaint)
        return rows

    try:
        rows: list[dict[str, Any]] = wait_until(is_done, what=f"{target_id} to lead")
    except AssertionError as error:
        error.add_note("".join(sorted(set(complaints))))
        raise
    (row,) = rows
    return row


def test_operator_hands_the_leadership_on(tmp_path: Path) -> None:
    with UpCluster(tmp_path) as cluster:
        leader = wait_until(cluster.leader, what="one leader")
        assert leader is not None
        address = leader["address"]
        first, second = (node for node in cluster.brokers() if node["id"] != leader["id"])
        row = transfer_in_time(cluster, address, first["id"])
        assert (row["from"], row["to"]) == (leader["id"], first["id"])
        # Any broker of the group can be named; the term goes on.
        again = transfer_in_time(cluster, address, second["id"])
        assert (again["from"], again["to"]) == (first["id"], second["id"])
        assert again["term"] > row["term"]

        def serves() -> bool:
            found = cluster.leader()
            return found is not None and found["id"] == second["id"]

        wait_until(serves, what="the new leader to be told")
        code, _, complaint = transfer(cluster, "-a", address, "--to", "n7")
        assert code == 1
        assert "'n7'" in complaint
        code, _, complaint = transfer(cluster, "-b", "nobody", "--to", "n1")
        assert code == 1
        assert "'nobody'" in complaint
