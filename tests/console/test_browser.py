"""The console's page in a real Chromium; `make console-test` runs this."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Where npm has put playwright-core and axe-core.
TOOLS = os.environ.get("CONSOLE_TOOLS", "")
CHROMIUM = os.environ.get("CONSOLE_CHROMIUM", "/usr/bin/chromium")
SCRIPTS = sorted(path.name for path in (ROOT / "tests/console/browser").glob("*.test.mjs"))
SECONDS_MAX = 900


def missing() -> str:
    """Why no browser can be driven here; empty when one can."""
    if not TOOLS:
        return "make console-test runs this: it fetches what drives the browser"
    if shutil.which("node") is None:
        return "node is not installed"
    if not Path(CHROMIUM).is_file():
        return f"{CHROMIUM} is not there: install Debian's chromium or set CONSOLE_CHROMIUM"
    return ""


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.timeout(SECONDS_MAX + 60)
@pytest.mark.parametrize("script", SCRIPTS)
def test_page(script: str) -> None:
    done = subprocess.run(
        ["node", "--test", "--test-reporter=spec", f"tests/console/browser/{script}"],
        cwd=ROOT,
        env={**os.environ, "CONSOLE_PYTHON": sys.executable},
        timeout=SECONDS_MAX,
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
