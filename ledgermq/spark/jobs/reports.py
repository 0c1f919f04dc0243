"""Reports: small tables of a job, as text for people or as JSON lines for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame


def print_report(title: str, frame: DataFrame, *, as_json: bool) -> None:
    """Runs a query whose result is small and prints its rows."""
    print_rows(title, frame.columns, [tuple(row) for row in frame.collect()], as_json=as_json)


def print_rows(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, as_json: bool
) -> None:
    """Prints rows below a title; as JSON each row is one object with the title in it."""
    write = sys.stdout.write
    if as_json:
        for row in rows:
            named = dict(zip(columns, row, strict=True))
            write(json.dumps({"report": title, **named}, default=str) + "\n")
        return
    texts = [[_shown(value) for value in row] for row in rows]
    widths = [
        max(len(name), *(len(text[i]) for text in texts), 0) for i, name in enumerate(columns)
    ]
    write(f"{title}\n")
    for line in [list(columns), *texts]:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        write(f"  {'  '.join(padded).rstrip()}\n")
    if not texts:
        write("  nothing\n")


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value)
