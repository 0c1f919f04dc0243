"""Progress through internal queues: it follows the log, however a leader is lost."""

import json

import pytest

from ledgermq.broker.storage.state_files import format_pretty, parse_tolerant
from ledgermq.dledger.errors import CompactedError
from ledgermq.state.commands import DeliveriesPlanned
from ledgermq.state.formats import StateFormats
from ledgermq.state.queue_progress import HALF_QUEUE, QueueProgress, Run, runs_from_json
from tests.unit.broker.parts import Parts

PLAN = (Run(3, 10, 2), Run(5, 7, 0), Run(3, 14, 1), Run(1, 1, 1))


class Log:
    """Terms of entries, of which `end` many are applied."""

    def __init__(self, *terms: int) -> None:
        self.terms = terms
        self.end = len(terms)
        self.first = 0

    def term_at(self, index: int) -> int:
        if index < self.first:
            raise CompactedError(index, self.first)
        return self.terms[index]

    def attached(self) -> QueueProgress:
        progress = QueueProgress()
        progress.attach(self.term_at, lambda: self.end)
        progress.replace({3: 9, 5: 2, 1: 0})
        return progress


def led(progress: QueueProgress) -> dict[int, int]:
    progress.lead()
    return {level: progress.cursor(level) for level in (1, 3, 5)}


@pytest.mark.parametrize(
    ("kept", "cursors"),
    [
        (0, {1: 0, 3: 9, 5: 2}),
        (1, {1: 0, 3: 10, 5: 2}),
        (2, {1: 0, 3: 11, 5: 7}),
        (3, {1: 0, 3: 14, 5: 7}),
        (4, {1: 1, 3: 14, 5: 7}),
    ],
)
def test_new_leader_goes_on_behind_the_deliveries_that_the_log_keeps(
    kept: int, cursors: dict[int, int]
) -> None:
    # The plan is entry 1 of term 4; term 5 opens behind what was kept of its deliveries.
    progress = Log(4, 4, *[4] * kept, 5, 5, 5, 5, 5).attached()
    progress.planned(PLAN, 1)
    assert led(progress) == cursors


def test_next_plan_of_the_same_leader_follows_all_deliveries_of_the_one_before() -> None:
    progress = Log(*[4] * 20).attached()
    progress.planned(PLAN, 1)
    progress.planned((Run(3, 15, 1),), 9)
    assert led(progress) == {1: 1, 3: 15, 5: 7}


def test_deliveries_count_as_they_are_applied() -> None:
    log = Log(*[4] * 10)
    log.end = 3
    progress = log.attached()
    progress.planned(PLAN, 1)
    assert progress.to_json()["offsetTable"][3] == 10
    log.end = 6
    value = progress.to_json()
    assert value == {"offsetTable": {1: 1, 3: 14, 5: 7}}


def test_file_in_the_middle_of_a_plan_is_gone_on_from() -> None:
    log = Log(4, 4, 4, 4, 4, 4, 5)
    log.end = 3
    before = log.attached()
    before.planned(PLAN, 1)
    text = format_pretty(before.to_json())
    after = log.attached()
    after.load_json(parse_tolerant(text))
    log.end = 7
    assert led(after) == {1: 1, 3: 14, 5: 7}


def test_plans_that_come_again_change_nothing() -> None:
    log = Log(*[4] * 20)
    progress = log.attached()
    for _ in range(2):
        progress.planned(PLAN, 1)
        progress.planned((Run(3, 15, 2),), 9)
    assert led(progress) == {1: 1, 3: 16, 5: 7}


def test_plan_that_retention_took_was_carried_out() -> None:
    log = Log(*[4] * 20)
    progress = log.attached()
    progress.planned(PLAN, 1)
    log.first = 5
    assert led(progress) == {1: 1, 3: 14, 5: 7}


def test_plan_that_was_cut_stays_cut_when_retention_takes_it() -> None:
    log = Log(4, 4, 4, *[5] * 10)
    progress = log.attached()
    progress.planned(PLAN, 1)
    assert progress.to_json() == {"offsetTable": {1: 0, 3: 10, 5: 2}}
    log.first = 5
    assert led(progress) == {1: 0, 3: 10, 5: 2}


def test_what_a_leader_planned_goes_with_its_leadership() -> None:
    progress = Log(4, 5).attached()
    progress.lead()
    former = progress.advance((Run(3, 10, 5),))
    assert progress.cursor(3) == 14
    progress.take_back(former)
    assert progress.cursor(3) == 9
    progress.advance((Run(3, 10, 5),))
    progress.follow()
    assert led(progress)[3] == 9


def test_records_and_file_tell_the_cursors() -> None:
    leader = Log(4).attached()
    leader.replace({3: 9, HALF_QUEUE: 4})
    leader.lead()
    leader.advance((Run(HALF_QUEUE, 5, 1),))
    follower = Log(4).attached()
    follower.replace(json.loads(json.dumps(leader.to_record())))
    assert follower.to_json() == {"offsetTable": {3: 9}, "halfOffset": 5}
    proposed = StateFormats().read(Parts().state.plan_body((Run(3, 10, 0),)), 0)
    assert proposed is not None and isinstance(proposed.command, DeliveriesPlanned)
    follower.planned(proposed.command.runs, 0)
    again = QueueProgress()
    again.load_json(parse_tolerant(format_pretty(follower.to_json())))
    again.lead()
    assert (again.cursor(3), again.cursor(HALF_QUEUE)) == (10, 5)


def test_what_a_java_leader_delivered_is_passed_by_the_next_leader() -> None:
    """It writes no plans: the log says 9, the leader said 20; its numbers only ever grow."""
    log = Log(4, 4, 5)
    heard = log.attached()
    heard.hear({3: 20, 5: 1, HALF_QUEUE: 7})
    heard.hear({3: 15})
    assert heard.levels() == {1: 0, 3: 20, 5: 2}
    again = log.attached()
    again.load_json(parse_tolerant(format_pretty(heard.to_json())))
    # A leader that had not heard of it delivered some of them again.
    again.replace({3: 12})
    assert again.levels() == {3: 20, 5: 1}
    again.lead()
    assert (again.cursor(3), again.cursor(HALF_QUEUE)) == (20, 0)
    assert again.to_record() == {"3": 20, "5": 1}
    again.advance((Run(3, 21, 1),))
    assert again.cursor(3) == 21


def test_strange_records_do_not_hurt() -> None:
    progress = Log(4).attached()
    assert runs_from_json(None) == []
    assert runs_from_json([[1, 2], "x", [1, -2, 3], [1, 2, 3]]) == [Run(1, 2, 3)]
    progress.planned([], 0)
    progress.replace({"x": 1, "3": "y", "4": -1})
    progress.lead()
