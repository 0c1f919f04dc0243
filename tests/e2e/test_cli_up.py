"""Programs as processes: `ledgermq up` and its children, and programs that cannot start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificate_files import write_tls_file
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_first_port
from tests.processes import SMALL_STORE, LiveProgram, broker, run_ledgermq
from tests.waiting import wait_until


@pytest.fixture
def up(tmp_path: Path) -> Iterator[LiveProgram]:
    """A cluster of one broker without a directory of its own, when it is ready."""
    base = free_first_port()
    words = [
        "up", "--nodes", 1, "--base-port", base, "--namesrv-port", base + 5,
        "--console-port", base + 7, "--ready-file", tmp_path / "ready.json", "--", *SMALL_STORE,
    ]  # fmt: skip
    # A suite that was started in the background ignores Ctrl-C, and so would its children; under
    # nohup it ignores that its terminal is closed.
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)
    hung_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        program = LiveProgram(words, tmp_path / "up.log")
    finally:
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGHUP, hung_up)
    with program:
        wait_until(lambda: "ready" in program.lines, what="ready")
        yield program


def children(program: LiveProgram) -> list[int]:
    """Process ids from the lines "n0  address  pid N  ROLE"."""
    return sorted({int(line.split()[3]) for line in program.lines if " pid " in line})


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def data_of(program: LiveProgram) -> Path:
    return Path(program.lines[0].removeprefix("data in "))


def brokers_of_clusters(console: str) -> list[int]:
    with urllib.request.urlopen(console + "api/v1/clusters") as answer:
        return [one["brokers"] for one in json.loads(answer.read())["clusters"]]


def test_up_tells_where_everything_is(up: LiveProgram, tmp_path: Path) -> None:
    document = json.loads((tmp_path / "ready.json").read_text())
    (node,) = document["brokers"]
    assert sorted(document) == ["brokers", "console", "namesrv"]
    assert sorted(node) == ["address", "dledger", "id", "pid", "role"]
    assert (node["id"], node["role"]) == ("n0", "LEADER")
    # The console asks the name server now and then.
    console = document["console"]
    wait_until(lambda: brokers_of_clusters(console) == [1], what="a cluster of one broker")
    assert any(line.startswith("console ") and document["console"] in line for line in up.lines)
    port = int(node["address"].rpartition(":")[2])
    assert node["dledger"] == f"127.0.0.1:{port + 30_000}"
    assert node["pid"] in children(up)
    roles = [line.split()[-1] for line in up.lines if line.startswith("n0 ")]
    assert set(roles) <= {"CANDIDATE", "FOLLOWER", "LEADER"}
    with WireClient(node["address"]) as client:
        assert client.send("T", 0, b"hello").code == 0
    listed = run_ledgermq("admin", "clusterList", "--json", "-n", document["namesrv"])
    assert node["address"] in {row["address"] for row in json.loads(listed.stdout)}


def test_ready_means_that_the_name_server_knows_the_leader(tmp_path: Path) -> None:
    base = free_first_port()
    # The name server takes no registration until its accounts say so.
    accounts = tmp_path / "accounts.yml"
    accounts.touch(0o600)
    accounts.write_text("accounts: []\n")
    words = [
        "up", "--nodes", 1, "--base-port", base, "--namesrv-port", base + 5,
        "--console-port", 0, "--", *SMALL_STORE, "registerNameServerPeriod=10000",
        "namesrv.aclEnable=true", f"namesrv.aclFile={accounts}",
    ]  # fmt: skip
    with LiveProgram(words, tmp_path / "up.log") as up:
        wait_until(
            lambda: any(line.startswith("n0 ") and line.endswith("LEADER") for line in up.lines),
            what="a broker that leads",
        )
        asked = ("admin", "clusterList", "--json", "-n", f"127.0.0.1:{base + 5}")
        assert json.loads(run_ledgermq(*asked).stdout) == []
        assert "ready" not in up.lines
        accounts.write_text("globalWhiteRemoteAddresses: [127.0.0.1]\naccounts: []\n")
        wait_until(lambda: "ready" in up.lines, what="ready")
        listed = run_ledgermq(*asked)
        assert [row["id"] for row in json.loads(listed.stdout)] == [0], listed.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_up_stops_all_and_leaves_nothing(up: LiveProgram, number: signal.Signals) -> None:
    pids, data = children(up), data_of(up)
    assert len(pids) == 3 and all(map(is_alive, pids))
    os.kill(up.pid, number)
    # Longer than its own patience with them, so that it can say who did not stop.
    assert up.wait(30) == 0, up.lines
    assert not any(map(is_alive, pids))
    assert not data.exists()


def test_up_goes_on_when_nobody_reads_what_it_says(tmp_path: Path) -> None:
    """As behind `head`; it leaves nothing all the same."""
    base = free_first_port()
    ready = tmp_path / "ready.json"
    words = [
        "up", "--nodes", 1, "--base-port", base, "--namesrv-port", base + 5,
        "--console-port", base + 7, "--ready-file", ready, "--", *SMALL_STORE,
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "ledgermq.cli.main", *map(str, words)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith(b"data in ")
        process.stdout.close()
        wait_until(ready.exists, what="ready")
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert not list(tmp_path.glob("ledgermq-*"))


def test_children_end_when_up_is_killed(up: LiveProgram) -> None:
    pids, data = children(up), data_of(up)
    up.kill()
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of the children", deadline_s=15)
    # Who was killed cannot clean up.
    shutil.rmtree(data)


def test_a_child_that_dies_is_started_again(up: LiveProgram, tmp_path: Path) -> None:
    (before,) = json.loads((tmp_path / "ready.json").read_text())["brokers"]
    os.kill(before["pid"], signal.SIGKILL)

    def is_back() -> bool:
        (node,) = json.loads((tmp_path / "ready.json").read_text())["brokers"]
        return node["pid"] not in (None, before["pid"]) and node["role"] == "LEADER"

    wait_until(is_back, what="a new process")
    assert any("ended" in line and "starts again" in line for line in up.lines)


def refusal_of_up(*words: object) -> str:
    """Why a cluster of one broker does not start: what stands on stderr, one line."""
    done = run_ledgermq("up", "--nodes", 1, *words)
    assert done.returncode == 1, done.stdout
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "ready" not in done.stdout.splitlines()
    return done.stderr


def test_up_tells_why_it_cannot_start(up: LiveProgram) -> None:
    base = free_first_port()
    ports = ("--base-port", base, "--namesrv-port", base + 5)
    node_port = next(line.split()[1] for line in up.lines if line.startswith("n0 "))
    taken = node_port.rpartition(":")[2]
    text = refusal_of_up("--base-port", taken, "--namesrv-port", base + 5)
    assert f"port {taken} is in use" in text and "--base-port" in text
    data = data_of(up)
    text = refusal_of_up(*ports, "--data", data, "--", *SMALL_STORE)
    assert "n0 does not start" in text and str(data / "n0") in text


def test_up_does_not_repeat_a_start_with_wrong_settings(tmp_path: Path) -> None:
    base = free_first_port()
    done = run_ledgermq(
        "up", "--nodes", 1, "--base-port", base, "--namesrv-port", base + 5, "--console-port", 0,
        "--data", tmp_path, "--", "maxMessageSize=none",
    )  # fmt: skip
    assert done.returncode == 78 and "starts again" not in done.stdout
    assert "n0 does not start" in done.stderr and "maxMessageSize" in done.stderr


def test_up_with_more_nodes_than_its_data_has_stops(tmp_path: Path) -> None:
    base = free_first_port()
    words = [
        "--base-port", base, "--namesrv-port", base + 5, "--console-port", 0, "--data", tmp_path,
        "--", *SMALL_STORE,
    ]  # fmt: skip
    with LiveProgram(["up", "--nodes", 1, *words], tmp_path / "up.log") as program:
        wait_until(lambda: "ready" in program.lines, what="ready")
    done = run_ledgermq("up", "--nodes", 3, *words)
    assert done.returncode == 78 and "n0 does not start" in done.stderr
    assert "n0, n1, n2" in done.stderr and "dLegerPeers" in done.stderr


def test_up_with_tls_only(tmp_path: Path) -> None:
    base = free_first_port()
    tls = write_tls_file(tmp_path / "tls.properties")
    words = [
        "up", "--nodes", 1, "--base-port", base, "--namesrv-port", base + 5,
        "--console-port", base + 7, "--round-trip", "--", *SMALL_STORE,
        f"tls.config.file={tls}", "tls.server.mode=enforcing",
    ]  # fmt: skip
    with LiveProgram(words, tmp_path / "up.log") as up:
        wait_until(lambda: any("read back" in line for line in up.lines), what="the round trip")
        asked = ("admin", "clusterList", "-n", f"127.0.0.1:{base + 5}")
        assert "broker-a" in run_ledgermq(*asked, "--tls-config", tls).stdout
        assert run_ledgermq(*asked).returncode == 1
        url = next(line.split()[1] for line in up.lines if line.startswith("console "))
        wait_until(lambda: brokers_of_clusters(url) == [1], what="a cluster of one broker")


def test_a_taken_port_refuses_to_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = [f"listenPort={port}", "brokerIP1=127.0.0.1", f"storePathRootDir={tmp_path / 's'}"]
        for command in (
            ["broker", *words, *SMALL_STORE],
            ["namesrv", "-p", port, "bindAddress=127.0.0.1", f"kvConfigPath={tmp_path / 'kv'}"],
        ):
            done = run_ledgermq(*command)
            assert done.returncode == 1, done.stderr
            assert str(port) in done.stderr and "in use" in done.stderr
            assert "Traceback" not in done.stderr


def test_a_store_in_use_refuses_to_start(tmp_path: Path) -> None:
    with broker(tmp_path) as first:
        first.wait_until_serving()
        with broker(tmp_path, log="second.log") as second:
            assert second.wait() == 1
        text = second.log_text()
        assert str(tmp_path / "broker-a") in text
        assert "Traceback" not in text
        with WireClient(first.address) as client:
            assert client.send("T", 0, b"unharmed").code == 0


def test_a_store_that_cannot_be_used_refuses_to_start(tmp_path: Path) -> None:
    (tmp_path / "broker-a").write_text("in the way")
    with broker(tmp_path) as program:
        assert program.wait() == 1
    assert str(tmp_path / "broker-a") in program.log_text()


def test_a_broker_that_stops_keeps_everything(tmp_path: Path) -> None:
    with broker(tmp_path) as program:
        program.wait_until_serving()
        with WireClient(program.address) as client:
            for number in range(50):
                assert client.send("Kept", 0, b"%d" % number).code == 0
        assert program.stop() == 0
    with broker(tmp_path, log="second.log") as program:
        program.wait_until_serving()
        with WireClient(program.address) as client:
            bodies = [record.body for record in client.read_queue("Kept", 0)]
    assert bodies == [b"%d" % number for number in range(50)]


def test_a_taken_port_of_the_console_is_left_to_who_has_it(tmp_path: Path) -> None:
    base = free_first_port()
    words = [
        "up", "--nodes", 1, "--base-port", base, "--namesrv-port", base + 5,
        "--console-port", base + 7, "--", *SMALL_STORE,
    ]  # fmt: skip
    with socket.create_server(("127.0.0.1", base + 7)), LiveProgram(words, tmp_path / "log") as up:
        wait_until(lambda: "ready" in up.lines, what="ready")
        (told,) = {line.split()[1] for line in up.lines if line.startswith("console ")}
    assert told == f"http://127.0.0.1:{base + 8}/"
