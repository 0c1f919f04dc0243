"""An account at the console that opens as many streams of events as it can."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from tests.attack.closed_broker import SHOP, THIEF, write_rules
from tests.e2e.console.api_client import Api
from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until


def stream(api: Api) -> socket.socket:
    """Asks for a stream of events."""
    connection = socket.create_connection((api.host, api.port), timeout=30.0)
    target = f"/api/v1/clusters/{api.cluster}/events?parts=overview"
    head = f"GET {target} HTTP/1.1\r\nHost: {api.host}\r\nCookie: {api.cookie}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


def is_open(connection: socket.socket) -> bool:
    return connection.recv(12) == b"HTTP/1.1 200"


def test_one_account_does_not_take_all_streams(tmp_path: Path) -> None:
    """In two sessions, for a bound of a session would be none; all at once."""
    settings = ("aclEnable=true", f"aclFile={write_rules(tmp_path)}")
    with (
        UpCluster(tmp_path / "up", node_count=1, settings=settings, console=True) as cluster,
        contextlib.ExitStack() as held,
    ):
        thief, again, shop = (Api(cluster.console) for _ in range(3))
        wait_until(lambda: thief.call("get_session").sign_in_needed, what="a broker that asks")
        thief.sign_in(THIEF.access_key, THIEF.secret_key)
        again.sign_in(THIEF.access_key, THIEF.secret_key)
        shop.sign_in(SHOP.access_key, SHOP.secret_key)
        asked = [held.enter_context(stream(one)) for one in [thief, again] * 40]
        assert sum(is_open(one) for one in asked) == 16
        assert is_open(held.enter_context(stream(shop)))
