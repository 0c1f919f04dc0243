"""Schedules with every message that they make; UPDATE_TRACES=1 writes the present ones."""

import os
from pathlib import Path

import pytest

from tests.simulation.message_trace import TraceStage

TRACES = sorted((Path(__file__).parent / "traces").glob("*.txt"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_trace(path: Path) -> None:
    expected = path.read_text(encoding="utf-8")
    stage = TraceStage()
    lines: list[str] = []
    for line in expected.splitlines():
        if line.startswith("> "):
            lines += [line, *stage.run(line[2:])]
        elif line.startswith("#"):
            lines.append(line)
    found = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_TRACES"):
        path.write_text(found, encoding="utf-8")
    assert found == expected
