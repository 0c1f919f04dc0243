"""A small part of tests.simulation.blackouts; seed 49 saw the checkpoint of an empty log."""

from collections import Counter

import pytest

from tests.simulation.blackouts import run

SEEDS = 8


@pytest.mark.parametrize("batch", range(4))
def test_a_group_is_whole_again_after_any_power_cuts_of_all_members(batch: int) -> None:
    met = Counter[str]()
    for seed in range(40 + batch * SEEDS, 40 + (batch + 1) * SEEDS):
        met.update(run(seed))
    assert met["all nodes power-cut at once"] >= SEEDS
    assert met["unsynced writes lost"] and met["stopped in order"]
