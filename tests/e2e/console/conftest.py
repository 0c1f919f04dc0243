"""A cluster of three with its console, started as a user does; shared by the files of this folder
that break nothing.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.console.api_client import Api
from tests.e2e.up_cluster import UpCluster

SETTINGS = ("transactionCheckInterval=300", "transactionTimeOut=300", "transactionCheckMax=2")


@pytest.fixture(scope="session")
def console_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    folder = tmp_path_factory.mktemp("console")
    with UpCluster(folder, node_count=1, settings=SETTINGS, console=True) as cluster:
        yield cluster


@pytest.fixture
def api(console_cluster: UpCluster) -> Api:
    return Api(console_cluster.console).opened()


@pytest.fixture(scope="session")
def name_server(console_cluster: UpCluster) -> str:
    return console_cluster.name_server
