"""One Spark session and one small cluster for all tests of this directory; both always stop."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.spark.session import small_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session with two cores."""
    yield from small_session(tmp_path_factory.mktemp("warehouse"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    """A name server and one broker."""
    with UpCluster(tmp_path_factory.mktemp("up"), node_count=1) as up:
        yield up
