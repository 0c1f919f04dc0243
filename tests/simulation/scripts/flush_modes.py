"""Members of one group with different flush modes: what a leader with SYNC_FLUSH counts."""

from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Stage, group


def _mixed_group(*async_ids: str) -> Stage:
    stage = group(async_ids=async_ids)
    for member_id in async_ids:
        stage[member_id].sync_ms = 200.0
    return stage


def async_followers_of_a_sync_leader() -> None:
    """Both followers are in ASYNC_FLUSH: nothing is acknowledged before one of them has synced, and
    a power cut of all members loses nothing of it.
    """
    stage = _mixed_group("n1", "n2")
    before = stage.acked_count
    stage.send("n0", 2)
    stage.run(100)
    demand(stage.last_index("n1") == stage.last_index("n0"), "the followers have the entries")
    demand(stage.acked_count == before, "I8 acknowledged before a follower has synced")
    stage.until(lambda: stage.acked_count == before + 2, "a follower has synced")
    stage.cut_power("n0", "n1", "n2", keeps=lambda path, at: False)
    stage.start()
    stage.settle()


def one_async_follower_holds_nothing_up() -> None:
    """The other follower is in SYNC_FLUSH and quick."""
    stage = _mixed_group("n2")
    before = stage.acked_count
    stage.send("n0", 2)
    stage.run(50)
    demand(stage.acked_count == before + 2, "acknowledged with the quick follower")
    stage.settle()
