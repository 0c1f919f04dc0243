"""The report of an audit: as text for people, as lines of JSON for programs.

Names in stores are those that their writers chose; what a terminal would obey is shown as escapes.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from ledgermq.spark.jobs.reports import print_rows
from ledgermq.spark.jobs.store_audit import StoreAudit

SHOWN_MAX: Final = 100
_COLUMNS: Final = ("group", "stores", "entries", "bytes", "files", "queues", "defects")


def plain_text(text: str) -> str:
    """Returns a text without characters that are none to be seen; escapes stand for them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def group_rows(stores: Sequence[StoreAudit]) -> list[tuple[str, int, int, int, int, int, int]]:
    """Returns a row for each group, in order of their names."""
    rows = []
    for group in sorted({store.group for store in stores}):
        own = [store for store in stores if store.group == group]
        rows.append(
            (
                group,
                len(own),
                sum(store.entry_count for store in own),
                sum(store.byte_count for store in own),
                sum(len(store.segments) for store in own),
                max(len(store.queues) for store in own),
                sum(len(store.defects) for store in own),
            )
        )
    return rows


def print_audit(stores: Sequence[StoreAudit], *, as_json: bool) -> None:
    """Prints what was found in each store, and a table of the groups where there are several."""
    write = sys.stdout.write
    for store in stores:
        if as_json:
            write(json.dumps({"report": "stores", **_row_of(store)}) + "\n")
            continue
        write(
            plain_text(
                f"{store.directory}: {store.entry_count} entries, {store.byte_count} bytes in"
                f" {len(store.segments)} files, {len(store.queues)} queues,"
                f" {len(store.defects)} defects"
            )
            + "\n"
        )
        for text in store.defects[:SHOWN_MAX]:
            write(f"  defect: {plain_text(text)}\n")
        for text in store.notes[:SHOWN_MAX]:
            write(f"  note: {plain_text(text)}\n")
    if any(store.group for store in stores):
        print_rows("groups", _COLUMNS, group_rows(stores), as_json=as_json)


def _row_of(store: StoreAudit) -> dict[str, Any]:
    return {
        "group": store.group,
        "directory": store.directory,
        "entries": store.entry_count,
        "bytes": store.byte_count,
        "files": len(store.segments),
        "queues": len(store.queues),
        "defects": store.defects,
        "notes": store.notes,
    }
