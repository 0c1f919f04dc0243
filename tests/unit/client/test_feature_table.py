"""The table of features in docs/client.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_each_row_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    # What only others have has a table of its own.
    table = page.split("## Beside other clients")[1].partition("\nWhat others have")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    names = [re.findall(r"`(\w+)`", row.rstrip("| ").rpartition("|")[2]) for row in rows]
    files = [*(ROOT / "tests").rglob("test_*.py"), ROOT / "tests/interop/python_scenarios.py"]
    defined = {
        name
        for file in files
        for name in re.findall(r"^(?:async )?def (\w+)\(", file.read_text(encoding="utf-8"), re.M)
    }
    assert len(rows) >= 20
    assert [row for row, found in zip(rows, names, strict=True) if len(found) != 1] == []
    assert {name for found in names for name in found} - defined == set()
