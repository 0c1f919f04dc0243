"""The page of metrics in Prometheus' text format, written part by part.

    # HELP ledgermq_raft_term Term of this member.
    # TYPE ledgermq_raft_term gauge
    ledgermq_raft_term{cluster="C",broker="a",member="n0"} 7

OpenMetrics is the same but for the names of counters, which end with `_total` in their lines alone,
and for the last line. Source: https://prometheus.io/docs/specs/om/open_metrics_spec/.

A part is written in one turn of the reactor: some hundred points, well below a millisecond.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from ledgermq.broker.watching.families import Family, shared_labels_of
from ledgermq.measures.histogram import Histogram

TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# In a header Accept; other versions than these are not asked for by anybody who takes no text.
_OPEN_TYPE: Final = "application/openmetrics-text"
_OPEN_VERSIONS: Final = ("1.0.0", "0.0.1", "")
# Points of one part.
_PART_POINTS: Final = 400
# A head of 16 KB of commas takes 13 ms.
_ACCEPT_CHARS_MAX: Final = 1024
_SPECIAL: Final = re.compile(r'[\\"\n]')
_ESCAPES: Final = {"\\": r"\\", '"': r"\"", "\n": r"\n"}

# Values of the family's labels, and the value. None is no point: a turn may end here.
Point = tuple[tuple[str, ...], float | Histogram] | None


def write_page(
    groups: Iterable[tuple[Family, Iterable[Point]]],
    common: Mapping[str, str],
    shared_of: Callable[[str], tuple[str, ...]] = shared_labels_of,
    *,
    is_open: bool = False,
) -> Iterator[bytes]:
    """Writes the page.

    Args:
        groups: families with their points; a family without points is left out.
        common: values of all common labels, and of those that the configuration adds to all.
        shared_of: names of the common labels of a metric.
        is_open: whether it is written as OpenMetrics.
    """
    lines: list[str] = []
    for family, points in groups:
        is_first = True
        head = _head(shared_of(family.name), common)
        own = "".join([f',{name}="%s"' for name in family.labels])
        own = own if head else own[1:]
        quotes = 2 * len(family.labels)
        for point in points:
            if point is None:
                yield "".join(lines).encode()
                lines = []
                continue
            if is_first:
                is_counter = is_open and family.kind == "counter"
                name = family.name.removesuffix("_total") if is_counter else family.name
                lines.append(f"# HELP {name} {family.help}\n")
                lines.append(f"# TYPE {name} {family.kind}\n")
                is_first = False
            values, value = point
            labels = own % values
            if "\\" in labels or "\n" in labels or labels.count('"') != quotes:
                labels = own % tuple(map(escape, values))
            labels = head + labels
            if isinstance(value, Histogram):
                lines += _histogram_lines(family.name, labels, value)
            else:
                lines.append(f"{family.name}{{{labels}}} {value}\n")
            if len(lines) >= _PART_POINTS:
                yield "".join(lines).encode()
                lines = []
    if is_open:
        lines.append("# EOF\n")
    if lines:
        yield "".join(lines).encode()


def wants_open_metrics(accept: str) -> bool:
    """Tells whether a header Accept likes OpenMetrics at least as much as plain text (RFC 9110);
    what it says behind the first kinds is not looked at.
    """
    open_share = text_share = 0.0
    for part in accept[:_ACCEPT_CHARS_MAX].split(","):
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        fields = dict(parameter.partition("=")[::2] for parameter in parameters)
        try:
            share = float(fields.get("q", "1"))
        except ValueError:
            share = 0.0
        version = fields.get("version", "").strip('"')
        if name == _OPEN_TYPE and version in _OPEN_VERSIONS:
            open_share = max(open_share, share)
        elif name in ("text/plain", "text/*"):
            text_share = max(text_share, share)
    return open_share > 0 and open_share >= text_share


def escape(value: str) -> str:
    """Returns a label's value as it stands between quotation marks."""
    if _SPECIAL.search(value) is None:
        return value
    return _SPECIAL.sub(lambda found: _ESCAPES[found.group()], value)


def _head(own: tuple[str, ...], common: Mapping[str, str]) -> str:
    added = [name for name in common if name not in _ALL_COMMON]
    pairs = (f'{name}="{escape(common[name])}"' for name in (*own, *added))
    return ",".join(pairs)


def _histogram_lines(name: str, labels: str, histogram: Histogram) -> list[str]:
    lines, seen = [], 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        seen += count
        lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {seen}\n')
    lines.append(f"{name}_sum{{{labels}}} {histogram.total}\n")
    lines.append(f"{name}_count{{{labels}}} {seen}\n")
    return lines


_ALL_COMMON: Final = frozenset(
    ("cluster", "broker", "member", "node_type", "node_id", "storage_type", "storage_medium")
)
