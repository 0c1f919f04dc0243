"""Disks: what is lost, damaged, wiped, full or broken, and what a member may say after that."""

from collections.abc import Callable

from ledgermq.dledger.messages import AppendRequest
from ledgermq.testing.simulation.disk import SECTOR_BYTES
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.scripts.pushes import two_tails
from tests.simulation.stage import Stage, group


def power_cut_of_all() -> None:
    """D1: all machines lose all that was not synced; what was acknowledged is there."""
    stage = group()
    stage.send_all("n0", 5)
    stage.cut_power(*stage.ids)
    stage.start()
    stage.lead("n1")
    demand(stage.acked_count == 6, "six sends were acknowledged", stage.acked_count)
    stage.settle()


def power_cut_inside_a_roll() -> None:
    """D6: a blank with a torn entry behind it is no part of the log: who took it for one placed
    the next entry where nobody else did, and led for ever without a follower.
    """
    segment_bytes, roll_bytes = 8192, 2_500
    stage = group(segment_bytes=segment_bytes)
    store = stage["n0"].store
    while store.end_position < segment_bytes - roll_bytes:
        stage.send_all("n0", body_bytes=720)
    stage.holds_all(*stage.ids)
    # The next segment is made ahead.
    stage.run(1_000)
    end = store.end_position
    for member_id in stage.ids:
        stage[member_id].sync_ms = 500.0
    stage.send("n0", body_bytes=roll_bytes)
    stage.run(20)
    demand(store.position_at(store.last_index) == segment_bytes, "n0 has rolled")
    blank, head = f"{store.directory}/data/{0:020d}", f"{store.directory}/data/{segment_bytes:020d}"
    kept = {(blank, end - end % SECTOR_BYTES), (head, 0)}
    stage.cut_power("n0", keeps=lambda name, at: (name, at) in kept)
    stage.cut_power("n1", "n2", keeps=lambda name, at: False)
    for member_id in stage.ids:
        stage[member_id].sync_ms = 1.0
    stage.start()
    stage.lead("n0")
    stage.settle()


def power_cut_right_after_the_ack() -> None:
    """D1: those whose disks are slow acknowledge nothing that they could lose."""
    stage = group()
    for member_id in stage.ids:
        stage[member_id].sync_ms = 500.0
    stage.send("n0")
    stage.run(400)
    stage.cut_power(*stage.ids)
    stage.start()
    stage.settle()


def sync_that_fails() -> None:
    """D1, D11: an error of a sync ends the member, another one leads; nothing is asked twice."""
    stage = group()
    stage["n0"].disk.sync_errors = 1
    _fail_and_follow(stage)
    stage.cut_power("n0")
    stage.send_all("n1", 2)
    stage.start("n0")
    stage.settle()


def write_that_fails() -> None:
    """D11: an error of a write ends the member; what was done of it is cut away, and no damage."""
    stage = group()
    stage["n0"].disk.write_errors = 1
    _fail_and_follow(stage)
    stage.send_all("n1", 2)
    stage.settle()
    demand("damage found at start" not in stage.world.counts, "a part of a write is no damage")


def _fail_and_follow(stage: Stage) -> None:
    """The disk of the leader n0 fails with the next message; n1 leads after it."""
    stage.favorite = "n1"
    stage.send("n0")
    stage.run(20)
    demand(not stage.is_leader("n0"), "I33 n0 leads on a disk that failed")
    stage.lead("n1")


def page_lost_by_a_failed_sync() -> None:
    """D1: what a failed sync has lost counts as clean; it is written anew before it is counted."""
    stage = group()
    stage["n1"].disk.sync_errors = 1
    stage.isolate("n2")
    stage.send("n0", 3)
    stage.run(20)
    demand(stage["n1"].raft is None, "I33 n1 goes on after its disk has failed")
    stage.until(lambda: stage.acked_count == 4, "n1 comes back and acknowledges")
    stage.cut_power("n0", "n1")
    stage.start("n1")
    stage.heal()
    stage.lead("n1")
    demand(stage.commit_index("n1") >= 5, "I6 n1 has what it acknowledged")
    stage.settle()


def truncated_tail_after_a_kill() -> None:
    """D6: what a push has cut away does not come back behind the entries in its place."""
    stage = _half_replaced_tail()
    stage.kill("n0")
    stage.start("n0")
    stage.settle()


def checkpoint_during_a_sync() -> None:
    """D1: the durable mark names what its sync covered: a torn tail behind it is no damage."""
    stage = group()
    stage.send_all("n0")
    stage.run(2_000)
    stage["n0"].sync_ms = 700.0
    marked = stage["n0"].durable_end()[0]
    for _ in range(60):
        stage.send("n0")
        stage.run(100)
        if stage["n0"].durable_end()[0] != marked:
            break
    demand(stage["n0"].durable_end()[0] > marked, "a mark was written")
    damaged: list[str] = []
    stage["n0"].on_damage = lambda member, error: damaged.append(str(error))
    stage.cut_power("n0", keeps=lambda name, at: False)
    stage["n0"].sync_ms = 1.0
    stage.start("n0")
    demand(not damaged, "I31 a torn tail is taken for damage", damaged)
    stage.settle()


