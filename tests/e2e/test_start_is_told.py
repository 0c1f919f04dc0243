"""While a broker reads its files it says how far it is, and nothing else is served."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.dledger.store.text_file import seal
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE, LiveProgram, is_listening
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


def ask(port: int, path: str) -> tuple[int, str]:
    """Status and text; 0 when nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    except OSError as error:
        return 0, repr(error)
    finally:
        connection.close()


# Python runs it before all else. The first to open the file waits for whoever writes to the pipe.
_SLOW_FILE = """
import os, sys

def open_slowly(event, arguments, left=[1]):
    if event == "open" and str(arguments[0]) == {file!r} and left:
        left.clear()
        os.close(os.open({pipe!r}, os.O_RDONLY))

sys.addaudithook(open_slowly)
"""


class Stuck:
    """A broker that does not get one of its files opened before `go_on`, as of a slow disk."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.file = folder / "store" / "config" / "subscriptionGroup.json"
        self.file.parent.mkdir(parents=True, mode=0o700)
        self._pipe = folder / "pipe"
        os.mkfifo(self._pipe, 0o600)
        hook = folder / "hook" / "sitecustomize.py"
        hook.parent.mkdir()
        hook.write_text(_SLOW_FILE.format(file=str(self.file), pipe=str(self._pipe)))
        environment = {**environment, "PYTHONPATH": str(hook.parent)}
        [self.port] = free_ports(1, spread=(0, 1, 2, 3))
        words = [
            "broker", "--json", f"listenPort={self.port}", "brokerIP1=127.0.0.1",
            "brokerName=alone", f"storePathRootDir={folder / 'store'}",
            "enableDLegerCommitLog=true", "dLegerGroup=alone", "dLegerSelfId=n0",
            f"dLegerPeers=n0-127.0.0.1:{self.port + 3}", f"httpPort={self.port + 2}",
            *SMALL_STORE,
        ]  # fmt: skip
        self.http_port = self.port + 2
        self.program = LiveProgram(words, folder / "broker.log", environment)

    def wait_until_told(self) -> None:
        wait_until(
            lambda: "reads the state's files" in ask(self.http_port, "/startupz")[1],
            what="a broker that says what it does",
        )

    def go_on(self) -> None:
        """The file is opened, and read."""
        os.close(os.open(self._pipe, os.O_WRONLY))


@contextmanager
def stuck(folder: Path, **environment: str) -> Iterator[Stuck]:
    broker = Stuck(folder, environment)
    with broker.program:
        try:
            yield broker
        except BaseException:
            # A thread that waits for the pipe holds the process up.
            broker.program.kill()
            raise


def health(port: int, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "ledgermq.cli.main", "health", "--port", str(port), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_probes_answer_while_files_are_read(tmp_path: Path) -> None:
    with stuck(tmp_path) as broker:
        broker.wait_until_told()
        reason = "opens its files: reads the state's files"
        for path in ("/startupz", "/readyz"):
            status, text = ask(broker.http_port, path)
            assert status == 503 and json.loads(text)["reasons"][0]["reason"] == reason
        assert ask(broker.http_port, "/livez") == (200, "ok")
        status, text = ask(broker.http_port, "/metrics")
        assert status == 503 and reason in text
        code, complaint = health(broker.http_port, "--started")
        assert code == 1 and reason in complaint
        assert not is_listening(broker.port) and not is_listening(broker.port + 3)
        broker.go_on()
        broker.program.wait_until_serving(90.0)
        assert is_listening(broker.port) and is_listening(broker.port + 3)
        for path in ("/startupz", "/readyz"):
            assert ask(broker.http_port, path) == (200, "ok")
        assert ask(broker.http_port, "/metrics")[0] == 200


def test_files_that_cannot_be_used_end_a_start_whose_probes_answered(tmp_path: Path) -> None:
    with stuck(tmp_path) as broker:
        broker.wait_until_told()
        identity = broker.file.parent.parent / "dledger-n0" / "identity"
        identity.write_bytes(seal({"group": "other", "self_id": "n0", "term": "1"}))
        broker.go_on()
        assert broker.program.wait(60) == 78
        assert "the store belongs to group other" in broker.program.log_text()
        assert not is_listening(broker.http_port)


def test_stop_in_the_midst_of_reading_opens_nothing(tmp_path: Path) -> None:
    with stuck(tmp_path) as broker:
        broker.wait_until_told()
        os.kill(broker.program.pid, signal.SIGTERM)
        wait_until(lambda: "stopping" in ask(broker.http_port, "/startupz")[1], what="a stop")
        broker.go_on()
        assert broker.program.wait(60) == 0
        log = broker.program.log_text()
        assert "store opened" not in log and "ledgermq:" not in log


def test_service_manager_is_told_how_far_the_start_is(tmp_path: Path) -> None:
    place = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(place)
        manager.settimeout(60)
        with stuck(tmp_path, NOTIFY_SOCKET=place) as broker:
            # On a starved machine a word of an earlier step may come first.
            for word in (
                "STATUS=opens its files: reads the state's files",
                "EXTEND_TIMEOUT_USEC=120000000",
            ):
                while manager.recv(4096).decode() != word:
                    pass
            broker.go_on()
            while manager.recv(4096).decode() != "READY=1":
                pass
            broker.program.wait_until_serving(90.0)
