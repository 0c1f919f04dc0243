"""A small part of `make crash-states`, and proof that the looker-on can see."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.store.errors import StoreError
from ledgermq.dledger.store.file_store import DLedgerMmapFileStore
from ledgermq.dledger.store.segment import Segment
from ledgermq.dledger.store.segments import Segments
from tests.fault import crash_states
from tests.fault.recording_disk import RecordedFile, RecordingDisk
from tests.fault.second_thread import SecondThread
from tests.fault.store_workload import Workload


@pytest.mark.parametrize("name", crash_states.EXPLORERS)
def test_every_state_that_a_power_cut_may_leave_is_recovered(name: str) -> None:
    explore, _, states_max = crash_states.EXPLORERS[name]
    explorer = explore(1, states_max)
    assert explorer.count > explorer.points


def test_a_claim_that_retention_wrote_anew_is_void_after_a_truncation() -> None:
    """Entries had been synced, old segments went, the entries were cut, and others not yet synced
    stood in their place when the power went: a torn tail, which was taken for damage.
    """
    assert crash_states.explore_recovery(378, 60).count


def test_a_ledger_that_does_not_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordedFile, "sync", lambda self: None)
    with pytest.raises((AssertionError, StoreError)):
        crash_states.explore_ledger(1, 20)


def test_entries_are_appended_while_a_sync_runs() -> None:
    rng = random.Random(1)
    disk, second = RecordingDisk(parts=rng), SecondThread(rng)
    disk.on_let_go = second.let_go
    workload = Workload(disk, 1, second)
    workload.run(60)
    assert workload.beside_count


def test_a_claim_taken_after_the_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark names what was appended while the sync ran."""
    begin_sync = DLedgerMmapFileStore.begin_sync

    def begin(store: DLedgerMmapFileStore) -> DiskJob | None:
        job = begin_sync(store)
        covered = type(store._claims).covered
        claims: Any = store._claims
        claims.covered = lambda _: covered(claims, store.last_index)
        return job

    monkeypatch.setattr(DLedgerMmapFileStore, "begin_sync", begin)
    assert _is_found_out(crash_states.explore_ledger)


def test_a_sync_that_covers_what_was_written_meanwhile_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next sync leaves out the files of entries that came while this one ran."""
    begin_sync = Segments.begin_sync

    def begin(segments: Segments) -> DiskJob | None:
        job = begin_sync(segments)
        if job is None:
            return None

        def end() -> None:
            for segment in segments._open.values():
                segment.covered = segment.written

        return DiskJob(job.run, end)

    monkeypatch.setattr(Segments, "begin_sync", begin)
    assert _is_found_out(crash_states.explore_ledger)


def test_a_write_that_counts_before_it_is_done_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that syncs finds a file to be written, and takes its mark away, while the bytes
    are still on their way.
    """

    def write(segment: Segment, offset: int, data: bytes | bytearray | memoryview) -> None:
        segment.written += 1
        segment._file.write(offset, data)

    def sync(segment: Segment) -> None:
        segment.covered = segment.written
        segment._file.sync()
        segment._sync_name()

    begin_sync = Segments.begin_sync

    def begin(segments: Segments) -> DiskJob | None:
        job = begin_sync(segments)
        return None if job is None else DiskJob(job.run)

    monkeypatch.setattr(Segment, "write", write)
    monkeypatch.setattr(Segment, "sync", sync)
    monkeypatch.setattr(Segments, "begin_sync", begin)
    assert _is_found_out(crash_states.explore_ledger)


def _is_found_out(explore: Callable[[int, int], object]) -> bool:
    for seed in range(5, 25):
        try:
            explore(seed, 8)
        except (AssertionError, StoreError):
            return True
    return False


def test_a_vote_file_whose_names_are_not_synced_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RecordingDisk, "sync_directory", lambda self, directory: None)
    with pytest.raises((AssertionError, StoreError)):
        crash_states.explore_votes(1, 20)


def test_a_cut_tears_and_reorders_what_was_not_synced() -> None:
    disk = RecordingDisk()
    file = disk.reserve("/d/0", 2048)
    file.sync()
    disk.sync_directory("/d")
    file.write(0, b"a" * 1024)
    disk.note()
    file.write(512, b"b" * 1024)
    states = {state["/d/0"] for state in disk.states(1000, random.Random(0))}
    old, first, second = bytes(512), b"a" * 512, b"b" * 512
    assert states == {
        one + two + three + old
        for one in (old, first)
        for two in (old, first, second)
        for three in (old, second)
    }


def test_a_name_is_there_or_not_until_its_directory_is_synced() -> None:
    disk = RecordingDisk({"/d/x": b"old"})
    found: set[frozenset[tuple[str, bytes]]] = set()
    disk.on_point = lambda kind: found.update(
        frozenset(state.items()) for state in disk.states(1000, random.Random(0))
    )
    disk.replace("/d/x", b"new")
    named = {dict(state).get("/d/x") for state in found}
    assert named == {b"old", b"new"}
    assert {dict(state).get("/d/x.tmp") for state in found} == {None, b"", b"\0\0\0", b"new"}
    assert [dict(state) for state in disk.states(9, random.Random(0))] == [{"/d/x": b"new"}]
