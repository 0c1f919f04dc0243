"""docs/tutorial.md as a reader types it: its files saved, its lines run, what it shows compared."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
# A fence with its words, what it holds, and the name of a file that stands before it.
BLOCK = re.compile(
    r"(?:[Ss]ave as `(?P<file>[\w.]+)`:\n\n)?^```(?P<words>[a-z ]*)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
# Any text, where the page shows this.
ANY = "…"
DEADLINE_S = 120.0


@dataclass(frozen=True)
class Step:
    """One block of the page: a file, lines to type in a terminal, or lines that it shows then."""

    kind: str
    terminal: str
    text: str
    file: str


def steps() -> list[Step]:
    found = []
    for match in BLOCK.finditer(PAGE):
        kind, _, terminal = match["words"].partition(" ")
        found.append(Step(kind, terminal, match["text"], match["file"] or ""))
    return found


class Terminal:
    """A terminal beside the first one: one program at a time, which runs on while others do."""

    def __init__(self, folder: Path, environment: dict[str, str], name: str) -> None:
        self._folder = folder
        self._environment = environment
        self._path = folder.parent / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None
        # Where lines that were shown already end.
        self._seen = 0

    def type(self, line: str) -> None:
        """A command, or Ctrl-C for the one that runs."""
        if line == "# Ctrl-C":
            assert self._process is not None and self._process.poll() is None, self.text()
            self._process.send_signal(signal.SIGINT)
            self._process.wait(DEADLINE_S)
            assert "Traceback" not in self.text()
            return
        assert self._process is None or self._process.wait(DEADLINE_S) is not None
        self._seen = len(self.text())
        with open(self._path, "ab") as out:
            self._process = subprocess.Popen(
                shlex.split(line),
                cwd=self._folder,
                env=self._environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                # A suite in the background ignores Ctrl-C, and so would its children.
                preexec_fn=_take_interrupts,
            )

    def text(self) -> str:
        return self._path.read_text() if self._path.exists() else ""

    def expect(self, lines: list[str]) -> None:
        """Waits until all of these lines are there, in any order: workers run side by side."""

        def are_there() -> bool:
            shown = self.text()[self._seen :].splitlines()
            for wanted in lines:
                hit = next((line for line in shown if matches(line, wanted)), None)
                if hit is None:
                    return False
                shown.remove(hit)
            return True

        wait_until(are_there, what=f"{lines}", deadline_s=DEADLINE_S, detail=self.text)
        self._seen = len(self.text())

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _take_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def matches(line: str, wanted: str) -> bool:
    pattern = ".*".join(map(re.escape, wanted.split(ANY)))
    return re.fullmatch(pattern, line.strip()) is not None


class Reader:
    """Who follows the page."""

    def __init__(self, folder: Path, cluster: UpCluster) -> None:
        self._cluster = cluster
        self._folder = folder / "shop"
        self._environment = {
            **os.environ,
            "NAMESRV_ADDR": cluster.name_server,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        self.terminals: dict[str, Terminal] = {}
        # What the last block of the first terminal showed.
        self._shown = ""

    def follow(self, step: Step) -> None:
        if step.kind == "python":
            assert step.file, step.text
            text = step.text.replace("127.0.0.1:9876", self._cluster.name_server)
            (self._folder / step.file).write_text(text)
        elif step.kind == "sh" and not step.terminal:
            self._run(step.text)
        elif step.kind == "sh":
            for line in step.text.splitlines():
                self._terminal(step.terminal).type(line)
        elif step.kind == "text" and not step.terminal:
            for wanted in step.text.splitlines():
                assert any(matches(line, wanted) for line in self._shown.splitlines()), (
                    wanted,
                    self._shown,
                )
        elif step.kind == "text":
            self._terminal(step.terminal).expect(step.text.splitlines())

    def _terminal(self, name: str) -> Terminal:
        if name not in self.terminals:
            self.terminals[name] = Terminal(self._folder, self._environment, name)
        return self.terminals[name]

    def _run(self, text: str) -> None:
        if ". .venv/bin/activate" in text:
            # This process's own environment stands for it.
            self._folder.mkdir()
            text = text.partition("cd ../shop\n")[2]
        if "PID" in text:
            pid = self._cluster.wait_for_leader()["pid"]
            text = text.replace("PID", str(pid))
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, (text, done.stdout)
        self._shown = done.stdout

    @property
    def folder(self) -> Path:
        return self._folder


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """With a cluster as `make run` starts it, but for the minute in which brokers ask."""
    settings = (
        "transactionCheckInterval=1000",
        "transactionTimeOut=300",
        "transactionCheckMax=1000",
    )
    with UpCluster(tmp_path / "cluster", settings=settings) as cluster:
        made = Reader(tmp_path, cluster)
        try:
            yield made
        finally:
            for terminal in made.terminals.values():
                terminal.close()


@pytest.mark.timeout(600)
def test_the_page_is_true_line_by_line(reader: Reader) -> None:
    for step in steps():
        reader.follow(step)
    # All orders were billed, those that both workers could have had included.
    billed = re.findall(r"order-(\d+): billed", reader.terminals["third"].text())
    billed += re.findall(r"order-(\d+): billed", reader.terminals["fourth"].text())
    assert {*map(int, billed)} == {*range(1, 17), 21, 31}
    assert "billed" in reader.terminals["fourth"].text()


def test_the_page_has_what_it_promises() -> None:
    files = [step.file for step in steps() if step.kind == "python"]
    assert all(files) and len(files) == len({*files}) == 7
    assert all(step.kind in ("sh", "text", "python", "") for step in steps())
    assert sum(step.text.count("\n") for step in steps() if step.kind == "sh") >= 20


def test_its_programs_stand_outside_of_the_copy() -> None:
    """Within it pytest takes the settings of this project, which need more than pytest."""
    folders = re.findall(r"\b(?:mkdir|cd) ([^\s`]+)", PAGE)
    assert len(folders) == 3 and {*folders} == {"../shop"}


def test_its_programs_are_typed_strictly(tmp_path: Path) -> None:
    """In this environment, where the package is installed from its copy, as in a reader's."""
    files = [step for step in steps() if step.kind == "python"]
    for step in files:
        (tmp_path / step.file).write_text(step.text)
    words = ["--strict", "--no-incremental", *(step.file for step in files)]
    unwanted = ("PYTHONPATH", "MYPYPATH")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key not in unwanted},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
