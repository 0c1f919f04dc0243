"""A failed test runs once more, alone: what decides over a run, on real runs of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]

GREEN: Final = "def test_green(): pass\n"
RED: Final = "def test_red(): assert False\n"
# Fails once: in the run that makes the file beside it.
FLAKY: Final = """
from pathlib import Path
def test_flaky():
    mark = Path(__file__).with_suffix(".ran")
    ran = mark.exists()
    mark.touch()
    assert ran
"""

# What an installation adds to pytest is not under test, and makes each start slower.
PLUGINS: Final = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}


def run(folder: Path, *arguments: str, **files: str) -> tuple[int, list[str]]:
    """Runs the suite over test files; returns the exit code and the lines of the output."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "tests.suite", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **PLUGINS},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout.splitlines()


def test_all_green(tmp_path: Path) -> None:
    code, lines = run(tmp_path, green=GREEN)
    assert code == 0
    assert "1 passed in" in lines[-2] and lines[-1] == "flaky: none"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_flaky_test_is_named_and_passes(tmp_path: Path, workers: str) -> None:
    code, lines = run(tmp_path, "--workers", workers, green=GREEN, flaky=FLAKY)
    assert code == 0
    assert "2 passed in" in lines[-2] and "failed" not in lines[-2]
    assert lines[-1] == "flaky: test_flaky.py::test_flaky"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_test_that_fails_twice_is_red(tmp_path: Path, workers: str) -> None:
    code, lines = run(tmp_path, "--workers", workers, green=GREEN, flaky=FLAKY, red=RED)
    assert code == 1
    assert "failed: test_red.py::test_red" in lines
    assert "1 failed, 2 passed in" in lines[-2]
    assert lines[-1] == "flaky: test_flaky.py::test_flaky"


def test_only_failed_tests_run_again(tmp_path: Path) -> None:
    counted = "from pathlib import Path\ndef test_counted(): Path('ran').open('a').write('x')\n"
    run(tmp_path, counted=counted, flaky=FLAKY)
    assert (tmp_path / "ran").read_text() == "x"


def test_parameters_of_a_failed_test_are_kept(tmp_path: Path) -> None:
    text = """
import pytest
from pathlib import Path
@pytest.mark.parametrize("x", ["a b", "ä[::]", "@c\\n"])
def test_x(x):
    with Path("ran").open("a") as ran:
        ran.write(ascii(x))
    assert Path("ran").read_text().count(ascii(x)) == 2
"""
    code, lines = run(tmp_path, parameters=text)
    assert code == 0
    assert lines[-1].count("test_parameters.py::test_x[") == 3


@pytest.mark.parametrize("phase", ["", "yield\n    "])
def test_failed_fixture_counts_as_a_failure(tmp_path: Path, phase: str) -> None:
    text = f"""
import pytest
@pytest.fixture
def broken():
    {phase}raise ValueError
def test_uses_it(broken): pass
"""
    code, lines = run(tmp_path, green=GREEN, fixture=text)
    assert code == 1
    assert "failed: test_fixture.py::test_uses_it" in lines


CRASH: Final = "import os\ndef test_crash(): os._exit(0)\n"
SKIPPED: Final = "import pytest\n@pytest.mark.skip\ndef test_skipped(): pass\n"
SKIPPED_LATER: Final = "import pytest" + FLAKY + "    pytest.skip()\n"
# The second run does not find it.
REMOVES_ITSELF: Final = FLAKY.replace("assert ran", "Path(__file__).unlink(); assert ran")
EXITS: Final = "import pytest\ndef test_exits(): pytest.exit('enough', 0)\ndef test_b(): pass\n"


@pytest.mark.parametrize(
    ("workers", "text", "complaint"),
    [
        ("0", "", "pytest ended with exit code 5"),
        ("0", "import nothing_like_it", "pytest ended with exit code 2"),
        ("0", "def test_a(nothing_like_it): pass", "failed: test_a.py::test_a"),
        ("0", SKIPPED, "no test was executed"),
        ("0", CRASH, "pytest ended with exit code 0"),
        ("2", CRASH, "failed: test_a.py::test_crash"),
        ("0", EXITS, "pytest ran 0 of 2 tests"),
        ("0", SKIPPED_LATER, "second run: no test was executed"),
        ("0", REMOVES_ITSELF, "failed: test_a.py::test_flaky"),
    ],
)
def test_run_that_proves_nothing_is_red(
    tmp_path: Path, workers: str, text: str, complaint: str
) -> None:
    code, lines = run(tmp_path, "--workers", workers, a=text)
    assert code == 1
    assert complaint in "\n".join(lines)
    assert " passed" in lines[-2]


def test_summary_adds_up_several_runs(tmp_path: Path) -> None:
    results = str(tmp_path / "results")
    assert run(tmp_path, "--results", results, green=GREEN)[0] == 0
    assert run(tmp_path, "--results", results, flaky=FLAKY)[0] == 0
    code, lines = run(tmp_path, "--summary", results)
    assert code == 0
    assert "3 passed in" in lines[-2] and lines[-1] == "flaky: test_flaky.py::test_flaky"
    assert run(tmp_path, "--results", results, red=RED)[0] == 1
    assert run(tmp_path, "--summary", results)[0] == 1


def test_summary_of_no_run_is_red(tmp_path: Path) -> None:
    assert run(tmp_path, "--summary", str(tmp_path / "results"))[0] == 1
