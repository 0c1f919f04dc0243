"""What tests share: a cluster of one node, started once as a user does."""

from collections.abc import Iterator

import pytest

from tests.e2e.up_cluster import UpCluster

# Half messages are asked about soon.
SETTINGS = (
    "transactionCheckInterval=300",
    "transactionTimeOut=300",
    "enablePropertyFilter=true",
)


@pytest.fixture(scope="session")
def up_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    with UpCluster(tmp_path_factory.mktemp("up"), node_count=1, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def name_server(up_cluster: UpCluster) -> str:
    """Its name server."""
    return up_cluster.name_server
