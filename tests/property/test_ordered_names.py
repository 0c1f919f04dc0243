"""Ordered names in short runs are what one sorted list of them is, after any changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.state import ordered_names
from ledgermq.state.ordered_names import OrderedNames

_names = st.text("ab@~", max_size=4)


@pytest.fixture(scope="module", autouse=True)
def short_runs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ordered_names, "_RUN_MAX", 4)
        yield


def _changed(begun: set[str], changes: list[str]) -> tuple[OrderedNames, list[str]]:
    """Adds each name that is not there yet, and drops it when it comes again."""
    names, expected = OrderedNames(begun), set(begun)
    for name in changes:
        if name in expected:
            names.remove(name)
        else:
            names.add(name)
        expected ^= {name}
    return names, sorted(expected)


@given(st.sets(_names), st.lists(_names, max_size=200))
def test_they_are_in_order_after_any_changes(begun: set[str], changes: list[str]) -> None:
    names, expected = _changed(begun, changes)
    assert list(names) == expected
    assert bool(names) == bool(expected)


@given(st.sets(_names), st.lists(_names), _names, st.none() | _names)
def test_a_part_of_them_is_that_of_the_list(
    begun: set[str], changes: list[str], after: str, upto: str | None
) -> None:
    names, expected = _changed(begun, changes)
    behind = [name for name in expected if name > after]
    assert list(names.behind(after)) == behind
    assert names.between(after, upto) == [name for name in behind if upto is None or name <= upto]


@given(st.sets(_names), st.lists(_names), _names, _names)
def test_a_cut_takes_out_one_part(
    begun: set[str], changes: list[str], begin: str, end: str
) -> None:
    names, expected = _changed(begun, changes)
    begin, end = min(begin, end), max(begin, end)
    runs = names.cut(begin, end)
    assert [name for run in runs for name in run] == [n for n in expected if begin <= n < end]
    left = [name for name in expected if not begin <= name < end]
    assert list(names) == left and len(names) == len(left)
    # It is as good as before.
    names.add(begin + "!")
    assert list(names) == sorted([*left, begin + "!"])


@given(st.sets(_names), _names)
def test_a_name_is_discarded_where_it_is(begun: set[str], name: str) -> None:
    names = OrderedNames(begun)
    names.discard(name)
    assert list(names) == sorted(begun - {name})


def test_every_part_is_right_whichever_name_was_dropped() -> None:
    """Also of those that stood last in their run: a part may begin behind what is left of it."""
    begun = [f"{number:02}" for number in range(12)]
    for dropped in begun:
        names = OrderedNames(begun)
        names.remove(dropped)
        kept = [name for name in begun if name != dropped]
        for after in ("", *begun, *(f"{name}~" for name in begun)):
            behind = [name for name in kept if name > after]
            assert list(names.behind(after)) == names.between(after, None) == behind
            for upto in begun:
                part = [name for name in behind if name <= upto]
                assert names.between(after, upto) == part, (dropped, after, upto)


def test_no_run_is_longer_than_it_may_be_nor_empty() -> None:
    names = OrderedNames()
    for number in range(100):
        names.add(f"{number * 37 % 100:02}")
        assert all(0 < len(run) <= 4 for run in names._runs)
    for number in range(100):
        names.remove(f"{number * 61 % 100:02}")
        assert all(0 < len(run) <= 4 for run in names._runs)
    assert names._runs == names._lasts == []