def truncated_tail_after_a_power_cut() -> None:
    """D6: the cut is on disk before anything that takes its place can be."""
    # What takes its place ends with a sector, so that the next one can be lost alone.
    end = _half_replaced_tail()["n0"].store.end_position
    stage = _half_replaced_tail(sync_ms=500.0, body_bytes=40 + -end % SECTOR_BYTES)
    store = stage["n0"].store
    end = store.end_position
    demand(end % SECTOR_BYTES == 0, "it ends with a sector", end)
    path = f"{store.directory}/data/{0:020d}"
    stage.cut_power("n0", keeps=lambda name, at: name != path or at < end)
    stage.start("n0")
    stage.settle()


def _half_replaced_tail(*, sync_ms: float = 1.0, body_bytes: int = 40) -> Stage:
    """n0 gets the first frame of another history over its own tail, and no more."""
    stage = two_tails(body_bytes)
    stage.start("n1")
    stage.lead("n1")
    stage.holds_all("n1", "n2")
    store = stage["n0"].store
    common = next(i for i in range(100) if store.term_at(i + 1) != stage.term_at("n1", i + 1))
    stage["n0"].sync_ms = sync_ms
    stage.hold(AppendRequest, "n1", "n0", lambda m: m.entries.first_index > common + 1)
    tail = stage.last_index("n0")
    stage.heal()
    stage.until(lambda: common < store.last_index < tail, "n0 begins to replace its tail")
    return stage


def damaged_member_asked_for_a_vote() -> None:
    """D7: a member whose acknowledged entries rotted gives no vote to one that lacks them."""
    _member_without_its_acks(_rot_entry)


def damaged_member_after_another_restart() -> None:
    """D7: that a member must recover is remembered over restarts."""
    _member_without_its_acks(_rot_entry, restarts=2)


def mark_of_a_damaged_member_that_cannot_be_read() -> None:
    """D7: a file that cannot be read is not one that is missing: the member recovers on."""

    def damage(stage: Stage, member_id: str) -> None:
        _rot_entry(stage, member_id)
        member = stage[member_id]
        # Its end is cut, and the mark says so.
        stage.start(member_id)
        stage.run(1)
        stage.kill(member_id)
        member.disk.unreadable_texts.add(f"{member.directory}/repair")

    _member_without_its_acks(damage)


def wiped_member_asked_for_a_vote() -> None:
    """D8: a member with a new disk gives no vote to one that lacks what it acknowledged."""
    _member_without_its_acks(lambda stage, member_id: stage.world.faults.wipe(stage[member_id]))


def wiped_member_that_caught_up_in_part() -> None:
    """D8: a member with a new disk counts no sooner than it holds again what it acknowledged."""
    stage = group()
    stage.isolate("n1")
    stage.send_all("n0", 3)
    stage.holds_all("n0", "n2")
    index = stage.last_index("n0")
    stage.kill("n2")
    stage.world.faults.wipe(stage["n2"])
    stage.hold(AppendRequest, "n0", "n2", lambda m: m.entries.first_index > index)
    stage["n0"].replica.peer_lost("n2")
    stage.start("n2")
    stage.run(3_000)
    stage.kill("n0")
    stage.heal()
    stage.favorite = "n1"
    stage.run(5_000)
    demand(not stage.is_leader("n1"), "I6 n1 leads without what was acknowledged")
    stage.start("n0")
    stage.lead("n0")
    stage.settle()


def disk_lost_again_while_its_member_recovers() -> None:
    """D8: what was committed while a member recovered says nothing for the disk that it has got
    since.
    """
    stage = group()
    stage.send_all("n0")
    stage.kill("n1")
    stage.world.faults.wipe(stage["n1"])
    # It says that it recovers, and cannot come to its end.
    held = stage.hold(AppendRequest, "n0", "n1")
    stage.start("n1")
    stage.run(500)
    demand(_recovers(stage, "n1"), "n1 recovers")
    stage.send_all("n0")
    stage.holds_all("n0", "n2")
    stage.kill("n1")
    stage.world.faults.wipe(stage["n1"])
    held.release()
    stage.kill("n2")
    stage.start("n1")
    index = stage.last_index("n0")
    stage.until(lambda: stage.last_index("n1") >= index, "n1 has the log")
    stage.run(5_000)
    demand(_recovers(stage, "n1"), "I13 n1 counts without proof")
    stage.start("n2")
    stage.settle()
    demand(not _recovers(stage, "n1"), "n1 counts again")


def _recovers(stage: Stage, member_id: str) -> bool:
    raft = stage[member_id].raft
    return raft is not None and raft.recovering


