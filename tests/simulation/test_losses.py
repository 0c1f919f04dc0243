"""What a member held when it lost its disk is remembered: no more, and no less."""

import pytest

from ledgermq.dledger.messages import PushResponse
from ledgermq.testing.simulation.invariants import Violation
from tests.simulation.mutation import planted
from tests.simulation.planted_mistakes import MUTATIONS
from tests.simulation.stage import Stage, group

ACK_BEFORE_SYNC = next(mutation for mutation in MUTATIONS if mutation.name == "M3")


def group_with_a_new_disk() -> Stage:
    """n2 lost its disk, and has recovered."""
    stage = group()
    stage.send_all("n0", 3)
    stage.run(3_000)
    stage.kill("n2")
    stage.world.faults.wipe(stage["n2"])
    stage.start("n2")
    stage.until(lambda: "RECOVERING left" in stage.world.counts, "n2 is whole")
    stage.holds_all(*stage.ids)
    return stage


def test_a_member_that_once_lost_its_disk_is_judged_like_any_other() -> None:
    stage = group_with_a_new_disk()
    stage.isolate("n1")
    for member_id in ("n0", "n2"):
        stage[member_id].sync_ms = 100.0
    with planted(ACK_BEFORE_SYNC), pytest.raises(Violation, match=r"I(8|11) .*"):
        stage.send_all("n0")
    stage = group_with_a_new_disk()
    stage.isolate("n1")
    stage.send_all("n0", 3)
    stage.settle()


def test_what_it_acknowledged_before_may_still_be_counted() -> None:
    stage = group()
    stage.isolate("n1")
    stage.run(3_000)
    late = stage.hold(PushResponse, "n2", "n0")
    stage.send("n0", 2)
    stage.run(50)
    index = stage.last_index("n0")
    assert late.letters and stage.commit_index("n0") < index
    stage.kill("n2")
    stage.world.faults.wipe(stage["n2"])
    late.release()
    stage.until(lambda: stage.commit_index("n0") == index, "n0 counts what n2 had")
    stage.heal()
    stage.start("n2")
    stage.settle()
