"""Probes against real brokers: a group that loses members, one at a time, and has them back."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.up_cluster import Node, UpCluster
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE, LiveProgram, listening_ports
from tests.waiting import wait_until

# Waits are long, for a starved machine; several may follow each other.
pytestmark = pytest.mark.timeout(300)


def ask(port: int, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def health(*words: object, **variables: str) -> tuple[int, str]:
    """Runs `ledgermq health`; returns its exit code and what it complained about."""
    command = [sys.executable, "-m", "ledgermq.cli.main", "health", *map(str, words)]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    return done.returncode, done.stderr


def test_probes_of_a_group_that_loses_its_majority(tmp_path: Path) -> None:
    [first] = free_ports(1, spread=(0, 10, 20))
    with UpCluster(tmp_path, settings=[*SMALL_STORE, f"httpPort={first}"]) as cluster:
        cluster.wait_for_all()
        leader = cluster.wait_for_leader()
        followers = [node for node in cluster.nodes() if node["id"] != leader["id"]]

        def port(node: Node) -> int:
            return first + 10 * int(node["id"][1:])

        def asked(node: Node, path: str) -> int:
            return ask(port(node), path)[0]

        for node in cluster.nodes():
            for path in ("/readyz", "/livez", "/startupz", "/quorum-safe"):
                wait_until(
                    lambda node=node, path=path: ask(port(node), path) == (200, "ok"),
                    what=f"{path} of {node['id']}",
                )
        assert health("--port", port(leader), "--quorum-safe", "--wait", 60) == (0, "")

        # A third of the members is gone: the other two are needed.
        cluster.signal(signal.SIGSTOP, followers[0])
        wait_until(lambda: asked(leader, "/quorum-safe") == 503, what="a leader that is needed")
        status, text = ask(port(leader), "/quorum-safe")
        (reason,) = json.loads(text)["reasons"]
        assert f"missing: {followers[0]['id']}" in reason["reason"]
        assert asked(leader, "/readyz") == 200
        code, complaint = health("--port", port(leader), "--quorum-safe")
        assert code == 1 and followers[0]["id"] in complaint

        # The leader alone is a minority: it waits, and is not restarted for that.
        cluster.signal(signal.SIGSTOP, followers[1])
        wait_until(lambda: asked(leader, "/readyz") == 503, what="a member without a majority")
        status, text = ask(port(leader), "/readyz?verbose")
        assert "[-]group failed: is " in text and "[+]files ok" in text
        assert asked(leader, "/livez") == asked(leader, "/startupz") == 200
        assert health("--port", port(leader), "--live") == (0, "")
        assert health("--port", port(leader))[0] == 1

        cluster.signal(signal.SIGCONT, *followers)
        for node in cluster.nodes():
            wait_until(lambda node=node: asked(node, "/readyz") == 200, what="a ready member")
        assert health("--port", port(leader), "--ready", "--wait", 60) == (0, "")


def broker(folder: Path, port: int, *settings: str) -> LiveProgram:
    words = [
        "broker", "--json", f"listenPort={port}", "brokerIP1=127.0.0.1", "brokerName=alone",
        f"storePathRootDir={folder / 'store'}", *SMALL_STORE, *settings,
    ]  # fmt: skip
    return LiveProgram(words, folder / "broker.log")


@pytest.mark.parametrize("settings", [[], ["enableDLegerCommitLog=false"]])
def test_broker_that_is_alone_is_well(tmp_path: Path, settings: list[str]) -> None:
    [port] = free_ports(1, spread=(0, 1, 2))
    with broker(tmp_path, port, f"httpPort={port + 2}", *settings) as program:
        program.wait_until_serving(90.0)
        # Nobody stands beside it: a ledger port would only let strangers in.
        slaves = {port + 1} if settings else set()
        assert listening_ports(program.pid) == {port, port + 2} | slaves
        assert program.status["dledger"] is None
        for path in ("/livez", "/readyz", "/startupz", "/quorum-safe"):
            assert ask(port + 2, path) == (200, "ok")
        assert ask(port + 2, "/livez", Host="evil.example")[0] == 421
        file = tmp_path / "broker.conf"
        file.write_text(f"httpPort={port + 2}\n")
        assert health("-c", file) == (0, "")
        # As in a container, whose other settings are complete with the broker's words only.
        peers = {"LEDGERMQ_D_LEGER_PEERS": "n0-a:1;n1-b:1;n2-c:1", "LEDGERMQ_BROKER_NAME": "alone"}
        assert health(LEDGERMQ_HTTP_PORT=str(port + 2), **peers) == (0, "")
        code, complaint = health()
        assert code == 1 and "httpPort" in complaint
    assert health("-c", file)[0] == 1


def refused(*settings: str) -> str:
    """Why a broker does not start."""
    command = [sys.executable, "-m", "ledgermq.cli.main", "broker", *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78
    return done.stderr


def test_port_beyond_loopback_needs_a_token_for_metrics(tmp_path: Path) -> None:
    store = f"storePathRootDir={tmp_path}"
    complaint = refused(store, "httpPort=9", "httpBindAddress=0.0.0.0")
    assert "httpTokenFile" in complaint
    token = tmp_path / "token"
    token.write_text("t0ken\n")
    token.chmod(0o644)
    named = (store, "httpPort=9", "httpBindAddress=0.0.0.0", f"httpTokenFile={token}")
    assert "chmod 0600" in refused(*named)
    assert "an address" in refused(store, "httpPort=9", "httpBindAddress=here")


def test_plain_start_does_not_load_a_web_server() -> None:
    code = (
        "import sys\nimport ledgermq.cli.broker\n"
        "assert not [n for n in sys.modules if n.startswith(('twisted.web', 'ledgermq.http'))]"
    )
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
