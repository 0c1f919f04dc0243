"""`ledgermq admin transferLeader` against a group as users start it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until

# Waits are long, for a starved machine; several may follow each other.
pytestmark = pytest.mark.timeout(300)


def transfer(cluster: UpCluster, *words: str) -> tuple[int, Any, str]:
    """Runs the command in this process; returns exit code, its JSON and its complaint."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["admin", "transferLeader", "--json", "-n", cluster.name_server, *words])
    return code, json.loads(out.getvalue()) if code == 0 else None, err.getvalue()


def hand_on(cluster: UpCluster) -> dict[str, Any]:
    """Has the leader hand on to another member, and returns what the command says.

    The term proves that nothing else happened: on a starved machine a leader may be lost just
    before, or a member that began later must catch up first. Then all of it is done again.
    """
    complaints: list[str] = []

    def hands_on() -> dict[str, Any] | None:
        leader = cluster.find_leader()
        if leader is None:
            return None
        # Who leads already is named, with its term, and goes on.
        code, rows, complaint = transfer(cluster, "-a", leader["address"], "--to", leader["id"])
        complaints.append(complaint)
        if code or rows[0]["from"] != leader["id"]:
            return None
        (before,) = rows
        target = next(node for node in cluster.nodes() if node["id"] != leader["id"])
        # Any broker of the group can be named.
        code, rows, complaint = transfer(cluster, "-a", target["address"], "--to", target["id"])
        complaints.append(complaint)
        if code or rows[0]["term"] != before["term"] + 1:
            return None
        (row,) = rows
        assert (row["from"], row["to"]) == (leader["id"], target["id"])
        return row  # type: ignore[no-any-return]

    try:
        row = wait_until(hands_on, what="a transfer", deadline_s=90.0)
    except AssertionError as error:
        error.add_note("".join(sorted(set(complaints))))
        raise
    assert row is not None
    return row


def test_operator_hands_the_leadership_on(tmp_path: Path) -> None:
    with UpCluster(tmp_path) as cluster:
        row = hand_on(cluster)

        def is_told() -> bool:
            found = cluster.find_leader()
            if found is None:
                return False
            code, rows, _ = transfer(cluster, "-a", found["address"], "--to", found["id"])
            (now,) = rows if code == 0 else [row]
            return now["from"] == found["id"] and (
                now["to"] == row["to"] if now["term"] == row["term"] else now["term"] > row["term"]
            )

        wait_until(is_told, what="the new leader to be told")
        again = hand_on(cluster)
        assert again["term"] > row["term"]
        address = cluster.nodes()[0]["address"]
        code, _, complaint = transfer(cluster, "-a", address, "--to", "n7")
        assert code == 1
        assert "'n7'" in complaint
        code, _, complaint = transfer(cluster, "-b", "nobody", "--to", "n1")
        assert code == 1
        assert "'nobody'" in complaint
