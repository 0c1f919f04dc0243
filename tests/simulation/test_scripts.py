"""One schedule for each known defect: it holds here, and fails on a product with the mistake."""

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

from tests.simulation.mutation import Mutation
from tests.simulation.mutations import seen_by_script
from tests.simulation.planted_mistakes import MUTATIONS
from tests.simulation.scripts import (
    births,
    brokers,
    clocks,
    disks,
    elections,
    expiry,
    flush_modes,
    formats,
    marks,
    memberships,
    new_group,
    pushes,
    reads,
    removals,
    rules,
    snapshots,
    starved,
    state,
)


def scripts_of(module: ModuleType) -> list[Callable[[], None]]:
    """The scripts of a module: its public functions without arguments and result."""
    found = []
    for name, function in vars(module).items():
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            signature = inspect.signature(function)
            is_script = not signature.parameters and signature.return_annotation is None
            if is_script and not name.startswith("_"):
                found.append(function)
    return found


SCRIPTS = [
    script
    for module in (
        pushes,
        elections,
        disks,
        brokers,
        clocks,
        new_group,
        starved,
        births,
        state,
        formats,
        expiry,
        flush_modes,
        reads,
        removals,
        rules,
        marks,
        snapshots,
        memberships,
    )
    for script in scripts_of(module)
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_script(script: Callable[[], None]) -> None:
    script()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_planted_mistake_is_seen(mutation: Mutation) -> None:
    assert seen_by_script(mutation) is not None, mutation.title
