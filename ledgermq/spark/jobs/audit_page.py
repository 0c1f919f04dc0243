"""The report of an audit as a page: tables and plots in one file, which needs nothing else.

There is no script in it, and its policy lets none run, nor anything be fetched. Names in stores are
those that their writers chose: all text is escaped.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Final

from ledgermq.spark.jobs.audit_report import SHOWN_MAX, group_rows, plain_text
from ledgermq.spark.jobs.store_audit import StoreAudit

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem}
table{border-collapse:collapse;width:100%}
th,td{border-bottom:1px solid #8884;padding:.3rem .6rem;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
svg text{font:12px system-ui,sans-serif;fill:currentColor}
.bad{color:#c5221f;font-weight:600}li{overflow-wrap:anywhere}td{overflow-wrap:anywhere}
"""
_TOPICS_MAX: Final = 20
# Files of a store that have a cell each; of more, several share one.
_CELLS_MAX: Final = 100
_LABEL_PX: Final = 260
_PLOT_PX: Final = 600
_ROW_PX: Final = 22
_GOOD, _BAD, _BAR = "#1e8e3e", "#d93025", "#1a73e8"


def audit_page(stores: Sequence[StoreAudit], now: datetime) -> str:
    """Returns the page.

    Args:
        stores: what was found in each.
        now: stands on the page.
    """
    defects = sum(len(store.defects) for store in stores)
    verdict = f'<span class="bad">{defects} defects</span>' if defects else "no defect"
    head = ("group", "stores", "entries", "bytes", "files", "queues", "defects")
    store_head = ("group", "store", "entries", "bytes", "files", "queues", "defects")
    rows = [
        (store.group, store.directory, store.entry_count, store.byte_count)
        + (len(store.segments), len(store.queues), len(store.defects))
        for store in stores
    ]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>Audit</title><style>{_STYLE}</style></head><body>",
        f"<h1>Audit: {verdict}</h1><p>{_text(now.isoformat(timespec='seconds'))},"
        f" {len(stores)} stores</p>",
        "<h2>Groups</h2>",
        _table(head, group_rows(stores)),
        "<h2>Stores</h2>",
        _table(store_head, rows),
        "<h2>Files</h2><p>Each cell is a file, the oldest first; a red one is damaged.</p>",
        _strips(stores),
        "<h2>Bytes</h2>",
        _bars([(_name(store), store.byte_count) for store in stores]),
        f"<h2>Messages of topics, the first {_TOPICS_MAX}</h2>",
        _bars(_topics(stores)),
        *(_found(store) for store in stores),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _text(text: str) -> str:
    return escape(plain_text(text), quote=True)


def _name(store: StoreAudit) -> str:
    return f"{store.group} {store.name}".strip()


def _table(head: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    def cell(value: str | int) -> str:
        if isinstance(value, int):
            return f'<td class="n">{value:,}</td>'
        return f"<td>{_text(value) or '-'}</td>"

    numbers = head[2:] if head[1] == "store" else head[1:]
    names = "".join(
        f'<th class="n">{name}</th>' if name in numbers else f"<th>{name}</th>" for name in head
    )
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><tr>{names}</tr>{body}</table>"


def _topics(stores: Sequence[StoreAudit]) -> list[tuple[str, int]]:
    """Returns the largest topics: of each group what the store with the most of it has."""
    counts: Counter[tuple[str, str]] = Counter()
    for store in stores:
        own: Counter[tuple[str, str]] = Counter()
        for (topic, _), units in store.queues.items():
            own[store.group, topic] += units.end_offset - units.first_offset
        counts |= own
    return [
        (f"{group} {topic}".strip(), n) for (group, topic), n in counts.most_common(_TOPICS_MAX)
    ]


def _svg(rows: int, inner: str) -> str:
    width, height = _LABEL_PX + _PLOT_PX + 90, max(1, rows) * _ROW_PX
    return f'<svg viewBox="0 0 {width} {height}" width="100%" role="img">{inner}</svg>'


def _label(number: int, text: str) -> str:
    shown = text if len(text) <= 36 else f"{text[:35]}\u2026"
    at = number * _ROW_PX + 15
    return f'<text x="{_LABEL_PX - 8}" y="{at}" text-anchor="end">{_text(shown)}</text>'


def _bars(rows: Sequence[tuple[str, int]]) -> str:
    largest = max((value for _, value in rows), default=0) or 1
    drawn = []
    for number, (name, value) in enumerate(rows):
        width, y = value * _PLOT_PX / largest, number * _ROW_PX
        drawn.append(
            f'{_label(number, name)}<rect x="{_LABEL_PX}" y="{y + 3}" width="{width:.1f}"'
            f' height="{_ROW_PX - 6}" fill="{_BAR}"/>'
            f'<text x="{_LABEL_PX + width + 6:.1f}" y="{y + 15}">{value:,}</text>'
        )
    return _svg(len(rows), "".join(drawn))


def _strips(stores: Sequence[StoreAudit]) -> str:
    drawn = []
    for number, store in enumerate(stores):
        drawn.append(_label(number, _name(store)))
        marks = [bool(found.defect or found.gaps) for found in store.findings]
        count = min(len(marks), _CELLS_MAX)
        for cell in range(count):
            share = marks[cell * len(marks) // count : (cell + 1) * len(marks) // count]
            x, width = _LABEL_PX + cell * _PLOT_PX / count, _PLOT_PX / count
            drawn.append(
                f'<rect x="{x:.1f}" y="{number * _ROW_PX + 3}" width="{max(1, width - 1):.1f}"'
                f' height="{_ROW_PX - 6}" fill="{_BAD if any(share) else _GOOD}"/>'
            )
        if not marks:
            # Nothing of it could be planned.
            at = f'x="{_LABEL_PX}" y="{number * _ROW_PX + 15}"'
            drawn.append(f'<text {at} style="fill:{_BAD}">not checked</text>')
    return _svg(len(stores), "".join(drawn))


def _found(store: StoreAudit) -> str:
    """Returns the defects and notes of a store, "" where there are none."""
    lines = [f'<li class="bad">{_text(text)}</li>' for text in store.defects[:SHOWN_MAX]]
    lines += [f"<li>{_text(text)}</li>" for text in store.notes[:SHOWN_MAX]]
    if not lines:
        return ""
    left = len(store.defects) + len(store.notes) - len(lines)
    more = f"<p>and {left} more</p>" if left else ""
    return f"<h2>{_text(_name(store))}</h2><ul>{''.join(lines)}</ul>{more}"
