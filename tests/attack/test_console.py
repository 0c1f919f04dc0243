"""An account with few rights at the console: it is not told what others did there, and saw."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.closed_broker import ROOT, SHOP, THIEF, write_rules
from tests.e2e.console.api_client import Api, Refused
from tests.e2e.console.test_changes import done
from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    folder = tmp_path_factory.mktemp("closed")
    settings = ("aclEnable=true", f"aclFile={write_rules(folder)}")
    with UpCluster(folder, node_count=1, settings=settings, console=True) as cluster:
        api = Api(cluster.console)
        wait_until(lambda: api.call("get_session").sign_in_needed, what="a broker that asks")
        yield cluster


def test_what_others_did_is_not_told(closed: UpCluster) -> None:
    root, thief = Api(closed.console), Api(closed.console)
    root.sign_in(ROOT.access_key, ROOT.secret_key)
    assert thief.sign_in(THIEF.access_key, THIEF.secret_key).role == "user"
    action = done(root, "create_topic", topic="Hidden", read_queues=1, write_queues=1)
    assert {entry.account for entry in thief.call("get_audit").entries} == {THIEF.access_key}
    assert thief.call("get_actions").rows == []
    with pytest.raises(Refused) as refused:
        thief.call("get_action", action=action.id)
    assert refused.value.status == 404
    with pytest.raises(Refused) as refused:
        thief.call("get_log")
    assert refused.value.status == 403
    # Who may do everything sees it all.
    told = root.call("get_audit", query={"limit": 200}).entries
    assert {ROOT.access_key, THIEF.access_key} <= {entry.account for entry in told}
    assert [row.id for row in root.call("get_actions").rows] == [action.id]
    assert root.call("get_action", action=action.id).summary == action.summary
    assert root.call("get_log").lines


def test_own_changes_are_told(closed: UpCluster) -> None:
    shop = Api(closed.console)
    shop.sign_in(SHOP.access_key, SHOP.secret_key)
    entries = shop.call("get_audit").entries
    assert [(entry.action, entry.account) for entry in entries] == [("sign_in", SHOP.access_key)]


def resident_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def test_bodies_that_never_end_do_not_add_up(closed: UpCluster) -> None:
    """Nobody has signed in: 40 requests of 7 MB each, of which the last byte is missing."""
    api = Api(closed.console)
    pid = closed.pid_of("console")
    before = resident_mb(pid)
    head = (
        f"POST /api/v1/session HTTP/1.1\r\nHost: {api.host}\r\nContent-Type: application/json\r\n"
        "Content-Length: 7000000\r\n\r\n"
    )
    held = []
    try:
        for _ in range(40):
            held.append(socket.create_connection((api.host, api.port), timeout=30.0))
            with contextlib.suppress(OSError):
                held[-1].sendall(head.encode() + b" " * 6_999_999)
        assert resident_mb(pid) - before < 120
        # Who asks in earnest is served beside them.
        root = Api(closed.console)
        assert root.sign_in(SHOP.access_key, SHOP.secret_key).signed_in
    finally:
        for connection in held:
            connection.close()
