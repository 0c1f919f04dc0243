"""Tries what `packaging/wheels.py` made, as a user would, with a stopwatch.

    .venv/bin/python packaging/try_wheels.py

For each Python from 3.11 on that is on this machine: a fresh environment, `pip install` of a wheel
with what it needs from the registry, `ledgermq up`, and one message there and back. Then the
sources where there is no C compiler; and the client in an environment of its own, without Twisted,
against a cluster of the first environment. A table is printed; the exit code is 1 when something
did not work. Times are printed and judged by nobody: they are those of a network, too.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
CONSTRAINTS: Final = ROOT / "constraints.txt"
OLDEST: Final = (3, 11)
NEWEST: Final = (3, 14)
PATIENCE_S: Final = 900
PROGRAM: Final = """
import sys
from ledgermq.client import Message
from ledgermq.client.blocking import Producer, PushConsumer

with Producer(sys.argv[1]) as producer:
    producer.send(Message("orders", b"hello", tags="new", keys="order-1"))
with PushConsumer(sys.argv[1], "my-consumers", "orders", start="first") as consumer:
    for message in consumer:
        assert message.body == b"hello"
        consumer.acknowledge()
        break
"""


class TrialError(Exception):
    """Something that was tried did not work; the text says what."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One row of the table: what was tried, with its times in seconds."""

    name: str
    install_s: float
    message_s: float
    form: str


def interpreters() -> dict[tuple[int, int], str]:
    """The Pythons of this machine, by version."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[tuple[int, int], str] = {}
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        here = sys.executable if sys.version_info[:2] == (3, minor) else None
        candidates = [here, shutil.which(f"python3.{minor}")]
        candidates += [str(path / "bin/python3") for path in sorted(folder.glob(f"3.{minor}.*"))]
        for candidate in filter(None, candidates):
            words = [candidate, "-c", "import sys; print(*sys.version_info[:2])"]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.stdout.split() == ["3", str(minor)]:
                found[3, minor] = candidate
                break
    return found


def run(words: list[str], **variables: str) -> str:
    """Runs a program to its end and returns what it printed.

    Raises:
        TrialError: it failed.
    """
    done = subprocess.run(
        words,
        # Of no tree: what is imported is what was installed.
        cwd="/",
        env={**environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
    )
    if done.returncode:
        raise TrialError(f"{' '.join(words)}:\n{done.stdout}")
    return done.stdout


def environment() -> dict[str, str]:
    """This process's variables, but for those that name other sources."""
    unwanted = ("PYTHONPATH", "LEDGERMQ_PURE", "LEDGERMQ_ABI3", "PYTHONDONTWRITEBYTECODE")
    return {key: value for key, value in os.environ.items() if key not in unwanted}


def install(python: str, folder: Path, what: Path, **variables: str) -> tuple[Path, float]:
    """Makes an environment and installs a file into it; returns its programs, and seconds of pip.

    Raises:
        TrialError: pip did not.
    """
    run([python, "-m", "venv", str(folder)])
    begun = time.monotonic()
    words = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", str(CONSTRAINTS)]
    run([str(folder / "bin/python"), *words, str(what)], **variables)
    return folder / "bin", time.monotonic() - begun


def free_ports() -> tuple[int, int]:
    """A port for a name server and one for a broker, free at this moment, and free for the ledger
    30,000 above, below those that the system gives to connections.

    Raises:
        TrialError: there are none.
    """
    for first in range(2640, 2760, 2):
        sockets = [socket.socket() for _ in range(3)]
        try:
            for one, port in zip(sockets, (first, first + 1, first + 30_001), strict=True):
                one.bind(("127.0.0.1", port))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
        return first, first + 1
    raise TrialError("no free ports between 2640 and 2760")


