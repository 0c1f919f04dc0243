"""Plain tables for people: columns as wide as their widest cell, numbers to the right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from ledgermq.protocol.plain_text import escaped

# A cell beyond stands out of its column: of a hundred thousand rows each would be as long.
_WIDTH_MAX: Final = 256


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], as_json: bool) -> None:
    """Prints rows under column titles, or as a JSON list of objects keyed by the titles."""
    if as_json:
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=1))
        return
    # A name may come from anybody.
    texts = [[escaped(str(cell)) for cell in row] for row in rows]
    widths = [
        min(max(map(len, column)), _WIDTH_MAX) for column in zip(columns, *texts, strict=True)
    ]
    # Numbers stand to the right, and so do the titles above nothing but numbers.
    numeric = [bool(rows) and all(map(_is_number, column)) for column in zip(*rows, strict=True)]
    titles = zip(columns, numeric or [False] * len(columns), strict=True)
    _print_cells([*titles], widths)
    for row, cells in zip(rows, texts, strict=True):
        _print_cells([*zip(cells, map(_is_number, row), strict=True)], widths)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float)


def _print_cells(cells: Sequence[tuple[str, bool]], widths: Sequence[int]) -> None:
    padded = [
        text.rjust(width) if is_right else text.ljust(width)
        for (text, is_right), width in zip(cells, widths, strict=True)
    ]
    print("  ".join(padded).rstrip())
