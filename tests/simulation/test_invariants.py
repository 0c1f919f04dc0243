"""The watcher is watched: faults planted into a run must be seen."""

import importlib
import random

import pytest

from ledgermq.dledger.errors import BrokenInvariantError
from ledgermq.dledger.log import RaftLog
from ledgermq.dledger.messages import VoteRequest, VoteResult
from ledgermq.dledger.quorum import QuorumAckChecker, majority_index
from ledgermq.dledger.storage import HardState
from ledgermq.dledger.votes import Verdict, Voter
from tests.simulation import disk
from tests.simulation.cluster import Plan, Simulation

SEEDS = 150


def is_seen(monkeypatch: pytest.MonkeyPatch, target: object, name: str, planted: object) -> bool:
    owner = importlib.import_module(target) if isinstance(target, str) else target
    monkeypatch.setattr(owner, name, planted)
    for seed in range(SEEDS):
        try:
            Simulation(Plan.draw(seed)).run()
        except (AssertionError, BrokenInvariantError):
            return True
    return False


def test_sync_that_does_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledged before durable: a power cut takes what was committed."""

    def lose_all(self: disk.SimDisk, rng: random.Random) -> None:
        kept = min(self.synced_index, max(self.first_index - 1, self.last_index - 3))
        del self.entries[kept + 1 - self.first_index :]
        self.last_index = self.synced_index = kept
        self.checkpoint = self.synced_checkpoint = min(self.checkpoint, kept)

    assert is_seen(monkeypatch, disk.SimDisk, "lose_unsynced", lose_all)


def test_forgotten_vote_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def save(self: disk.SimDisk, state: HardState) -> None:
        self.hard_state = HardState(max(state.term - 1, 0))

    assert is_seen(monkeypatch, disk.SimDisk, "save", save)


def test_own_copy_counted_before_it_is_durable_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_changes(self: RaftLog) -> object:
        changes = original(self)
        self.persisted_index = self.last_index
        return changes

    original = RaftLog.take_changes
    assert is_seen(monkeypatch, RaftLog, "take_changes", take_changes)


def test_old_term_entries_counted_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit_index(
        self: QuorumAckChecker, match_indexes: list[int], *, commit_index: int, **_: object
    ) -> int:
        return max(commit_index, majority_index(match_indexes, len(match_indexes) // 2 + 1))

    assert is_seen(monkeypatch, QuorumAckChecker, "commit_index", commit_index)


def test_vote_for_a_shorter_log_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(request: VoteRequest, voter: Voter) -> Verdict:
        if request.term < voter.term or voter.voted_for not in (None, request.sender):
            return Verdict(VoteResult.REJECT_ALREADY_VOTED, voter.term)
        return Verdict(VoteResult.ACCEPT, voter.term)

    assert is_seen(monkeypatch, "ledgermq.dledger.election", "judge_vote", judge)
