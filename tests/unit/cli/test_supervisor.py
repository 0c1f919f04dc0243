"""What a service manager hears of a real name server and a real broker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.cli.supervisor import Supervisor


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(60)
        yield listener


def texts_until(heard: socket.socket, *wanted: str) -> list[str]:
    """What is heard until each of these was."""
    texts: list[str] = []
    while not all(any(text.startswith(one) for text in texts) for one in wanted):
        texts.append(heard.recv(4096).decode())
    return texts


@pytest.mark.parametrize(
    "words",
    [
        ["namesrv", "-p", "0", "bindAddress=127.0.0.1", "kvConfigPath={data}/kv.json"],
        ["broker", "listenPort=0", "brokerIP1=127.0.0.1", "storePathRootDir={data}"],
    ],
    ids=lambda words: words[0],
)
def test_a_program_tells_how_it_is(heard: socket.socket, tmp_path: Path, words: list[str]) -> None:
    environment = {
        **os.environ,
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "200000",
    }
    program = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ledgermq.cli.main",
            *(word.format(data=tmp_path) for word in words),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        texts = texts_until(heard, "READY=1", "STATUS=", "WATCHDOG=1")
        assert texts.index("READY=1") < texts.index("WATCHDOG=1")
        # It goes on turning.
        texts_until(heard, "WATCHDOG=1")
        program.send_signal(signal.SIGTERM)
        texts_until(heard, "STOPPING=1")
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.wait()


def test_nothing_is_said_where_nobody_asked() -> None:
    supervisor = Supervisor({"WATCHDOG_USEC": "1000000"})
    supervisor.tell_ready()
    assert supervisor.watchdog_s is None


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_who_is_watched(words: dict[str, str], seconds: float | None, tmp_path: Path) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": str(tmp_path / "nobody"), **words})
    assert supervisor.watchdog_s == seconds
    # Who asked may be gone.
    supervisor.tell_turning()
