"""The units for systemd, as systemd itself reads and judges them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq.cli.failure import EXIT_CONFIG

NEEDS_SYSTEMD = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze, which is not here"
)
UNITS = Path(__file__).parents[3] / "packaging" / "systemd"
# Of systemd's scale from 0 (closed) to 10.
EXPOSURE_MAX = 2.0


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )


@NEEDS_SYSTEMD
@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.name)
def test_a_unit_is_well_formed(unit: Path, tmp_path: Path) -> None:
    """Also when it names a program that is there; unknown words are findings, too."""
    copy = tmp_path / unit.name.replace("@", "@a")
    text = unit.read_text()
    assert "/opt/ledgermq/bin/ledgermq" in text
    copy.write_text(text.replace("/opt/ledgermq/bin/ledgermq", sys.executable))
    done = analyze("verify", "--recursive-errors=no", "--man=no", str(copy))
    assert (done.returncode, done.stdout) == (0, "")


@NEEDS_SYSTEMD
@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.name)
def test_a_unit_exposes_little(unit: Path) -> None:
    done = analyze("security", "--offline=yes", "--no-pager", str(unit))
    found = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) < EXPOSURE_MAX


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.name)
def test_what_cannot_start_is_not_tried_for_ever(unit: Path) -> None:
    """By systemd's own bound, five starts in ten seconds, what restarts after two goes on for ever:
    with its start, each takes longer than two."""
    told = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line)
    pause_s, tries = float(told["RestartSec"]), int(told["StartLimitBurst"])
    start_s = 10.0
    assert told["Restart"] == "on-failure"
    assert told["RestartPreventExitStatus"] == str(EXIT_CONFIG)
    assert tries * (pause_s + start_s) < float(told["StartLimitIntervalSec"])
