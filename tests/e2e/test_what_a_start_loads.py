"""What the programs load when they start plainly: no part that is not in use.

Loading modules is most of a start. A real cluster is started with Python's own report of imports,
so that what is loaded on the way to serving counts, too.
"""

from __future__ import annotations

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.processes import SMALL_STORE

# Third parties' packages that a start with nothing special configured has use for.
_PACKAGES = frozenset({"twisted", "zope", "msgspec", "crc32c"})
# Those of others that no start should load, and modules of the standard library that cost much.
_OPTIONAL = (
    "construct", "crcmod", "kombu", "lz4", "numpy", "opentelemetry", "pyarrow",
    "cryptography", "pydoc", "pyspark", "statistics", "unittest", "xml", "yaml", "zstandard",
)  # fmt: skip
# Of accounts and of the audit log a few small files, whether they are on or not.
_ROOMS = {
    "up": {"cli", "kernel"},
    "namesrv": {"access", "audit", "cli", "kernel", "logs", "namesrv", "protocol"},
    "n0": {
        "access",
        "audit",
        "broker",
        "state",
        "cli",
        "commitlog",
        "dledger",
        "kernel",
        "logs",
        "measures",
        "protocol",
    },
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The modules that each program of a cluster had loaded when it served."""
    folder = tmp_path_factory.mktemp("loads")
    variables = {"PYTHONPROFILEIMPORTTIME": "1"}
    with UpCluster(folder, 1, SMALL_STORE, variables) as cluster:
        logs = {name: cluster.log_text(name) for name in ("namesrv", "n0")}
        logs["up"] = cluster.up.log_text()
    return {name: _imports(text) for name, text in logs.items()}


def _imports(log: str) -> set[str]:
    lines = (line.split("|") for line in log.splitlines() if line.startswith("import time:"))
    return {parts[2].strip() for parts in lines if len(parts) == 3}


@pytest.mark.parametrize("program", _ROOMS)
def test_only_the_rooms_in_use_are_loaded(loaded: dict[str, set[str]], program: str) -> None:
    ours = {name for name in loaded[program] if name.startswith("ledgermq.")}
    assert {name.split(".")[1] for name in ours} == _ROOMS[program]


@pytest.mark.parametrize("program", _ROOMS)
def test_no_optional_part_is_loaded(loaded: dict[str, set[str]], program: str) -> None:
    packages = {name.partition(".")[0] for name in loaded[program]}
    assert packages & set(_OPTIONAL) == set()
    # The language of SQL92 filters comes with the first of them.
    assert "ledgermq.broker.selectors.sql_syntax" not in loaded[program]


def test_the_supervisor_loads_nothing_that_is_installed(loaded: dict[str, set[str]]) -> None:
    """It starts the others, so all of them wait for it."""
    packages = {name.partition(".")[0] for name in loaded["up"]}
    assert packages & _PACKAGES == set()
    assert loaded["n0"] & _PACKAGES == _PACKAGES
