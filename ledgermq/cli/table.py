"""Plain tables for people: columns as wide as their widest cell, numbers to the right."""

from __future__ import annotations

import json
from collections.abc import Sequence


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], as_json: bool) -> None:
    """Prints rows under column titles, or as a JSON list of objects keyed by the titles."""
    if as_json:
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=1))
        return
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    print(
        "  ".join(title.ljust(width) for title, width in zip(columns, widths, strict=True)).rstrip()
    )
    for row, cells in zip(rows, texts, strict=True):
        parts = [
            text.rjust(width) if isinstance(cell, (int, float)) else text.ljust(width)
            for cell, text, width in zip(row, cells, widths, strict=True)
        ]
        print("  ".join(parts).rstrip())
