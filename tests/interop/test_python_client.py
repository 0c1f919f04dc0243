"""Our Python client against stock brokers 4.9.3 and 5.3.3: the same scenarios with both."""

import shutil
from collections.abc import Iterator

import pytest

from tests.interop.python_scenarios import SCENARIOS, Scenario
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan
from tests.scenarios import run

# Half messages are asked about soon.
KEYS = {
    "enablePropertyFilter": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
}
_SCENARIO_S = 110.0


@pytest.fixture(scope="module", params=["4.9.3", "5.3.3"])
def namesrv(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A stock name server with one stock broker."""
    directory = tmp_path_factory.mktemp("java")
    plan = JavaClusterPlan(version=request.param, broker_keys=KEYS)
    with JavaCluster(directory, plan) as cluster:
        yield cluster.namesrv
    for store in directory.glob("store-*"):
        shutil.rmtree(store)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_client_does_its_part(scenario: Scenario, namesrv: str) -> None:
    run(scenario(namesrv, "Python" + scenario.__name__.replace("_", "")), _SCENARIO_S)
