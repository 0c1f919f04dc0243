"""Which appends of a master that waits for its slaves are acknowledged, and what becomes of the
others.
"""

import pytest

from ledgermq.broker.ha.acknowledgements import Acknowledgements, ReplicaStatus

REPLICATED = ReplicaStatus.REPLICATED
NOT_AVAILABLE = ReplicaStatus.SLAVE_NOT_AVAILABLE
TIMEOUT = ReplicaStatus.FLUSH_SLAVE_TIMEOUT


@pytest.fixture
def acknowledgements() -> Acknowledgements:
    return Acknowledgements(behind_bytes_max=100, timeout_ms=3000)


def test_without_a_slave_nobody_waits(acknowledgements: Acknowledgements) -> None:
    told: list[ReplicaStatus] = []
    acknowledgements.wait(10, 0, told.append)
    assert told == [NOT_AVAILABLE]


@pytest.mark.parametrize(("end", "expected"), [(149, []), (150, [NOT_AVAILABLE])])
def test_a_slave_too_far_behind_counts_as_none(
    acknowledgements: Acknowledgements, end: int, expected: list[ReplicaStatus]
) -> None:
    acknowledgements.reported([50])
    told: list[ReplicaStatus] = []
    acknowledgements.wait(end, 0, told.append)
    assert told == expected


def test_the_best_slave_ends_the_waits_it_has_passed(acknowledgements: Acknowledgements) -> None:
    acknowledgements.reported([0, 0])
    told: list[tuple[int, ReplicaStatus]] = []
    for end in (10, 20, 20, 30):
        acknowledgements.wait(end, 0, lambda status, end=end: told.append((end, status)))
    acknowledgements.reported([9, 0])
    assert told == []
    acknowledgements.reported([9, 25])
    assert told == [(10, REPLICATED), (20, REPLICATED), (20, REPLICATED)]
    # The best one is gone; what it has told stays true.
    acknowledgements.reported([15])
    assert (acknowledgements.best_offset, acknowledgements.waiting_count) == (25, 1)


def test_a_slave_that_begins_afresh_is_behind_whatever_it_had(
    acknowledgements: Acknowledgements,
) -> None:
    acknowledgements.reported([1000])
    acknowledgements.reported([0])
    told: list[ReplicaStatus] = []
    acknowledgements.wait(1010, 0, told.append)
    assert told == [NOT_AVAILABLE]


def test_what_a_slave_has_already_is_answered_at_once(acknowledgements: Acknowledgements) -> None:
    acknowledgements.reported([25])
    acknowledgements.reported([])
    told: list[ReplicaStatus] = []
    acknowledgements.wait(25, 0, told.append)
    assert told == [REPLICATED]


def test_a_wait_ends_at_its_deadline(acknowledgements: Acknowledgements) -> None:
    acknowledgements.reported([0])
    told: list[ReplicaStatus] = []
    acknowledgements.wait(10, 1000, told.append)
    acknowledgements.wait(20, 1001, told.append)
    acknowledgements.expire(3999)
    assert told == []
    acknowledgements.expire(4000)
    assert told == [TIMEOUT]
    acknowledgements.reported([20])
    assert told == [TIMEOUT, REPLICATED]


def test_a_stop_ends_all_waits(acknowledgements: Acknowledgements) -> None:
    acknowledgements.reported([0])
    told: list[ReplicaStatus] = []
    acknowledgements.wait(10, 0, told.append)
    acknowledgements.wait(20, 0, told.append)
    acknowledgements.close()
    assert told == [TIMEOUT, TIMEOUT]
    assert acknowledgements.waiting_count == 0
