"""Settings for the whole suite: how it is spread over processes, and what hypothesis draws."""

import pytest
from hypothesis import settings

# No deadline: no test asserts a time. Derandomized: a red run is red again on the next machine.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")


# What takes long by itself comes first, so that no process is left with it at the end.
_FIRST = ("spark", "fault", "attack", "e2e")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Lets the tests of a file follow each other in one process, where there are several.

    Those that need Spark are all in one: a process starts it once, and two of it would halve what
    each of them is given.
    """
    if not config.pluginmanager.hasplugin("xdist"):
        return

    def place(item: pytest.Item) -> int:
        room = item.nodeid.split("/")[1]
        return _FIRST.index(room) if room in _FIRST else len(_FIRST)

    items.sort(key=place)
    for item in items:
        is_spark = item.nodeid.startswith("tests/spark/")
        item.add_marker(pytest.mark.xdist_group("spark" if is_spark else item.location[0]))