@contextlib.contextmanager
def running(programs: Path) -> Iterator[tuple[str, float]]:
    """A cluster of one broker; gives its name server, and the seconds to the first message.

    Raises:
        TrialError: it did not begin.
    """
    namesrv_port, broker_port = free_ports()
    words = [str(programs / "ledgermq"), "up", "--nodes", "1", "--round-trip"]
    words += ["--namesrv-port", str(namesrv_port), "--base-port", str(broker_port)]
    begun = time.monotonic()
    cluster = subprocess.Popen(
        words,
        cwd="/",
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert cluster.stdout is not None
    said = []
    try:
        for line in cluster.stdout:
            said.append(line)
            if line.startswith("round trip: "):
                yield f"127.0.0.1:{namesrv_port}", time.monotonic() - begun
                break
        else:
            raise TrialError(f"no round trip: {''.join(said)}")
    finally:
        # Not SIGINT: what a shell started in the background ignores that.
        cluster.terminate()
        cluster.communicate(timeout=PATIENCE_S)


def form_of(programs: Path) -> str:
    """Which form of the loops was installed: `compiled`, or why not."""
    program = "from ledgermq.kernel import describe; print(describe())"
    return run([str(programs / "python"), "-c", program]).strip()


def the_one(pattern: str) -> Path:
    """The file in `dist/` of this pattern.

    Raises:
        TrialError: there is none, or several.
    """
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        raise TrialError(f"dist/{pattern}: {len(found)} files; `make wheels` makes one")
    return found[0]


def try_broker(
    name: str, python: str, folder: Path, what: Path, form: str, **variables: str
) -> Trial:
    """Installs a broker and sends the first message.

    Raises:
        TrialError: something of it does not work.
    """
    programs, install_s = install(python, folder, what, **variables)
    found = form_of(programs)
    if not found.startswith(form):
        raise TrialError(f"{name}: {found}, expected {form}")
    with running(programs) as (_, message_s):
        pass
    return Trial(name=name, install_s=install_s, message_s=message_s, form=found.split(" (")[0])


def try_client(python: str, folder: Path, broker: Path) -> Trial:
    """Installs the client alone; a program of it sends and consumes.

    Raises:
        TrialError: something of it does not work, or Twisted came with it.
    """
    programs, install_s = install(python, folder, the_one("ledgermq_client-*.whl"))
    installed = run([str(programs / "python"), "-m", "pip", "list"]).lower()
    for unwanted in ("twisted", "crcmod", "construct", "cython"):
        if unwanted in installed:
            raise TrialError(f"{unwanted} was installed with the client:\n{installed}")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    with running(broker / "bin") as (name_server, _):
        begun = time.monotonic()
        run([str(programs / "python"), str(program), name_server])
        message_s = time.monotonic() - begun
    return Trial(name="client alone", install_s=install_s, message_s=message_s, form="no Twisted")


def main() -> int:
    """Tries everything, and prints a row for each trial."""
    pythons = interpreters()
    first = min(pythons)
    native = f"ledgermq-*abi3*{platform.machine()}.whl"
    has_native = bool(sorted(DIST.glob(native)))
    print(f"{'what':<28}{'pip s':>8}{'message s':>11}  loops")
    with tempfile.TemporaryDirectory(prefix="ledgermq-trial-") as name:
        folder = Path(name)

        def row(trial: Trial) -> None:
            columns = f"{trial.name:<28}{trial.install_s:>8.1f}{trial.message_s:>11.1f}"
            print(f"{columns}  {trial.form}", flush=True)

        try:
            for version, python in pythons.items():
                told = f"Python {version[0]}.{version[1]}"
                here = folder / f"native-{version[1]}"
                if has_native:
                    row(try_broker(f"wheel, {told}", python, here, the_one(native), "compiled"))
            here = folder / "pure"
            what = the_one("ledgermq-*-none-any.whl")
            row(try_broker("pure wheel", pythons[first], here, what, "pure"))
            here, what = folder / "sources", the_one("ledgermq-[0-9]*.tar.gz")
            name = "sources, no C compiler"
            row(try_broker(name, pythons[first], here, what, "pure", CC="/bin/false"))
            row(try_client(pythons[first], folder / "client", folder / "pure"))
        except TrialError as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    missing = [f"3.{minor}" for minor in range(11, 14) if (3, minor) not in pythons]
    if missing:
        print(f"left out: Python {', '.join(missing)} (not on this machine)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
