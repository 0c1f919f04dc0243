"""Every file of a store directory, damaged in every way: nothing is lost, and nothing is silent.

`make file-damage` runs all cases: of a broker alone, and of a group in which that member leads
next.
"""

from collections.abc import Iterator

import pytest

from tests.fault.file_damage import DAMAGES, DamagedStore, entry_of, open_damaged


@pytest.fixture(scope="module", params=[1, 3])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DamagedStore]:
    with open_damaged(request.param, tmp_path_factory.mktemp("damage")) as store:
        yield store


def test_every_file_is_known(store: DamagedStore) -> None:
    """A new file needs an entry that says what is right when it is damaged."""
    assert [name for name in store.names() if entry_of(name) is None] == []


def test_no_damage_loses_anything_or_is_silent(store: DamagedStore) -> None:
    """Each file with one damage, another one from file to file; each damage of the tables."""
    kinds = len(DAMAGES)
    chosen = [
        (name, damage)
        for number, name in enumerate(store.names())
        for place, damage in enumerate(DAMAGES)
        if (place - number) % kinds == 0 or "topics.json" in name
    ]
    possible = set(store.cases())
    outcomes = [store.run(*case) for case in chosen if case in possible]
    assert len(outcomes) > len(chosen) // 2
    assert [str(outcome) for outcome in outcomes if outcome.fault] == []
