"""The log of a real broker: lines of JSON, and its level by a signal."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until


def test_a_broker_logs_json_and_debugs_by_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["listenPort=0", "brokerIP1=127.0.0.1", f"storePathRootDir={tmp_path}"]
    with log.open("wb") as file:
        program = subprocess.Popen(
            [sys.executable, "-m", "ledgermq.cli.main", "broker", "logFormat=json", *words],
            stdout=subprocess.DEVNULL,
            stderr=file,
        )
    try:
        wait_until(lambda: "broker-" in log.read_text() or "broker " in log.read_text(), what="log")
        for level in ("debug", "info"):
            program.send_signal(signal.SIGUSR1)
            said = f"level of ledgermq is {level} (SIGUSR1)"
            wait_until(lambda said=said: said in log.read_text(), what=said)
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.wait()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["level"] for line in lines} <= {"info", "warn"}
    assert all(line["node"] and line["group"] and line["logger"] for line in lines)


def test_the_journal_gets_priorities(tmp_path: Path) -> None:
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with own, other:
        status = os.fstat(other.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        words = ["-p", "0", "bindAddress=127.0.0.1", f"kvConfigPath={tmp_path}/kv.json"]
        program = subprocess.Popen(
            [sys.executable, "-m", "ledgermq.cli.main", "namesrv", *words],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=other.fileno(),
        )
        try:
            own.settimeout(60)
            text = ""
            while "no accounts" not in text or not text.endswith("\n"):
                text += own.recv(65_536).decode()
        finally:
            program.kill()
            program.wait()
    lines = text.splitlines()
    assert all(line.startswith(("<6>", "<4>")) for line in lines), lines
    assert any(line.startswith("<4>") and "no accounts" in line for line in lines)
