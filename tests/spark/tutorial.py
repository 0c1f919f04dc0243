"""The tutorial of docs/spark.md, line by line, as it stands there.

    python -m tests.spark.tutorial

Only what belongs to a machine is another: the environment is that of the tests, ports are free ones
and the table lies in a folder of its own. Exit code 0: every line ends well, and those that the
page tells the words of say them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.e2e.up_cluster import UpCluster
from tests.free_ports import free_ports
from tests.processes import ChildProcess, is_listening
from tests.spark.standalone import ROOT, SPARK_HOME, why_no_cluster
from tests.waiting import wait_until

PAGE: Final = ROOT / "docs" / "spark.md"
_TITLE: Final = "## Tutorial"
# What makes an environment: that of the tests is there.
_SET_UP: Final = ("apt install ", "python3 -m venv ", "pip install ")
_STEP_S: Final = 600.0
# Lines of which the page says what they print, and what that is, in their order.
_TELLING: Final = ("spark-submit ", "python -c ")
_WORDS: Final = (
    "archived 1000 messages",
    "1000",
    "archived 500 messages",
    "1500",
    "replayed 1500 messages",
    "replayed 0 messages",
)


def lines_of(page: Path) -> list[str]:
    """The lines that a reader of the tutorial types."""
    text = page.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^{_TITLE}.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    return [line for block in blocks for line in textwrap.dedent(block).splitlines() if line]


class Terminal:
    """Runs lines one after the other, each with the variables that those before have set."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Takes the working directory and the variables of the first line."""
        self._folder = folder
        self._environment = environment
        self._settings: list[str] = []

    def run(self, line: str) -> str:
        """Runs a line and returns what it prints.

        Raises:
            RuntimeError: it failed.
        """
        if re.match(r"(export )?[A-Z_]+=", line):
            self._settings.append(line)
        script = "\n".join(["set -e -o pipefail", *self._settings, line])
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{line}\n{done.stdout}\n{done.stderr[-4000:]}")
        return done.stdout


def run(folder: Path) -> int:
    """Runs all lines; returns the exit code."""
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), str(SPARK_HOME / "bin"), os.environ["PATH"]]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(SPARK_HOME),
    }
    (master_port,) = free_ports(1)
    terminal = Terminal(folder, environment)
    wanted = list(_WORDS)
    held = True
    with ExitStack() as running:
        cluster = UpCluster(folder / "up")

        def here(line: str) -> str:
            return (
                line.replace("127.0.0.1:9876", cluster.name_server)
                .replace("7077", str(master_port))
                .replace("/tmp/lake", str(folder / "lake"))
                .replace("/opt/spark/bin/python", sys.executable)
            )

        for line in lines_of(PAGE):
            begun_s, told = time.monotonic(), ""
            if line.startswith(_SET_UP):
                told = "(there)"
            elif line == "ledgermq up":
                running.enter_context(cluster).wait_for_all()
            elif line.startswith("spark-class "):
                _start(running, here(line), folder, environment, master_port)
            else:
                told = terminal.run(here(line)).strip()
                if line.startswith(_TELLING):
                    held &= bool(wanted) and _says(told, wanted.pop(0))
            sys.stdout.write(f"{time.monotonic() - begun_s:5.0f} s  {line}\n         {told}\n")
            sys.stdout.flush()
    sys.stdout.write(f"tutorial  {'holds' if held and not wanted else 'BROKEN'}\n")
    return 0 if held and not wanted else 1


def _says(told: str, words: str) -> bool:
    """Tells whether one of the lines that were printed begins with some words."""
    return re.search(rf"^{re.escape(words)}\b", told, re.MULTILINE) is not None


def _start(
    running: ExitStack, line: str, folder: Path, environment: Mapping[str, str], port: int
) -> None:
    """Starts what the page has in a terminal of its own, and waits until it is there."""
    name = line.split()[1].rpartition(".")[2]
    log = folder / f"{name}.log"
    words = ["bash", "-c", f"exec {line} --webui-port 0"]
    if name == "Worker":
        # Its options stand before the address of the master.
        words = ["bash", "-c", f"exec {line.replace(' spark://', ' --webui-port 0 spark://')}"]
    program = running.enter_context(ChildProcess(words, log, environment, folder=folder))

    def is_there() -> bool:
        assert program.is_running, program.log_text()[-4000:]
        if name == "Master":
            return is_listening(port)
        return "Successfully registered with master" in program.log_text()

    wait_until(is_there, what=f"{name}, see {log}", deadline_s=_STEP_S)


def main() -> int:
    """Runs the tutorial in a folder that is gone afterwards."""
    missing = why_no_cluster()
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="ledgermq-tutorial-") as folder:
        return run(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
