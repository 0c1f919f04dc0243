"""What the programs write is for their user alone, also where a shell lets everybody read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_plain_broker import connected, plain_broker
from tests.e2e.up_cluster import UpCluster
from tests.e2e.wire_client import WireClient
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def no_mask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(root: Path) -> dict[str, str]:
    """What others may do something with, and its mode."""
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in [root, *root.rglob("*")]}
    return {str(path): oct(mode) for path, mode in found.items() if mode & 0o077}


def test_name_server_and_group(tmp_path: Path) -> None:
    with UpCluster(tmp_path, 1) as cluster:
        leader = cluster.find_leader()
        assert leader is not None
        with WireClient(leader["address"]) as client:
            assert client.send("orders", 0, b"body").code == 0
        wait_until(
            (cluster.data / "n0" / "config" / "topics.json").exists,
            what="a file of topics",
            deadline_s=30,
        )
    names = {path.name for path in cluster.data.rglob("*")}
    assert {"currterm", "topics.json", "n0.log", "namesrv.log", "lock"} <= names
    assert open_to_others(cluster.data) == {}


def test_broker_without_a_ledger(tmp_path: Path) -> None:
    with plain_broker(tmp_path) as program, connected(program) as client:
        assert client.send("orders", 0, b"body").code == 0
        assert open_to_others(tmp_path / "store") == {}
    assert open_to_others(tmp_path / "store") == {}


def test_a_directory_of_former_times_is_left_as_it_is_and_told(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o755)
    with plain_broker(tmp_path) as program, connected(program):
        log = (tmp_path / "broker.log").read_text()
    assert f"chmod -R go-rwx {tmp_path / 'store'}" in log
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o755
