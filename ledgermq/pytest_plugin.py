"""Fixture `ledgermq_cluster` of pytest: a RocketMQ-compatible cluster inside the test.

Registered with the package, so that a test asks for it and imports nothing:

    def test_orders(ledgermq_cluster): ...                                  one broker

    @pytest.mark.ledgermq(nodes=3, settings={"autoCreateTopicEnable": False})
    def test_failover(ledgermq_cluster): ...

    @pytest.mark.parametrize("ledgermq_cluster", [1, 3], indirect=True)
    def test_both(ledgermq_cluster): ...

Every run of pytest loads this file where the package is installed, so it loads nothing itself: the
cluster comes with the first test that asks for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ledgermq.testing import LedgerCluster

_MARK = "ledgermq"


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(nodes=1, settings=None): the cluster that the fixture ledgermq_cluster gives, its"
        " number of brokers and their settings",
    )


@pytest.fixture
def ledgermq_cluster(request: pytest.FixtureRequest) -> Iterator[LedgerCluster]:
    """A cluster for this test alone; the mark `ledgermq` or a parameter says how many nodes."""
    mark = request.node.get_closest_marker(_MARK)
    arguments = {} if mark is None else dict(mark.kwargs)
    if mark is not None and mark.args:
        raise pytest.UsageError(f"the mark {_MARK} takes nodes= and settings= by name")
    if hasattr(request, "param"):
        arguments["nodes"] = request.param
    testing = importlib.import_module("ledgermq.testing")
    with testing.LedgerCluster(**arguments) as cluster:
        yield cluster
