"""Tables in Markdown, and the parts of docs/performance.md that programs write anew."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from ledgermq import __version__

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "performance.md"
CHARTS = DOCS / "charts"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def renewed(page: str, mark: str, text: str) -> str:
    """The page with a new text between the two comments of a mark.

    Raises:
        ValueError: the page has no such comments.
    """
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no {begin} and {end}")
    return f"{page.split(begin)[0]}{begin}\n{text}\n{end}{page.split(end)[1]}"


def renew(mark: str, text: str) -> None:
    """Writes a part of docs/performance.md."""
    PAGE.write_text(renewed(PAGE.read_text(), mark, text))


def machine() -> dict[str, str | int | float]:
    """What figures were measured on."""
    return {
        "ledgermq": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count() or 0,
        "load_average_before": round(os.getloadavg()[0], 1),
    }


def machine_line(of: dict[str, str | int | float]) -> str:
    """The same in a sentence."""
    return (
        f"LedgerMQ {of['ledgermq']}, CPython {of['python']}, {of['system']}, {of['cores']} cores; "
        f"load average before the run {of['load_average_before']}."
    )
