"""Scripts with their whole expected trace; UPDATE_SCRIPTS=1 writes the present one."""

import os
from pathlib import Path

import pytest

from tests.simulation.stage import Stage

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    expected = path.read_text(encoding="utf-8")
    stage = Stage()
    lines: list[str] = []
    for line in expected.splitlines():
        if line.startswith("> "):
            lines += [line, *stage.run(line[2:])]
        elif line.startswith("#"):
            lines.append(line)
    found = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_SCRIPTS"):
        path.write_text(found, encoding="utf-8")
    assert found == expected
