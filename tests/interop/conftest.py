"""Fixtures of the suite: a stock Java cluster, LedgerMQ clusters; all stopped, stores removed.

What tests `tell` is printed at the end of the run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.interop.closed import ENVIRONMENT, RUNS_OPEN, closed_cluster, is_closed, is_on
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan

LedgerMQStarter = Callable[..., UpCluster]
Tell = Callable[[str], None]

_RESULTS = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def tell(pytestconfig: pytest.Config) -> Tell:
    """A function that takes a result which the reader of the run wants to see."""
    results = pytestconfig.stash.setdefault(_RESULTS, [])

    return results.append


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands over what was told, where several processes share the tests."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["told"] = session.config.stash.get(_RESULTS, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes over what was told in one of them."""
    told = getattr(node, "workeroutput", {}).get("told", [])
    node.config.stash.setdefault(_RESULTS, []).extend(told)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Prints all results together."""
    if os.environ.get("INTEROP_CLOSED") == "1":
        terminalreporter.section("closed mode")
        for module, reason in RUNS_OPEN.items():
            terminalreporter.line(f"{module} ran as in open mode: {reason}")
    results = config.stash.get(_RESULTS, [])
    if results:
        terminalreporter.section("results")
        terminalreporter.line("\n\n".join(results))


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for corpora and logs; corpora are removed, logs stay with pytest's."""
    directory = tmp_path_factory.mktemp("interop")
    yield directory
    for corpus in directory.glob("*.corpus"):
        corpus.unlink()


@pytest.fixture(scope="module")
def java_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """A stock name server and a stock broker."""
    directory = tmp_path_factory.mktemp("java")
    with JavaCluster(directory, JavaClusterPlan()) as cluster:
        yield cluster
    for store in directory.glob("store-*"):
        shutil.rmtree(store)


def remove_stores(cluster: UpCluster) -> None:
    """Deletes the stores of a cluster; logs stay."""
    for store in cluster.data.glob("n[0-9]"):
        shutil.rmtree(store, ignore_errors=True)


def open_cluster(folder: Path, settings: tuple[str, ...]) -> UpCluster:
    """A group as `ledgermq up` starts it, with some settings."""
    return UpCluster(folder, settings=settings)


@pytest.fixture(scope="module", autouse=True)
def closed_mode(request: pytest.FixtureRequest) -> Iterator[None]:
    """Gives the programs of a module their accounts, where INTEROP_CLOSED=1 closes it."""
    with pytest.MonkeyPatch.context() as patch:
        if is_closed(request.module.__name__):
            for name, value in ENVIRONMENT.items():
                patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def start_ledgermq(
    tmp_path_factory: pytest.TempPathFactory, closed_mode: None
) -> Iterator[LedgerMQStarter]:
    """A function that starts a LedgerMQ cluster, which ends with the module's last test.

    INTEROP_KEEP=1 in the environment keeps the stores; INTEROP_CLOSED=1 closes the cluster.
    """
    with ExitStack() as stack:

        def start(settings: tuple[str, ...] = ()) -> UpCluster:
            folder = tmp_path_factory.mktemp("ledgermq")
            make = closed_cluster if is_on() else open_cluster
            cluster = make(folder, settings)
            if not os.environ.get("INTEROP_KEEP"):
                stack.callback(remove_stores, cluster)
            return stack.enter_context(cluster)

        yield start
