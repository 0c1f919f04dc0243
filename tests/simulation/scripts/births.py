"""Births: a group is born once, by all of its members; who lacks its birth counts for nothing."""

from collections.abc import Callable
from itertools import permutations

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.messages import (
    AppendRequest,
    BirthReport,
    CompareRequest,
    TruncateRequest,
)
from ledgermq.dledger.store.text_file import seal, unseal
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Stage, group

# From the start of the last member to the birth: messages take a millisecond, syncs none here.
_SOON_MS = 50.0
# Long enough for many rounds of votes, if there are any.
_LONG_MS = 6_000.0
# Steps of a disk in which a member keeps its birth, and more.
_STEPS = 12
_OTHER_ID = "f" * 32


def group_that_waits_for_its_last_member() -> None:
    """Two of three wait, for the third may have a log; when it is there, all three are born."""
    stage = Stage()
    stage.start("n1", "n2")
    stage.run(_LONG_MS)
    for member_id in ("n1", "n2"):
        waits_for = stage[member_id].raft.census.waits_for()
        demand(waits_for == {"n0": "not reached"}, "I36 waits", member_id, waits_for)
        demand(stage[member_id].raft.term == 0, "I36 somebody has asked for votes", member_id)
    began_ms = stage.world.timeline.now_ms
    stage.start("n0")
    stage.until(lambda: len(_agreed_ids(stage)) == 3, "all are born")
    took_ms = stage.world.timeline.now_ms - began_ms
    demand(took_ms < _SOON_MS, "I36 born late", took_ms)
    stage.lead("n0")
    stage.send_all("n0")
    stage.settle()


def two_new_disks_beside_the_log() -> None:
    """Whatever the order in which they start, two empty disks elect nobody beside the third."""
    for order in permutations(("n0", "n1", "n2")):
        stage = group()
        stage.send_all("n0", 3)
        stage.holds_all(*stage.ids)
        stage.kill(*stage.ids)
        contents = {member_id: stage[member_id].disk.wipe() for member_id in ("n1", "n2")}
        for member_id in order:
            stage.start(member_id)
            stage.favorite = member_id
            stage.run(_LONG_MS)
        for member_id in stage.ids:
            demand(not stage.is_leader(member_id), "I6 somebody leads", order, member_id)
            stage.send(member_id)
        stage.run(_LONG_MS)
        demand(stage.acked_count == 4, "I6 somebody takes messages", order, stage.acked_count)
        # One of the disks was not lost for good: it is as if nothing had been.
        stage.kill("n2")
        stage["n2"].disk.put_back(contents["n2"])
        stage.start("n2")
        stage.lead("n2")
        stage.send_all("n2")
        stage.settle()


def two_new_disks_before_the_log_is_there() -> None:
    """They wait for the third; when it comes it says that there is a birth."""
    stage = group()
    stage.kill(*stage.ids)
    for member_id in ("n1", "n2"):
        stage[member_id].disk.wipe()
        stage.start(member_id)
    stage.run(_LONG_MS)
    birth = Birth(_id_on_disk(stage, "n0"), stage.ids, is_agreed=True)
    stage.start("n0")
    stage.run(_LONG_MS)
    for member_id in ("n1", "n2"):
        raft = stage[member_id].raft
        demand(raft.birth is None, "I36 another birth", member_id, raft.birth)
        reason = raft.census.waits_for()["n0"]
        demand(birth.group_id in reason, "I36 it says what it waits for", member_id, reason)
    demand(stage["n0"].raft.birth == birth, "I36 the birth stays", stage["n0"].raft.birth)
    demand(not any(map(stage.is_leader, stage.ids)), "I6 somebody leads")


def new_disk_that_has_the_birth_only() -> None:
    """Its leader has told it of the birth, and dies before it sent an entry: it gives no vote."""
    stage = group()
    stage.isolate("n1")
    stage.send_all("n0", 3)
    stage.holds_all("n0", "n2")
    stage.kill("n2")
    stage.world.faults.wipe(stage["n2"])
    stage.hold((AppendRequest, CompareRequest, TruncateRequest), "n0", "n2")
    stage["n0"].replica.peer_lost("n2")
    stage.start("n2")
    stage.until(lambda: _held_id(stage, "n2") is not None, "n2 is told of the birth")
    stage.kill("n0")
    stage.heal()
    stage.favorite = "n1"
    stage.run(_LONG_MS)
    demand(not stage.is_leader("n1"), "I6 n1 leads without what was acknowledged")
    stage.start("n0")
    stage.lead("n0")
    stage.settle()


