"""MatchSearch finds where two logs part, in few questions, whatever the logs."""

import random

import pytest

from ledgermq.dledger.search import MatchSearch


def run(first_index: int, last_index: int, common_index: int, end_index: int) -> tuple[int, int]:
    """Plays the follower; returns the last common entry found and the number of questions."""
    search, count = MatchSearch(first_index, last_index), 0
    while not search.is_over:
        index = search.probe()
        assert first_index <= index <= last_index
        count += 1
        if index <= common_index:
            search.matched(index, end_index)
        else:
            assert search.differed(index, end_index)
    return search.low, count


def test_it_finds_the_last_common_entry() -> None:
    rng = random.Random(3)
    for _ in range(5_000):
        first_index = rng.choice([0, 0, 10])
        last_index = first_index + rng.randint(0, 60)
        common_index = rng.randint(first_index - 1, last_index)
        end_index = common_index + rng.choice([0, 0, 1, 5, 80])
        found, _ = run(first_index, last_index, common_index, end_index)
        assert found == common_index, (first_index, last_index, common_index, end_index)


@pytest.mark.parametrize(("common_index", "questions"), [(999_999, 1), (999_990, 9), (0, 41)])
def test_a_million_entries_take_few_questions(common_index: int, questions: int) -> None:
    """DLedger asks one question for each divergent entry (spec of its doCompare)."""
    _, count = run(0, 999_999, common_index, 999_999)
    assert count <= questions


def test_a_shorter_follower_is_asked_for_its_end_next() -> None:
    search = MatchSearch(0, 100)
    assert search.probe() == 100
    search.differed(100, end_index=40)
    assert search.probe() == 40


def test_an_empty_follower_needs_one_question() -> None:
    search = MatchSearch(0, 100)
    search.differed(search.probe(), end_index=-1)
    assert search.is_over
    assert search.low == -1


def test_a_follower_that_lost_entries_is_noticed() -> None:
    search = MatchSearch(0, 100)
    search.matched(50, end_index=80)
    assert not search.differed(75, end_index=20)


def test_a_log_that_grew_meanwhile_is_asked_about_and_not_cut() -> None:
    """Else what the follower got in the middle of the search would be deleted, and sent again."""
    search = MatchSearch(0, 100)
    search.differed(search.probe(), end_index=40)
    search.matched(search.probe(), end_index=60)
    assert not search.is_over
    assert search.probe() == 60
    search.matched(60, end_index=60)
    assert (search.is_over, search.low) == (True, 60)


def test_entries_that_differ_are_not_asked_for_again_when_the_log_is_longer() -> None:
    search = MatchSearch(0, 100)
    search.differed(100, end_index=120)
    search.differed(98, end_index=120)
    search.matched(97, end_index=120)
    assert (search.is_over, search.low) == (True, 97)
