"""Sets up `.venv`, a part at a time, and shows how far it is.

    .venv/bin/python packaging/set_up.py broker    what a broker needs, its loops compiled
    .venv/bin/python packaging/set_up.py tests     what the tests need besides

The packages are fetched while the loops are compiled. A part that is there already, of the same
versions and the same sources, is left alone: what counts is content, not dates.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
ENVIRONMENT: Final = Path(sys.prefix)
CONSTRAINTS: Final = ROOT / "constraints.txt"
# What decides which packages are installed.
LISTS: Final = ("pyproject.toml", "constraints.txt")
# What installs this tree without a second environment for it, and what compiles the kernel.
BUILDERS: Final = ("setuptools", "cython")
LINE_COLUMNS: Final = 100


class Step:
    """One program that runs beside others; what it says is kept, its last line is shown."""

    def __init__(self, name: str, words: list[str], variables: dict[str, str]) -> None:
        self.name = name
        self.lines: list[str] = []
        self.begun_s = time.monotonic()
        self.process = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                self.lines.append(line)

    @property
    def last_line(self) -> str:
        """The last thing that it said and that is not empty."""
        return next((line.strip() for line in reversed(self.lines) if line.strip()), "")

    def is_over(self, within_s: float) -> bool:
        """Waits for its end for so long, in seconds; tells whether it came."""
        self._reader.join(within_s)
        if self._reader.is_alive():
            return False
        # It has closed its output, and may take a moment to end.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within_s)
        return self.process.returncode is not None

    def stop(self) -> None:
        """Ends it, unless it has ended."""
        self.process.terminate()
        self.process.wait()
        # What it has started may hold the pipe a little longer.
        self._reader.join(5.0)


class Screen:
    """One line that is drawn anew on a terminal; a line for each end everywhere else."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._begun_s = time.monotonic()

    def draw(self, steps: list[Step]) -> None:
        """Shows what runs."""
        if not self._is_terminal:
            return
        shown = "; ".join(f"{step.name}: {step.last_line}" for step in steps)
        elapsed = time.monotonic() - self._begun_s
        sys.stdout.write(f"\r\033[K{f'  {elapsed:3.0f} s  {shown}'[:LINE_COLUMNS]}")
        sys.stdout.flush()

    def tell(self, text: str) -> None:
        """Leaves a line."""
        start = "\r\033[K" if self._is_terminal else ""
        sys.stdout.write(f"{start}{text}\n")
        sys.stdout.flush()


def run_beside(screen: Screen, steps: list[Step]) -> Step | None:
    """Waits for all of them; returns one that failed, which ends the others."""
    running = list(steps)
    try:
        while running:
            screen.draw(running)
            over = [step for step in running if step.is_over(0.2 / len(running))]
            for step in over:
                running.remove(step)
                if step.process.returncode:
                    return step
                elapsed = time.monotonic() - step.begun_s
                screen.tell(f"  {step.name:<9}{elapsed:5.1f} s")
    finally:
        for step in running:
            step.stop()
    return None


def pip_words(*words: str) -> list[str]:
    """A call of pip with our versions."""
    flags = ["--disable-pip-version-check", "--progress-bar=off", "-c", str(CONSTRAINTS)]
    return [sys.executable, "-m", "pip", "install", *flags, *words]


def pip_variables() -> dict[str, str]:
    """The environment of a call of pip that builds packages.

    The kernel is compiled beside it. crcmod, which is sources, takes our versions in no other way;
    they are an address here, for pip takes a path with a space for two.
    """
    return {"LEDGERMQ_PURE": "1", "PIP_CONSTRAINT": CONSTRAINTS.as_uri()}


def install(extra: str) -> Step:
    """Begins to install this tree, editable, with what it needs."""
    words = pip_words("--no-build-isolation", "-e", f".{extra}")
    return Step("packages", words, pip_variables())


def digest_of_lists(extra: str) -> str:
    """What the packages of a part depend on, in one word."""
    digest = hashlib.sha256(sys.version.encode() + extra.encode())
    for name in LISTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def load_kernel() -> Any:
    """The module that knows what is compiled, and of what; by its path, for it may not be
    installed yet."""
    spec = importlib.util.spec_from_file_location("kernel", ROOT / "ledgermq/kernel.py")
    assert spec is not None and spec.loader is not None
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    return kernel


def is_compiled() -> bool:
    """Tells whether all loops are there, compiled of the sources that are there."""
    kernel = load_kernel()
    compiled = [kernel.compiled_of(module) for module in kernel.MODULES]
    return all(compiled) and not any(kernel.is_stale(module) for module in kernel.MODULES)


def find_compiler() -> str | None:
    """The C compiler's path; None when there is none."""
    named = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(named.split()[0])


def failed(screen: Screen, step: Step) -> int:
    """Shows all that a step said, and returns the exit code."""
    screen.tell(f"{step.name} failed:")
    sys.stderr.writelines(step.lines)
    return 1


def set_up_broker(screen: Screen) -> int:
    """Packages and kernel; returns the exit code."""
    mark = ENVIRONMENT / ".packages"
    wanted = digest_of_lists("")
    has_packages = mark.is_file() and mark.read_text() == wanted
    if not has_packages:
        screen.tell(f"setting up {os.path.relpath(ENVIRONMENT, ROOT)} (once, about half a minute)")
        needed = BUILDERS if find_compiler() else BUILDERS[:1]
        builders = Step("builders", pip_words(*needed), {})
        if bad := run_beside(screen, [builders]):
            return failed(screen, bad)
    steps = [] if has_packages else [install("")]
    compiler = find_compiler()
    if compiler and not is_compiled():
        words = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        steps.append(Step("kernel", words, {"LEDGERMQ_PROGRESS": "1"}))
    if bad := run_beside(screen, steps):
        return failed(screen, bad)
    mark.write_text(wanted)
    if not is_compiled():
        screen.tell(
            "the kernel is not compiled: LedgerMQ runs from its sources, at two thirds of the speed"
        )
        screen.tell(f"  C compiler: {compiler or 'none'}; on Debian: apt install gcc python3-dev")
        for step in steps:
            if step.name == "kernel":
                sys.stderr.writelines(step.lines[-20:])
    return 0


def set_up_tests(screen: Screen) -> int:
    """The packages of the tests; returns the exit code."""
    mark = ENVIRONMENT / ".packages-of-tests"
    wanted = digest_of_lists("dev")
    if mark.is_file() and mark.read_text() == wanted:
        return 0
    screen.tell("installing what the tests need (1 GB, once, some minutes)")
    if bad := run_beside(screen, [install("[dev]")]):
        return failed(screen, bad)
    mark.write_text(wanted)
    return 0


def main() -> int:
    """Sets up what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("part", choices=["broker", "tests"])
    options = parser.parse_args()
    screen = Screen()
    try:
        return set_up_broker(screen) if options.part == "broker" else set_up_tests(screen)
    except KeyboardInterrupt:
        screen.tell("stopped; the next `make` goes on from here")
        return 130


if __name__ == "__main__":
    sys.exit(main())
