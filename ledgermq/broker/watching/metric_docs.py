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
_OF_ROCKETMQ: Final = """\
Some of them have a label `topic` in RocketMQ 5; here they are of all topics together. Not there:
`rocketmq_consumer_inflight_messages` and `rocketmq_consumer_queueing_latency`, since a broker
does not keep what a client has read beyond the offset that it committed;
`rocketmq_timer_enqueue_lag` and `rocketmq_timer_enqueue_latency`, since a delayed message is where
it waits as soon as it is stored; and what is told of pop, tiers, RocksDB, proxies and controllers.

"""
# Beginning of the names, title, what is said before the table.
_KINDS: Final = (
    ("ledgermq_", "Of the broker", ""),
    ("rocketmq_", "As in RocketMQ 5", _OF_ROCKETMQ),
    ("", "The process", ""),
)


def metrics_page() -> str:
    """Returns the page."""
    lines = [
        f"| `{prefix}*` | {', '.join(f'`{name}`' for name in labels)} |"
        for prefix, labels in COMMON_LABELS.items()
    ]
    text, told = _INTRO + "\n".join(lines) + "\n", set[str]()
    for prefix, title, said in _KINDS:
        text += f"\n## {title}\n\n{said}| metric | kind | labels | meaning |\n|---|---|---|---|\n"
        for family in FAMILIES.values():
            if family.name.startswith(prefix) and family.name not in told:
                told.add(family.name)
                text += _row(family)
    text += _EXPORTER + "".join(map(_row, EXPORTER_FAMILIES.values()))
    return text


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |\n"
