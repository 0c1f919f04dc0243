"""The short part of the suite and the rest: together all tests, each once."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.suite.parts import SHORT, arguments_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", SHORT)
def test_short_part_names_what_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    assert (ROOT / path).exists()
    if function:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        # The rest leaves out what begins with the name: no other test may.
        assert [one for one in defined if one.startswith(function)] == [function]


def test_nothing_is_named_twice() -> None:
    assert [
        (name, other)
        for name in SHORT
        for other in SHORT
        if name != other and f"{name}/".startswith((f"{other}/", f"{other}::"))
    ] == []
    assert len(set(SHORT)) == len(SHORT)


def test_rest_leaves_out_what_the_short_part_has() -> None:
    left_out = {word.partition("=")[2] for word in arguments_of("rest") if word.startswith("--")}
    assert left_out == {*SHORT, "tests/interop"}
