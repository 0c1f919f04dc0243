"""Majority arithmetic, compared with slow and obvious forms."""

import random

from ledgermq.dledger.quorum import QuorumAckChecker, majority_index


def slow_majority_index(indexes: list[int], quorum_count: int) -> int:
    return max(i for i in [-1, *indexes] if sum(j >= i for j in indexes) >= quorum_count)


def slow_commit_index(
    matches: list[int], commit_index: int, term: int, terms: list[int], quorum_count: int
) -> int:
    best = commit_index
    for index in range(commit_index + 1, len(terms)):
        holders = sum(match >= index for match in matches)
        if holders == len(matches):
            best = index
        if terms[index] == term and holders >= quorum_count:
            best = index
    return best


def test_majority_index_equals_the_slow_one() -> None:
    rng = random.Random(1)
    for _ in range(20_000):
        count = rng.randint(1, 7)
        indexes = [rng.randint(-1, 6) for _ in range(count)]
        quorum_count = count // 2 + 1
        expected = slow_majority_index(indexes, quorum_count)
        assert majority_index(indexes, quorum_count) == expected, indexes


def test_commit_index_equals_the_slow_one() -> None:
    rng = random.Random(2)
    for _ in range(20_000):
        count = rng.randint(1, 7)
        terms = sorted(rng.randint(1, 4) for _ in range(7))
        term = rng.randint(terms[-1], 5)
        matches = [rng.randint(-1, 6) for _ in range(count)]
        commit_index = rng.randint(-1, 6)
        checker = QuorumAckChecker(count // 2 + 1)
        found = checker.commit_index(
            matches, commit_index=commit_index, term=term, term_at=terms.__getitem__
        )
        expected = slow_commit_index(matches, commit_index, term, terms, count // 2 + 1)
        assert found == expected, (matches, commit_index, term, terms)


def test_old_term_entry_commits_when_every_member_holds_it() -> None:
    checker = QuorumAckChecker(2)
    terms = [1, 1]
    by = {"commit_index": -1, "term": 2}
    assert checker.commit_index([1, 1, -1], **by, term_at=terms.__getitem__) == -1
    assert checker.commit_index([1, 1, 0], **by, term_at=terms.__getitem__) == 0
    assert checker.commit_index([1, 1, 1], **by, term_at=terms.__getitem__) == 1


def test_silence_ends_when_the_majority_was_last_heard() -> None:
    assert QuorumAckChecker(2).silence_deadline_ms([100.0, 900.0], 1500) == 2400
    assert QuorumAckChecker(3).silence_deadline_ms([100.0, 900.0, 50.0, 0.0], 1500) == 1600


def test_a_group_of_one_is_never_silent() -> None:
    assert QuorumAckChecker(1).silence_deadline_ms([], 1500) == float("inf")


def test_too_few_countable_peers_are_silence() -> None:
    assert QuorumAckChecker(2).silence_deadline_ms([], 1500) == float("-inf")
