"""Mutation: one planted mistake, and how it is put in place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.simulation.broken_twins import Twin

Script = Callable[[], None]


class Mutation(NamedTuple):
    """One planted mistake."""

    name: str
    title: str
    twin: Twin
    # Must see it.
    script: Script
    # So many seeds look for it, too; chance may miss it.
    seeds_max: int = 0
    # Changes of the plan that bring the mistake out sooner.
    focus: dict[str, object] = {}


@contextmanager
def planted(mutation: Mutation) -> Iterator[None]:
    """Puts the twins in place for the length of a `with` block."""
    patches = mutation.twin()
    originals = [(owner, name, vars(owner)[name]) for owner, name, _ in patches]
    for owner, name, twin in patches:
        setattr(owner, name, twin)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
