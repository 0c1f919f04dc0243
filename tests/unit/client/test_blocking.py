"""The blocking classes have what the asyncio ones have."""

import inspect

import pytest

from ledgermq import client
from ledgermq.client import blocking

# What the event loop needs has another name without it.
NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}
OWN = {"__init__", *NAMES}


@pytest.mark.parametrize("name", blocking.__all__)
def test_each_method_has_a_twin_with_the_same_arguments(name: str) -> None:
    twin = getattr(blocking, name)
    for method, value in vars(getattr(client, name)).items():
        if method.startswith("_") and method not in OWN:
            continue
        found = getattr(twin, NAMES.get(method, method), None)
        assert found is not None, f"{name}.{method}"
        if inspect.isfunction(value):
            parameters = inspect.signature(value).parameters.values()
            own = inspect.signature(found).parameters.values()
            assert [(one.name, one.default, one.kind) for one in own] == [
                (one.name, one.default, one.kind) for one in parameters
            ], f"{name}.{method}"
