"""The table of metrics as values of OpenTelemetry's SDK, read some points at a time.

Names, labels and values are those of the page `/metrics`, so that what a collector hands on to
Prometheus answers the same dashboards and rules.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData

from ledgermq.broker.watching.families import Family, shared_labels_of
from ledgermq.broker.watching.page import Point
from ledgermq.measures.histogram import Histogram

# Points of one step; a step is one turn of the reactor.
_STEP_POINTS: Final = 200
# Lowest and highest value of a histogram, which are not told.
_UNKNOWN: Final[Any] = None
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class Reading:
    """One reading of all metrics.

    Attributes:
        metrics: what has been read.
    """

    def __init__(self, common: Mapping[str, str], started_ns: int, now_ns: int) -> None:
        """Begins with nothing read.

        Args:
            common: values of all common labels, and of those that the configuration adds to all.
            started_ns: since when counters count.
            now_ns: moment of the reading.
        """
        self.metrics: list[Metric] = []
        self._common, self._started_ns, self._now_ns = common, started_ns, now_ns
        self._added = {name: common[name] for name in common if name not in _SHARED}

    def steps(self, groups: Iterable[tuple[Family, Iterable[Point]]]) -> Iterator[None]:
        """Reads families; what it yields is a turn's end."""
        count = 0
        for family, points in groups:
            shared = {name: self._common[name] for name in shared_labels_of(family.name)}
            base = {**shared, **self._added}
            numbers: list[NumberDataPoint] = []
            histograms: list[HistogramDataPoint] = []
            for point in points:
                if point is None:
                    yield
                    continue
                values, value = point
                labels = {**base, **dict(zip(family.labels, values, strict=True))}
                if isinstance(value, Histogram):
                    histograms.append(self._histogram(labels, value))
                else:
                    start_ns = self._started_ns if family.kind == "counter" else 0
                    numbers.append(NumberDataPoint(labels, start_ns, self._now_ns, value))
                count += 1
                if count % _STEP_POINTS == 0:
                    yield
            if numbers or histograms:
                self.metrics.append(_metric(family, numbers, histograms))

    def _histogram(self, labels: dict[str, str], value: Histogram) -> HistogramDataPoint:
        return HistogramDataPoint(
            labels,
            self._started_ns,
            self._now_ns,
            value.count,
            value.total,
            tuple(value.counts),
            value.bounds,
            min=_UNKNOWN,
            max=_UNKNOWN,
        )


def _metric(
    family: Family, numbers: list[NumberDataPoint], histograms: list[HistogramDataPoint]
) -> Metric:
    data: Gauge | Sum | HistogramData
    if family.kind == "histogram":
        data = HistogramData(histograms, _CUMULATIVE)
    elif family.kind == "counter":
        data = Sum(numbers, _CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(numbers)
    # A unit would become a part of the name on the way to Prometheus, where it stands already.
    return Metric(family.name, family.help, "", data)


_SHARED: Final = frozenset(
    name
    for prefix in ("ledgermq_", "rocketmq_", "rocketmq_storage_")
    for name in shared_labels_of(prefix)
)