def _member_without_its_acks(damage: Callable[[Stage, str], None], restarts: int = 1) -> None:
    """n0 and n2 have what is acknowledged; n2 loses it, n0 goes: n1 must not lead without it."""
    stage = group()
    stage.isolate("n1")
    stage.send_all("n0", 3)
    stage.holds_all("n0", "n2")
    # The marks on disk follow within some seconds.
    stage.run(3_000)
    stage.kill("n2")
    damage(stage, "n2")
    stage.kill("n0")
    stage.heal()
    stage.favorite = "n1"
    for _ in range(restarts):
        stage.kill("n2")
        stage.start("n2")
        stage.run(100)
    stage.run(5_000)
    demand(not stage.is_leader("n1"), "I6 n1 leads without what was acknowledged")
    demand(not stage.is_leader("n2"), "I13 n2 leads without what it acknowledged")
    stage.start("n0")
    stage.lead("n0")
    stage.settle()


def _rot_entry(stage: Stage, member_id: str) -> None:
    """A byte of the body of the last entry that the store vouches for is another one."""
    member = stage[member_id]
    index, end = member.durable_end()
    demand(index > 1, "the store vouches for something", index)
    member.disk.files[f"{member.directory}/data/{0:020d}"].rot(end - 1, 1)
    stage.world.raft_watch.on_lost(member, index)


def rot_of_an_entry() -> None:
    """D6, D7: flipped bytes are found at the start, and repaired by the others."""
    stage = group()
    stage.send_all("n0", 3)
    stage.run(3_000)
    stage.kill("n2")
    _rot_entry(stage, "n2")
    stage.start("n2")
    stage.run(3_000)
    stage.settle()


def index_that_is_gone() -> None:
    """D14: an index that is made again from the log is the one that was there."""
    stage = group()
    stage.send_all("n0", 3)
    stage.run(3_000)
    stage.kill("n2")
    disk = stage["n2"].disk
    for names in (disk.files, disk.durable_names):
        for name in [name for name in names if "n2/index/" in name]:
            del names[name]
    stage.start("n2")
    stage.run(1_000)
    stage.settle()


def follower_behind_the_first_entry() -> None:
    """D9: a follower that lacks what retention removed is begun afresh."""
    stage = group(segment_bytes=4_096)
    stage.kill("n2")
    for _ in range(10):
        stage.send_all("n0", body_bytes=1_500)
    stage.run(3_000)
    stage.clean("n0", "n1")
    first_index = stage["n0"].store.first_index
    demand(first_index > 1, "retention removed something", first_index)
    stage.start("n2")
    stage.settle()


def retention_before_the_mark() -> None:
    """D9: the disk is full when much was dispatched and is not flushed: the log waits for it."""
    segment_bytes = 4_096
    stage = group(segment_bytes=segment_bytes)
    # n2 flushes half a second before n0 tells the state again.
    stage.run(500)
    stage.restart("n2")
    stage.run(2_000)
    messages, state = stage["n2"].broker.messages, stage["n2"].broker.state
    flushed = messages._ages.flushed_position
    stage.send_all("n0")
    stage.until(lambda: messages._ages.flushed_position > flushed, "n2 flushes")
    for _ in range(6):
        stage.send_all("n0", body_bytes=1_500)
    store = stage["n2"].store
    stage["n0"].enter(stage["n0"].broker.state.begin_sweep)

    def is_ahead() -> bool:
        if state.sweep_index < 0:
            return False
        told = store.position_at(state.sweep_index)
        return bool(told - messages._ages.flushed_position > segment_bytes)

    stage.until(is_ahead, "the state is told again, and n2 has not flushed it")
    stage.clean("n2")
    stage.cut_power("n2")
    stage.start("n2")
    stage.run(3_000)
    stage.clean("n2")
    demand(stage["n2"].store.first_index > 0, "retention removed something")
    stage.settle()


def queue_whose_messages_are_all_gone() -> None:
    """D9, D14: retention has removed all messages of a queue; its numbers go on, also on a member
    that never saw them.
    """
    stage = group(segment_bytes=4_096)
    stage.kill("n2")
    stage.send_all("n0", 2, topic_at=1)
    for _ in range(10):
        stage.send_all("n0", body_bytes=1_500)
    stage.run(3_000)
    stage.clean("n0", "n1")
    demand(stage["n0"].store.first_index > 4, "retention removed the queue's messages")
    stage.start("n2")
    stage.until(lambda: stage.last_index("n2") == stage.last_index("n0"), "n2 has the log")
    stage.run(2_500)
    stage.restart(*stage.ids)
    for member_id in ("n2", "n1"):
        stage.favorite = member_id
        stage.restart("n0")
        stage.lead(member_id)
        stage.send_all(member_id, topic_at=1)
        stage.kill(member_id)
        stage.start(member_id)
    stage.settle()


def full_disk_of_the_leader() -> None:
    """D11: a leader without room for a segment makes way, and comes back when there is room."""
    stage = group(segment_bytes=4_096)
    stage["n0"].disk.free_bytes = 0
    stage.favorite = "n1"
    for _ in range(6):
        stage.send("n0", body_bytes=1_500)
    stage.until(lambda: stage.serves("n1"), "n1 takes over")
    stage.send_all("n1", 3)
    stage["n0"].disk.free_bytes = None
    stage.settle()
