"""A small part of `make crash-states`, and proof that the looker-on can see."""

import random

import pytest

from ledgermq.dledger.store.errors import StoreError
from tests.fault import crash_states
from tests.fault.recording_disk import RecordedFile, RecordingDisk


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


def test_a_vote_file_whose_names_are_not_synced_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RecordingDisk, "sync_directory", lambda self, directory: None)
    with pytest.raises((AssertionError, StoreError)):
        crash_states.explore_votes(1, 20)


def test_a_cut_tears_and_reorders_what_was_not_synced() -> None:
    disk = RecordingDisk()
    file = disk.create("/d/0", 2048)
    file.sync()
    disk.sync_directory("/d")
    file.buffer[:1024] = b"a" * 1024
    disk.note()
    file.buffer[512:1536] = b"b" * 1024
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
