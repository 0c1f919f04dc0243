"""Programs take the descriptors that they may have, whatever they were started with."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.cli.descriptors import DESCRIPTORS_MAX
from tests.e2e.up_cluster import UpCluster
from tests.processes import SMALL_STORE


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """Programs are started with these few; gives how many they may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield DESCRIPTORS_MAX if hard < 0 else min(hard, DESCRIPTORS_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_broker_raises_its_limit(tmp_path: Path, few_descriptors: int) -> None:
    with UpCluster(tmp_path, 1, SMALL_STORE) as cluster:
        (broker,) = cluster.nodes()
        limits = Path(f"/proc/{broker['pid']}/limits").read_text()
    line = next(line for line in limits.splitlines() if line.startswith("Max open files"))
    assert int(line.split()[3]) == max(256, few_descriptors)