def member_that_stops_while_it_is_born() -> None:
    """Wherever each machine stops in it, the group has one birth in the end."""
    for member_id in ("n0", "n1", "n2"):
        for step in range(1, _STEPS + 1):
            stage = Stage()
            stage.start()
            disk = stage[member_id].disk
            stage.until(_runs(stage, member_id), "it runs")
            disk.stop_at = disk.step_count + step
            stage.run(500)
            disk.stop_at = None
            stage.lead("n0")
            stage.send_all("n0")
            stage.settle()
            demand(len(set(_agreed_ids(stage))) == 1, "I36 births", _agreed_ids(stage))


def disk_lost_while_the_group_is_born() -> None:
    """What it had drawn it has told one other: that one tells it in turn; no second id is drawn."""
    stage = Stage()
    to_last = stage.hold(BirthReport, "n0", "n2", lambda m: m.birth is not None)
    from_next = stage.hold(BirthReport, "n1", "n2", lambda m: m.birth is not None)
    stage.start()
    stage.until(lambda: _held_id(stage, "n1") is not None, "n1 holds a birth")
    drawn = _held_id(stage, "n1")
    stage.kill("n0")
    stage["n0"].disk.wipe()
    to_last.stop()
    from_next.stop()
    stage.start("n0")
    stage.lead("n0")
    demand(set(_agreed_ids(stage)) == {drawn}, "I36 births", drawn, _agreed_ids(stage))
    stage.send_all("n0")
    stage.settle()


def report_of_a_former_life() -> None:
    """What a member drew before it lost its disk, and told nobody in time, comes too late."""
    stage = Stage()
    late = [
        stage.hold(BirthReport, "n0", target, lambda m: m.birth is not None, is_copy=False)
        for target in ("n1", "n2")
    ]
    stage.start()
    stage.until(lambda: _held_id(stage, "n0") is not None, "n0 has drawn an id")
    drawn = _held_id(stage, "n0")
    stage.run(20)
    stage.kill("n0")
    stage["n0"].disk.wipe()
    for held in late:
        held.stop()
    # The second life is known to the others, and has not drawn yet.
    second = stage.hold(BirthReport, "n2", "n0")
    stage.start("n0")
    stage.run(400)
    for held in late:
        held.release()
    stage.run(400)
    demand(_held_id(stage, "n1") is None, "I36 n1 believes the dead", drawn)
    second.stop()
    stage.lead("n0")
    demand(drawn not in _agreed_ids(stage), "I36 births", drawn, _agreed_ids(stage))
    stage.send_all("n0")
    stage.settle()


def older_stores_get_a_birth() -> None:
    """Two of three serve as ever; when the third is there, the group gets its birth while it works.

    The stores are as Java leaves them: entries, terms and votes, and no word of a birth.
    """
    stage = _older_group()
    stage.start("n0", "n1")
    stage.lead("n0")
    stage.send_all("n0", 3)
    stage.run(_LONG_MS)
    demand(_held_id(stage, "n0") is None, "I36 n2 may have another one")
    term = stage["n0"].raft.term
    stage.start("n2")
    stage.until(lambda: len(_agreed_ids(stage)) == 3, "all are born")
    demand(len(set(_agreed_ids(stage))) == 1, "I36 births", _agreed_ids(stage))
    demand(stage["n0"].raft.term == term, "I36 the birth has ended a leadership", term)
    stage.send_all("n0", 3)
    stage.holds_all(*stage.ids)
    stage.hand_over("n0", "n2")
    stage.send_all("n2")
    stage.settle()


def leader_of_older_stores_dies_while_they_are_born() -> None:
    """At any moment of it the others go on, and in the end there is one birth."""
    for step in range(1, _STEPS + 1):
        stage = _older_group()
        stage.start("n0", "n1")
        stage.lead("n0")
        stage.start("n2")
        stage.until(_runs(stage, "n2"), "n2 runs")
        disk = stage["n0"].disk
        disk.stop_at = disk.step_count + step
        stage.run(600)
        disk.stop_at = None
        stage.lead("n1")
        stage.send_all("n1")
        stage.settle()
        demand(len(set(_agreed_ids(stage))) == 1, "I36 births", _agreed_ids(stage))


