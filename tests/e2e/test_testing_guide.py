"""The programs of docs/testing.md pass as they stand, with the fixture of the package."""

import re
from pathlib import Path

import pytest

from tests.e2e.other_pytest import run_pytest

ROOT = Path(__file__).resolve().parents[2]


def programs() -> list[str]:
    text = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(240)
def test_programs_of_the_guide_pass(tmp_path: Path) -> None:
    found = programs()
    for number, program in enumerate(found):
        (tmp_path / f"test_guide_{number}.py").write_text(program)
    test_count = sum(len(re.findall(r"^ *def test_", program, re.MULTILINE)) for program in found)
    assert test_count >= 10
    # One of them runs twice, for one node and for three.
    assert f"{test_count + 1} passed" in run_pytest(tmp_path)
