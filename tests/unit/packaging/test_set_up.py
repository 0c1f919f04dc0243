"""What `make` sets up: programs side by side, what failed, what is there already."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def set_up() -> Any:
    """The program; of no package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location("set_up", ROOT / "packaging/set_up.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["set_up"] = module
    spec.loader.exec_module(module)
    return module


class Terminal(io.StringIO):
    """Keeps what a terminal would get."""

    def isatty(self) -> bool:
        return True


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_steps_run_side_by_side_and_each_is_told(
    set_up: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each waits for what the other writes."""
    wait = "from pathlib import Path\nwhile not Path({!r}).exists(): pass"
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    steps = [
        set_up.Step("one", python(f"open({one!r}, 'w'); {wait.format(other)}"), {}),
        set_up.Step("other", python(f"open({other!r}, 'w'); {wait.format(one)}"), {}),
    ]
    assert set_up.run_beside(set_up.Screen(), steps) is None
    assert sorted(line.split()[0] for line in capsys.readouterr().out.splitlines()) == [
        "one",
        "other",
    ]


def test_a_step_that_fails_ends_the_others_and_is_shown_whole(
    set_up: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    endless = set_up.Step("endless", python("while True: pass"), {})
    bad = set_up.Step("bad", python("print('first'); print('why'); raise SystemExit(3)"), {})
    screen = set_up.Screen()
    assert set_up.run_beside(screen, [endless, bad]) is bad
    assert endless.process.returncode != 0
    assert set_up.failed(screen, bad) == 1
    said = capsys.readouterr()
    assert said.err == "first\nwhy\n" and "bad failed" in said.out


def test_a_terminal_sees_the_last_line_and_is_not_flooded(
    set_up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that has closed its output and goes on for a while is waited for, not asked."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    program = (
        "import os, threading; print('Collecting twisted', flush=True); os.close(1); os.close(2);"
        "threading.Event().wait(1.0)"
    )
    assert (
        set_up.run_beside(set_up.Screen(), [set_up.Step("packages", python(program), {})]) is None
    )
    drawn = terminal.getvalue().split("\r")
    assert any("packages: Collecting twisted" in line for line in drawn)
    assert len(drawn) < 40


def test_packages_are_installed_anew_when_their_list_changes(
    set_up: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_up, "ROOT", tmp_path)
    for name in set_up.LISTS:
        (tmp_path / name).write_text("twisted==1")
    before = set_up.digest_of_lists("")
    assert before == set_up.digest_of_lists("") != set_up.digest_of_lists("dev")
    (tmp_path / "constraints.txt").write_text("twisted==2")
    assert set_up.digest_of_lists("") != before


def test_nothing_is_done_twice(
    set_up: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same lists and sources no program is started."""
    monkeypatch.setattr(set_up, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(set_up, "is_compiled", lambda: True)
    monkeypatch.setattr(set_up, "Step", None)
    (tmp_path / ".packages").write_text(set_up.digest_of_lists(""))
    (tmp_path / ".packages-of-tests").write_text(set_up.digest_of_lists("dev"))
    assert set_up.set_up_broker(set_up.Screen()) == 0
    assert set_up.set_up_tests(set_up.Screen()) == 0


def test_versions_are_found_in_a_folder_with_a_space(
    set_up: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with letters beyond ASCII: a home may be called so."""
    constraints = tmp_path / "a höme" / "constraints.txt"
    constraints.parent.mkdir()
    constraints.touch()
    monkeypatch.setattr(set_up, "CONSTRAINTS", constraints)
    done = subprocess.run(
        # It is there already.
        set_up.pip_words("--no-index", "setuptools"),
        env={**os.environ, **set_up.pip_variables()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
