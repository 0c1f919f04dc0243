"""Histograms: bounds, sums, shares."""

from ledgermq.measures.histogram import Histogram


def test_value_at_a_bound_is_below_it() -> None:
    histogram = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 2, 3):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, histogram.total) == (5, 8.0)


def test_share_is_told_by_the_end_of_its_interval() -> None:
    histogram = Histogram((1, 10, 100))
    assert histogram.quantile(0.99) == 0.0
    histogram.observe(0.5, 98)
    histogram.observe(50, 2)
    assert (histogram.quantile(0.5), histogram.quantile(0.98)) == (1, 1)
    assert histogram.quantile(0.99) == 100
    histogram.observe(5000, 900)
    assert histogram.quantile(0.99) == 100
