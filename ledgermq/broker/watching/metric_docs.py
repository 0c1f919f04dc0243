"""docs/metrics.md, made of the table of metrics."""

from typing import Final

from ledgermq.broker.watching.exporter_families import EXPORTER_FAMILIES
from ledgermq.broker.watching.families import COMMON_LABELS, FAMILIES, Family

_INTRO: Final = """# Metrics

Every name on the page `/metrics` of a broker's [HTTP port](http.md). This page is made of the
same table as the answers are.

Labels beside a metric's own:

| names | labels |
|---|---|
"""
_EXPORTER: Final = """
## As in rocketmq-exporter

On the page `/metrics/exporter`, with no labels but these. `rocketmq_client_*` of Apache's exporter
are missing: only consumers themselves know them.

| metric | kind | labels | meaning |
|---|---|---|---|
"""
_KINDS: Final = (
    ("ledgermq_", "Of the broker"),
    ("rocketmq_", "As in RocketMQ 5"),
    ("", "The process"),
)


def metrics_page() -> str:
    """Returns the page."""
    lines = [
        f"| `{prefix}*` | {', '.join(f'`{name}`' for name in labels)} |"
        for prefix, labels in COMMON_LABELS.items()
    ]
    text, told = _INTRO + "\n".join(lines) + "\n", set[str]()
    for prefix, title in _KINDS:
        text += f"\n## {title}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n"
        for family in FAMILIES.values():
            if family.name.startswith(prefix) and family.name not in told:
                told.add(family.name)
                text += _row(family)
    text += _EXPORTER + "".join(map(_row, EXPORTER_FAMILIES.values()))
    return text


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |\n"
