"""Real programs of the console command, started for a test and always stopped."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STOP_S = 20.0


@contextlib.contextmanager
def name_server(folder: Path, *settings: str) -> Iterator[str]:
    """Runs a name server on a free port; gives its address."""
    words = [
        sys.executable, "-m", "ledgermq.cli.main", "namesrv", "--json", "-p", "0",
        "bindAddress=127.0.0.1", f"kvConfigPath={folder / 'kvConfig.json'}", *settings,
    ]  # fmt: skip
    with started(words, folder / "namesrv.log") as status:
        yield str(status["address"])


@contextlib.contextmanager
def started(words: list[str], log: Path) -> Iterator[dict[str, Any]]:
    """Runs a program until it has printed its first JSON status line; gives that line."""
    with open(log, "wb") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("{"), f"{words}: {line!r}\n{log.read_text()}"
        yield json.loads(line)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
