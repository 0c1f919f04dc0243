"""The plugin in somebody else's run of pytest: it is registered, it loads nothing that is not asked
for, and clusters follow mark and parameter.
"""

import tomllib
from pathlib import Path

import pytest

from tests.e2e.other_pytest import PLUGIN, ROOT, run_pytest

pytestmark = pytest.mark.timeout(240)


def test_package_registers_the_plugin() -> None:
    """The entry point is named as its module, so that `-p` with that name loads it once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}


def test_run_without_the_fixture_loads_neither_twisted_nor_a_broker(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        """
import sys


def test_nothing_is_loaded():
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not loaded & {"twisted", "zope", "construct", "msgspec"}
    ours = {name for name in sys.modules if name.startswith("ledgermq")}
    assert ours == {"ledgermq", "ledgermq.kernel", "ledgermq.pytest_plugin"}
"""
    )
    assert "1 passed" in run_pytest(tmp_path)


def test_clusters_follow_mark_and_parameter_and_install_no_reactor(tmp_path: Path) -> None:
    (tmp_path / "test_marks.py").write_text(
        """
import asyncio
import gc
import signal
import sys

import pytest


def process_state():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return handlers, sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()


BEFORE = process_state()


@pytest.mark.ledgermq(nodes=3, settings={"defaultTopicQueueNums": 2})
def test_mark(ledgermq_cluster):
    assert ledgermq_cluster.nodes == ("n0", "n1", "n2")


@pytest.mark.parametrize("ledgermq_cluster", [2], indirect=True)
def test_parameter(ledgermq_cluster):
    assert ledgermq_cluster.nodes == ("n0", "n1")


def test_nothing_is_installed(ledgermq_cluster):
    assert ledgermq_cluster.nodes == ("n0",)
    assert "twisted.internet.reactor" not in sys.modules
    assert process_state() == BEFORE

    async def other_loop():
        return ledgermq_cluster.leader

    assert asyncio.run(other_loop()) == "n0"


@pytest.mark.ledgermq(settings={"listenPort": 10911})
def test_key_of_the_cluster_itself(ledgermq_cluster):
    pass
"""
    )
    out = run_pytest(tmp_path)
    assert "3 passed, 1 error" in out
    assert "ValueError: the cluster itself sets listenPort" in out
