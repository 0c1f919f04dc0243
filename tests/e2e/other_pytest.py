"""A run of pytest in a process of its own, as a user of the package has it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from ledgermq import pytest_plugin

ROOT: Final = Path(__file__).resolve().parents[2]
PLUGIN: Final = pytest_plugin.__name__
TIMEOUT_S: Final = 200.0


def run_pytest(folder: Path, *options: str) -> str:
    """Runs the tests of a folder with the plugin; returns what was printed, also by failures."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    words = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        [*words, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout
