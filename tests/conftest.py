"""Settings for the whole suite: how it is spread over processes, and what hypothesis draws."""

from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

# No deadline: no test asserts a time. Derandomized: a red run is red again on the next machine.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")

_SPARK = "tests/spark/"
# What takes long by itself comes first, so that no process is left with it at the end.
_FIRST = ("spark", "fault", "attack", "e2e")


class _ByFile(LoadFileScheduling):
    """The tests of a file follow each other in one process, and so do all that need Spark.

    A process starts it once, and two of it would halve what each of them is given.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _SPARK if nodeid.startswith(_SPARK) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile:
    """Spreads the tests, where several processes share them."""
    return _ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts first what takes long."""

    def place(item: pytest.Item) -> int:
        room = item.nodeid.split("/")[1]
        return _FIRST.index(room) if room in _FIRST else len(_FIRST)

    items.sort(key=place)