def new_disk_among_older_stores() -> None:
    """It recovers under their leader first, and then the three of them agree on a birth."""
    stage = _older_group()
    stage["n2"].disk.wipe()
    stage.start("n1", "n2")
    stage.favorite = "n2"
    stage.run(_LONG_MS)
    demand(not any(map(stage.is_leader, stage.ids)), "I6 n2 has voted")
    stage.start("n0")
    stage.lead("n0")
    stage.send_all("n0")
    stage.until(lambda: len(_agreed_ids(stage)) == 3, "all are born")
    stage.settle()


def member_that_lost_its_birth() -> None:
    """It has its log and its vote, and counts for nothing before its leader has caught it up."""
    stage = group()
    stage.holds_all(*stage.ids)
    stage.isolate("n1")
    stage.send_all("n0", 3)
    stage.holds_all("n0", "n2")
    stage.kill("n0", "n2")
    _forget_birth(stage, "n2")
    stage.heal()
    stage.start("n2")
    for favorite in ("n2", "n1"):
        stage.favorite = favorite
        stage.run(_LONG_MS)
        demand(not any(map(stage.is_leader, stage.ids)), "I37 a vote without a birth counts")
    stage.start("n0")
    stage.lead("n0")
    stage.until(lambda: not stage["n2"].raft.recovering and _held_id(stage, "n2"), "n2 counts")
    stage.kill("n1")
    stage.send_all("n0")
    stage.settle()


def members_of_two_groups() -> None:
    """A disk of another group: it is refused, and both sides can say which two groups there are."""
    stage = group()
    group_id = _held_id(stage, "n0")
    stage.kill("n2")
    path = f"{stage['n2'].directory}/identity"
    values = unseal(stage["n2"].disk.texts[path])
    stage["n2"].disk.texts[path] = seal({**values, "birth": _OTHER_ID})
    stage.world.births.foreign_ids.add("n2")
    last_index = stage.last_index("n0")
    stage.start("n2")
    stage.send_all("n0", 3)
    stage.favorite = "n2"
    stage.run(_LONG_MS)
    demand(stage.is_leader("n0"), "I37 n0 leads on")
    demand(stage["n2"].raft.leader_id is None, "I37 n2 follows a leader of another group")
    demand(stage.last_index("n2") == last_index, "I37 n2 takes entries of another group")
    for member_id, peer_id, peer_group_id in (("n2", "n0", group_id), ("n0", "n2", _OTHER_ID)):
        found = stage[member_id].replica.refusals.texts()
        is_named = any(peer_id in text and peer_group_id in text for text in found)
        demand(is_named, "I36 both clusters are named", member_id, found)
    stage.kill("n1")
    stage.run(_LONG_MS)
    demand(not stage.is_leader("n0"), "I37 n0 counts n2")
    stage.kill("n2")
    stage.world.faults.wipe(stage["n2"])
    stage.start()
    stage.lead("n0")
    stage.settle()


def group_with_a_java_member() -> None:
    """It has no birth, for Java cannot tell: a majority is enough, as ever."""
    stage = Stage(java_ids=("n2",))
    stage.start("n0", "n2")
    stage.lead("n0")
    stage.send_all("n0", 3)
    stage.start("n1")
    stage.holds_all(*stage.ids)
    demand(not _agreed_ids(stage) and _held_id(stage, "n0") is None, "I36 a birth beside Java")
    stage.kill("n0")
    stage.lead("n1")
    stage.send_all("n1")
    stage.settle()


def _older_group() -> Stage:
    """Three stores with a log, and without a birth; nobody runs."""
    stage = group()
    stage.send_all("n0", 3)
    stage.holds_all(*stage.ids)
    stage.kill(*stage.ids)
    for member_id in stage.ids:
        _forget_birth(stage, member_id)
        stage.world.births.forget(member_id)
    return stage


def _runs(stage: Stage, member_id: str) -> Callable[[], bool]:
    return lambda: stage[member_id].raft is not None


def _forget_birth(stage: Stage, member_id: str) -> None:
    del stage[member_id].disk.texts[f"{stage[member_id].directory}/identity"]


def _held_id(stage: Stage, member_id: str) -> str | None:
    raft = stage[member_id].raft
    birth = raft.birth if raft is not None else None
    return birth.group_id if birth is not None else None


def _agreed_ids(stage: Stage) -> list[str]:
    births = [stage[i].raft.birth for i in stage.ids if stage[i].raft is not None]
    return [birth.group_id for birth in births if birth is not None and birth.is_agreed]


def _id_on_disk(stage: Stage, member_id: str) -> str:
    path = f"{stage[member_id].directory}/identity"
    values = unseal(stage[member_id].disk.texts[path])
    return values["birth"]
