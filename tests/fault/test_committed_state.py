"""Offsets, locks and topics that were answered outlive the leader that answered."""

from pathlib import Path

from tests.fault.committed_state import run


def test_what_a_leader_answered_is_known_by_the_next_one(tmp_path: Path) -> None:
    assert run(tmp_path, 3, print) == []
