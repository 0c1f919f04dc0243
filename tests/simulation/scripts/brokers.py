"""Brokers: queues, queue offsets and group offsets over changes of the leader."""

from typing import Final

from ledgermq.dledger.messages import (
    AppendRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    PushResponse,
    VoteRequest,
)
from ledgermq.state.errors import BrokerError
from ledgermq.testing.simulation.clients import GROUP, TOPICS
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Stage, group

_DAY_MS: Final = 86_400_000


def _tail_of_n1() -> Stage:
    """n1 has entries that n0 has not heard of, so that nobody knows them to be committed."""
    stage = group()
    index = stage.last_index("n0")
    stage.hold(AppendRequest, "n0", "n2")
    stage.hold(PushResponse, "n1", "n0")
    stage.send("n0", 3)
    stage.until(lambda: stage.last_index("n1") == index + 3, "n1 has three more")
    return stage


def queues_after_a_restart() -> None:
    """D14: a member that starts with an uncommitted tail shows nothing of it."""
    stage = _tail_of_n1()
    stage.kill("n0", "n2")
    stage.restart("n1")
    stage.run(1_000)
    stage.read("n1")
    found = stage["n1"].broker.messages.max_offset(TOPICS[0], 0)
    demand(found <= 1, "I20 the queue is ahead of the commit", found)
    stage.settle()


def send_before_the_term_is_open() -> None:
    """A new leader takes no sends before the tail of former terms is committed and dispatched."""
    stage = _tail_of_n1()
    stage.kill("n0")
    lost = stage.hold(AppendRequest, "n1", "n2")
    stage.elect("n1")
    stage.send("n1", 2)
    lost.release()
    stage.lead("n1")
    stage.send_all("n1", 2)
    stage.settle()


def leader_that_wakes_up_deposed() -> None:
    """Sends of a paused leader are not answered for what its successor put in their place."""
    stage = group()
    stage.favorite = "n1"
    stage.restart("n1")
    stage.holds_all(*stage.ids)
    # Answers that come late let n0 believe in its majority for longer than it has one.
    followers = ("n1", "n2")
    answers = [stage.hold((HeartBeatResponse, PushResponse), i, "n0") for i in followers]
    stage.run(550)
    for target in followers:
        stage.hold((HeartBeatRequest, AppendRequest), "n0", target)
    stage.hold(VoteRequest, "n1", "n0")
    stage.send("n0", 4)
    stage.run(600)
    for held in answers:
        held.release()
    stage.run(20)
    stage["n0"].pause()
    stage.until(lambda: stage["n1"].raft.role.name == "CANDIDATE", "n1 waits no longer")
    stage.elect("n1")
    stage.send("n1", 2)
    stage.run(510)
    demand(stage.is_leader("n0"), "n0 leads yet")
    # All that came meanwhile is read in one turn: the next leader, its entries and its commit.
    stage["n0"].resume()
    stage.run(600)
    stage.settle()


def queue_offsets_of_an_earlier_reign() -> None:
    """A leader that leads again numbers on from what others appended meanwhile."""
    stage = group()
    stage.send_all("n0", 2)
    stage.hand_over("n0", "n1")
    stage.send_all("n1", 3)
    stage.hand_over("n1", "n0")
    stage.send_all("n0", 2)
    stage.settle()


def group_offsets_of_a_new_leader() -> None:
    """D15: what a group has committed is known to the next leader, and after restarts."""
    stage = group()
    stage.send_all("n0", 6)
    stage["n0"].broker.commit_offset(GROUP, TOPICS[0], 0, 5, None)
    stage.until(lambda: _offset_at(stage, "n1") == 5, "n1 hears of the offset")
    # Two quick restarts: the first one applies what the log says, the second one need not.
    for _ in range(2):
        stage.restart(*stage.ids)
        stage.run(50)
    stage.lead("n1")
    demand(_offset_at(stage, "n1") == 5, "I25 group offset forgotten")
    stage.run(2_500)
    stage.kill("n1")
    stage.lead("n2")
    demand(_offset_at(stage, "n2") == 5, "I25 group offset forgotten")
    stage.settle()


def _offset_at(stage: Stage, member_id: str) -> int:
    offsets = stage[member_id].broker.state.offsets.all()
    return offsets.get(f"{TOPICS[0]}@{GROUP}", {}).get(0, -1)


def reader_of_a_cut_off_leader() -> None:
    """What a leader that is cut off cannot commit is not read there, nor on its return."""
    stage = group()
    stage.isolate("n0")
    stage.send("n0", 3)
    stage.read("n0")
    stage.lead("n1")
    stage.send_all("n1", 2)
    stage.heal()
    stage.holds_all(*stage.ids)
    for member_id in stage.ids:
        stage.read(member_id)
    stage.settle()


def store_times_over_clocks_that_differ() -> None:
    """Each member's clock is elsewhere, and store times never fall: I38 looks at each record.

    Also where the next leader's log ends with entries that it has not dispatched: it opens its term
    behind them.
    """
    stage = group()
    members = stage.ids * 4
    jumps_ms = (_DAY_MS, 60_000, -_DAY_MS, 3 * _DAY_MS, -5 * _DAY_MS, 1_000)
    for leader_id, next_id, third_id, jump_ms in zip(
        members, members[1:], members[2:], jumps_ms, strict=False
    ):
        stage[leader_id].wall_offset_ms += jump_ms
        stage.send_all(leader_id)
        index = stage.last_index(leader_id)
        held = [
            stage.hold(AppendRequest, leader_id, third_id),
            stage.hold(PushResponse, next_id, leader_id),
        ]
        stage.send(leader_id, 3)
        stage.until(
            lambda m=next_id, i=index + 3: stage.last_index(m) == i, f"{next_id} has the tail"
        )
        stage.isolate(leader_id)
        stage.lead(next_id)
        for one in held:
            one.stop()
        stage.heal()
        stage.send_all(next_id)
        stage.holds_all(*stage.ids)
    stage.settle()


def offsets_that_are_answered() -> None:
    """A commit of an offset is answered when it is committed, also one that is made again, while
    the first is under way or after it was lost with a leadership: I39.
    """
    stage = group()
    errors: list[BrokerError | None] = []

    def commit(member_id: str, offset: int) -> None:
        broker, world = stage[member_id].broker, stage.world

        def done(error: BrokerError | None) -> None:
            errors.append(error)
            if error is None:
                acked = world.history.on_offset_acked
                world.timeline.at(0.0, acked, GROUP, (TOPICS[0], 0), offset)

        assert broker is not None
        broker.commit_offset(GROUP, TOPICS[0], 0, offset, done)
        stage.run(50)

    commit("n0", 1)
    stage.until(lambda: errors == [None], "the first one is answered")
    stage.isolate("n0")
    for offset in (2, 3, 3):
        commit("n0", offset)
    demand(errors == [None], "I39 answered by a leader that is alone", errors)
    stage.lead("n1")
    stage.heal()
    stage.until(lambda: len(errors) == 4, "those that wait are told")
    stage.send_all("n1")
    stage.holds_all(*stage.ids)
    stage.run(1_000)
    stage.hand_over("n1", "n0")
    commit("n0", 3)
    stage.until(lambda: len(errors) == 5, "the last one is answered")
    stage.settle()
