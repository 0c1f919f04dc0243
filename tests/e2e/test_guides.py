"""The Python programs of README.md and docs/client.md run as they stand, against a real cluster."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq.client import Message, NoRouteError, blocking
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
# What those that go on until a signal print, by a part of their text; the others end.
ENDLESS = {'"billing", "orders", handle, start="first").run()': "b'hello'"}
# Programs that need what a plain cluster has not.
SECURED = ("Credentials", "tls")


def programs(page: str) -> list[str]:
    """The Python programs of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


ALL = {
    f"{page}-{number}": program
    for page in ("README.md", "docs/client.md")
    for number, program in enumerate(programs(page))
}
PROGRAMS = {
    name: program for name, program in ALL.items() if not any(word in program for word in SECURED)
}


@pytest.fixture(scope="module")
def orders(name_server: str) -> str:
    """A cluster with a message in the topic of the guides; gives its name server."""

    def is_known() -> bool:
        try:
            return len(reader.queues("orders")) > 0
        except NoRouteError:
            return False

    with blocking.Producer(name_server) as producer, blocking.PullConsumer(name_server) as reader:
        producer.send(Message("orders", b"hello"))
        wait_until(is_known, what="the topic")
    return name_server


def test_there_are_programs() -> None:
    assert sum(page.startswith("README") for page in PROGRAMS) == 1
    assert len(PROGRAMS) >= 6
    for part in ENDLESS:
        assert any(part in program for program in PROGRAMS.values())


def test_programs_of_the_guides_are_typed_strictly(tmp_path: Path) -> None:
    """As their readers' type checkers see them: with the package installed, from another folder."""
    names: list[str] = []
    for number, program in enumerate([*ALL.values(), *programs("docs/testing.md")]):
        names.append(f"program{number}.py")
        (tmp_path / names[-1]).write_text(program)
    unwanted = ("PYTHONPATH", "MYPYPATH")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", *names],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key not in unwanted},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def takes_sigterm(pid: int) -> bool:
    """Tells whether a process has a handler of its own for it, as `run()` has once it is open."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(re.findall(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[0], 16)
    return bool(caught & 1 << signal.SIGTERM - 1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_of_a_guide_runs(name: str, orders: str, tmp_path: Path) -> None:
    program = PROGRAMS[name].replace("127.0.0.1:9876", orders).replace("100_000", "1_000")
    # What only defines functions, for programs of the reader, names none.
    defines_only = re.search(r"^(with|asyncio\.run)\b", program, re.MULTILINE) is None
    assert orders in program or defines_only
    wanted = next((text for part, text in ENDLESS.items() if part in program), None)
    script, out = tmp_path / "program.py", tmp_path / "out"
    script.write_text(program)
    with open(out, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-u", str(script)],
            stdout=file,
            stderr=file,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    try:
        wait_until(
            lambda: process.poll() is not None or (wanted and wanted in out.read_text()),
            what=f"the end of the program: {out.read_text()}",
            deadline_s=60.0,
        )
        assert wanted or process.returncode == 0, out.read_text()
        assert wanted is None or wanted in out.read_text()
        if wanted:
            wait_until(lambda: takes_sigterm(process.pid), what="a program that minds SIGTERM")
            process.terminate()
            assert process.wait(30) == 0, out.read_text()
            assert "Traceback" not in out.read_text()
    finally:
        process.kill()
        process.wait()
