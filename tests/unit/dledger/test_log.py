"""RaftLog: the store and what the next Ready will change, read as one log."""

import random

import pytest

from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.errors import CompactedError, OutOfRangeError
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.store.memory_store import DLedgerMemoryStore
from tests.unit.dledger.lab import CODEC, SEGMENT_BYTES, disk_of, run_of


def carry_out(log: RaftLog, disk: DLedgerMemoryStore) -> EntryId | None:
    changes = log.take_changes()
    if changes is None:
        return None
    if changes.truncate_from is not None:
        disk.truncate(changes.truncate_from)
    if changes.reset_to is not None:
        disk.reset(*changes.reset_to)
    for run in changes.entries:
        disk.append(run)
    return changes.persist_id


def test_what_was_proposed_is_read_without_the_store() -> None:
    disk = disk_of([1, 1])
    log = RaftLog(disk, CODEC, 1 << 20)
    (run,) = log.encode([b"a", b"b"], 2)
    assert log.read(2, 1 << 20) is run
    carry_out(log, disk)
    assert log.read(2, 1 << 20) is run
    assert log.read(3, 1 << 20).first_index == 3


def test_a_log_begun_afresh_is_so_before_the_store_has_done_it() -> None:
    disk = disk_of([1, 1, 1])
    log = RaftLog(disk, CODEC, 1 << 20)
    log.reset(9, 5 * SEGMENT_BYTES)
    changes = log.take_changes()
    assert changes is not None and changes.reset_to == (9, 5 * SEGMENT_BYTES)
    assert (log.first_index, log.first_position, log.last_index) == (9, 5 * SEGMENT_BYTES, 8)
    with pytest.raises(CompactedError):
        log.read(1, 1 << 20)
    disk.reset(*changes.reset_to)
    assert (log.first_index, log.first_position, log.last_index) == (9, 5 * SEGMENT_BYTES, 8)


def test_small_runs_are_read_as_one() -> None:
    disk = disk_of([1])
    log = RaftLog(disk, CODEC, 1 << 20)
    for body in (b"a", b"b", b"c"):
        log.encode([body], 2)
    run = log.read(1, 1 << 20)
    assert (run.first_index, run.last_index) == (1, 3)
    assert [bytes(body) for body in run.bodies()] == [b"a", b"b", b"c"]
    assert log.read(1, 100).last_index == 2
    assert log.read(1, 1, 1).last_index == 1


def test_runs_of_two_segments_are_never_one() -> None:
    log = RaftLog(DLedgerMemoryStore(SEGMENT_BYTES), CODEC, 1 << 20)
    log.encode([b"." * 2000], 1)
    log.encode([b"." * 2500], 1)
    assert log.read(0, 1 << 20).last_index == 0


def test_a_report_of_durability_proves_nothing_about_what_was_cut() -> None:
    """An entry is appended, cut, and appended again under the same term and index.

    1. (5, 2) is handed out and its sync begins. 2. It is cut. 3. An equal (5, 2) is handed out.
    4. The first sync ends: the second copy is not durable yet.
    """
    disk = disk_of([1, 1])
    log = RaftLog(disk, CODEC, 1 << 20)
    entry = run_of([1, 1, 5])[2]
    log.append(entry)
    first = carry_out(log, disk)
    log.truncate(2)
    log.append(entry)
    second = carry_out(log, disk)
    assert first == second == EntryId(5, 2)
    log.persisted(EntryId(5, 2))
    assert log.persisted_index == 1
    log.persisted(EntryId(5, 2))
    assert log.persisted_index == 2


def test_one_report_stands_for_those_before_it() -> None:
    disk = DLedgerMemoryStore(SEGMENT_BYTES)
    log = RaftLog(disk, CODEC, 1 << 20)
    for body in (b"a", b"b"):
        log.encode([body], 1)
        last = carry_out(log, disk)
    assert last is not None
    log.persisted(last)
    assert log.persisted_index == 1


def test_index_outside_the_log_is_refused() -> None:
    disk = disk_of([1] * 80)
    disk.drop_before(SEGMENT_BYTES)
    log = RaftLog(disk, CODEC, 0)
    assert log.first_index > 0
    with pytest.raises(CompactedError):
        log.read(0, 1)
    with pytest.raises(OutOfRangeError):
        log.read(80, 1)


@pytest.mark.parametrize("seed", range(30))
def test_the_log_equals_a_list_of_terms(seed: int) -> None:
    """Random appends, cuts, resets and Ready values, against an obvious model."""
    rng = random.Random(seed)
    disk = DLedgerMemoryStore(SEGMENT_BYTES)
    log = RaftLog(disk, CODEC, rng.choice([0, 500, 1 << 20]))
    first, terms = 0, list[int]()
    for _ in range(200):
        action = rng.random()
        if action < 0.5:
            term = max([1, *terms]) + rng.randint(0, 1)
            count = rng.randint(1, 4)
            log.encode([b"." * rng.choice([1, 300])] * count, term)
            terms += [term] * count
        elif action < 0.65 and terms:
            keep = rng.randrange(len(terms))
            log.truncate(first + keep)
            del terms[keep:]
        elif action < 0.68:
            first += len(terms) + 5
            terms = []
            log.reset(first, (first + 1) * SEGMENT_BYTES)
        else:
            carry_out(log, disk)
            assert (disk.last_index, disk.last_term) == (log.last_index, log.last_term)
            assert disk.end_position == log.end_position
        assert log.last_index == first + len(terms) - 1
        for i, term in enumerate(terms):
            assert log.term_at(first + i) == term
        if terms:
            index = first + rng.randrange(len(terms))
            run = log.read(index, rng.choice([1, 400, 1 << 20]))
            assert run.first_index == index
            assert run.last_index <= log.last_index
            assert [run.term_at(i) for i in range(index, run.last_index + 1)] == terms[
                index - first : run.last_index - first + 1
            ]
