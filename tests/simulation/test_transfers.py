"""The leadership is handed on in the midst of all faults: nothing is lost, the group recovers."""

import random
from typing import ClassVar

import pytest

from ledgermq.dledger.errors import TransferRefusedError
from ledgermq.dledger.member_state import Role
from tests.simulation.cluster import Plan, Simulation

EVERY_MS = 400.0


class TransferSimulation(Simulation):
    """A run in which leaders are asked to hand over all the time."""

    # Transfers that were begun in all runs.
    begun_count: ClassVar[int] = 0

    def run(self) -> None:
        """As in Simulation, with one more kind of event."""
        self._transfers = random.Random(self.plan.seed ^ 0xBA7)
        self._again(self._hand_over, EVERY_MS, self._transfers)
        super().run()

    def _hand_over(self) -> None:
        for member in self.members.values():
            if member.raft is None or member.raft.role is not Role.LEADER or member.paused:
                continue
            target_id = self._transfers.choice(sorted(self.members))
            try:
                member.raft.transfer(target_id, self.now_ms)
            except TransferRefusedError:
                continue
            TransferSimulation.begun_count += 1
            self._work_off(member)


@pytest.mark.parametrize("first_seed", range(0, 120, 20))
def test_every_invariant_holds_while_the_leadership_is_handed_on(first_seed: int) -> None:
    before_count = TransferSimulation.begun_count
    for seed in range(first_seed, first_seed + 20):
        TransferSimulation(Plan.draw(seed)).run()
    assert TransferSimulation.begun_count - before_count >= 20
