"""What counts as replicated where members have different flush modes."""

import pytest
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.replica.config import FlushDiskType
from ledgermq.dledger.replica.flush_modes import FlushModes
from tests.unit.dledger.lab import (
    Lab,
    answer_to,
    append,
    appends_of,
    compare,
    only_push_response,
    run_of,
)

SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH


@pytest.mark.parametrize("leader_is_sync", [True, False])
@pytest.mark.parametrize("is_sync_flush", [True, False])
def test_follower_syncs_when_it_or_its_leader_does(
    leader_is_sync: bool, is_sync_flush: bool
) -> None:
    lab = Lab([1], term=1, is_sync_flush=is_sync_flush)
    (_, entry) = run_of([1, 1])
    request = append(1, entry, EntryId(1, 0), wants_sync=leader_is_sync)
    assert only_push_response(lab.take(request)).is_synced is (leader_is_sync or is_sync_flush)


def test_async_follower_compares_unsynced_for_an_async_leader() -> None:
    lab = Lab([1], term=1, is_sync_flush=False)
    assert not only_push_response(lab.take(compare(1, run_of([1])[0]))).is_synced


@pytest.mark.parametrize("is_sync_flush", [True, False])
def test_leader_asks_for_a_sync_and_counts_what_is_synced(is_sync_flush: bool) -> None:
    """An answer that is not synced is none for a leader with SYNC_FLUSH: it pushes once more."""
    lab = Lab(is_sync_flush=is_sync_flush)
    (request, *_) = appends_of(lab.elect())
    assert request.wants_sync is is_sync_flush
    last_index = request.entries.last_index
    lab.take(answer_to(request, 200, end_index=last_index, is_synced=False))
    assert lab.raft.commit_index == (-1 if is_sync_flush else last_index)
    if is_sync_flush:
        (again, *_) = appends_of(lab.pass_time(1_100))
        lab.take(answer_to(again, 200, end_index=last_index))
        assert lab.raft.commit_index == last_index


def test_modes_that_differ_are_reported_once() -> None:
    lines: list[str] = []

    def note(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    modes = FlushModes("n0", ("n1", "n2"), SYNC)
    globalLogPublisher.addObserver(note)
    try:
        modes.greeted("n1", SYNC)
        assert (lines, modes.difference) == ([], "")
        modes.greeted("n1", ASYNC)
        modes.greeted("n1", ASYNC)
        assert len(lines) == 1 and "n0 has SYNC_FLUSH, n1 has ASYNC_FLUSH" in lines[0]
        assert modes.difference == "flushDiskType differs: n0 SYNC_FLUSH, n1 ASYNC_FLUSH"
        modes.greeted("n1", SYNC)
        assert len(lines) == 2
        assert modes.difference == ""
    finally:
        globalLogPublisher.removeObserver(note)
