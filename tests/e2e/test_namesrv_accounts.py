"""A group whose brokers register by an account: it is found, also after its leader is lost, and
operators change things by theirs.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.remote import RefusedError, Remote
from tests.free_ports import free_first_port
from tests.processes import SMALL_STORE, LiveProgram, run_ledgermq
from tests.waiting import wait_until

ACCOUNTS = """
accounts:
- {accessKey: shop-brokers, secretKey: secret-of-shop, brokerNames: [broker-a]}
- {accessKey: operator, secretKey: secret-of-operator, admin: true}
"""


def private(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


@pytest.fixture
def up(tmp_path: Path) -> Iterator[LiveProgram]:
    base = free_first_port()
    secret = private(tmp_path / "broker.secret", "secret-of-shop\n")
    accounts = private(tmp_path / "accounts.yml", ACCOUNTS)
    words = [
        "up", "--nodes", 3, "--base-port", base, "--namesrv-port", base + 5,
        "--console-port", 0, "--ready-file", tmp_path / "ready.json",
        "--data", tmp_path / "data", "--",
        *SMALL_STORE, "namesrv.aclEnable=true", f"namesrv.aclFile={accounts}",
        "namesrvAccessKey=shop-brokers", f"namesrvSecretKeyFile={secret}",
    ]  # fmt: skip
    with LiveProgram(words, tmp_path / "up.log") as program:
        wait_until(lambda: "ready" in program.lines, what="ready")
        yield program


def told(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "ready.json").read_text())
    return document


def masters_of(remote: Remote) -> list[str]:
    try:
        route = remote.route("broker-a")
    except RefusedError:
        return []
    return [data.broker_addrs[0] for data in route.broker_datas if 0 in data.broker_addrs]


def test_a_new_leader_has_the_name_of_the_lost_one_at_once(up: LiveProgram, tmp_path: Path) -> None:
    with Remote(told(tmp_path)["namesrv"]) as remote:
        (lost,) = wait_until(lambda: masters_of(remote), what="a master in the route")
        pids = {broker["address"]: broker["pid"] for broker in told(tmp_path)["brokers"]}
        os.kill(pids[lost], signal.SIGKILL)
        # Long before it would be taken for silent.
        wait_until(
            lambda: [m for m in masters_of(remote) if m != lost],
            what="another master in the route",
            deadline_s=60,
        )

        # The lost one is started again, and is a replica.
        def all_are_there() -> bool:
            table = remote.clusters().broker_addr_table
            return "broker-a" in table and len(table["broker-a"].broker_addrs) == 3

        wait_until(all_are_there, what="three registered members", deadline_s=60)
    log = (tmp_path / "data" / "logs" / "namesrv.log").read_text()
    assert "needs an account" not in log


def test_operators_change_things_by_their_account(up: LiveProgram, tmp_path: Path) -> None:
    words = (
        "admin", "updateKvConfig", "-n", told(tmp_path)["namesrv"],
        "-s", "space", "-k", "key", "-v", "1",
    )  # fmt: skip
    tools = tmp_path / "tools.yml"
    for text, code, said in (
        ("", 1, "needs an account"),
        ("accessKey: shop-brokers\nsecretKey: secret-of-shop\n", 1, "admin: true"),
        ("accessKey: operator\nsecretKey: secret-guessed\n", 1, "signature"),
        ("accessKey: operator\nsecretKey: secret-of-operator\n", 0, ""),
    ):
        tools.write_text(text)
        done = run_ledgermq(*words, *(["--acl-config", tools] if text else []))
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
