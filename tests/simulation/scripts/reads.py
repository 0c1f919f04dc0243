"""A deposed leader that does not know it, and followers, are asked for what others know better."""

from ledgermq.dledger.messages import (
    AppendRequest,
    CommitRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    ReadIndexResponse,
)
from ledgermq.state.errors import BrokerError
from ledgermq.testing.simulation.clients import GROUP, TOPICS
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Held, Stage, group

_QUEUE = (TOPICS[0], 0)


def _commit(stage: Stage, member_id: str, offset: int) -> None:
    """A consumer commits, and is told that its offset is stored."""
    member, told = stage[member_id], list[BrokerError | None]()
    member.enter(member.broker.commit_offset, GROUP, *_QUEUE, offset, told.append)
    stage.until(lambda: told == [None], "the offset is stored")
    stage.world.history.on_offset_acked(GROUP, _QUEUE, offset)


def _ask(stage: Stage, member_id: str) -> None:
    member = stage[member_id]
    member.enter(stage.world.askers.ask, member, _QUEUE)


def _told_count(stage: Stage) -> int:
    return stage.world.counts.get("offset told", 0)


def _depose_n0(stage: Stage) -> None:
    """n1 leads; n0 has no time meanwhile, and hears nothing of it when it has."""
    stage.isolate("n0")
    stage["n0"].pause()
    stage.lead("n1")


def _wake_n0(stage: Stage) -> None:
    """It excuses its majority for the time that it was not there itself."""
    stage["n0"].resume()
    stage.run(1)
    demand(stage.serves("n0"), "n0 serves yet")


def offset_asked_of_a_deposed_leader() -> None:
    """Who asks it waits, and is not answered; the successor answers."""
    stage = group()
    _commit(stage, "n0", 1)
    _ask(stage, "n0")
    stage.until(lambda: _told_count(stage) == 1, "n0 answers")
    _depose_n0(stage)
    _commit(stage, "n1", 5)
    _wake_n0(stage)
    _ask(stage, "n0")
    _ask(stage, "n1")
    stage.until(lambda: _told_count(stage) == 2, "n1 answers")
    stage.until(lambda: not stage.serves("n0"), "n0 notices it")
    stage.heal()
    stage.run(100)
    demand(_told_count(stage) == 2, "n0 gave no answer")
    stage.settle()


def answers_to_an_earlier_round() -> None:
    """Heart beats that were answered before the question say nothing of what came since."""
    stage = group()
    held = [stage.hold(HeartBeatResponse, peer_id, "n0") for peer_id in ("n1", "n2")]
    stage.until(lambda: all(one.letters for one in held), "both have answered a round")
    stage.isolate("n0")
    for peer_id in ("n1", "n2"):
        # Whoever is in the way has closed their connections; the next heart beat is far away.
        stage[peer_id].enter(stage[peer_id].replica.peer_ended, "n0")
    stage.lead("n1")
    _commit(stage, "n1", 5)
    _ask(stage, "n0")
    for one in held:
        one.release()
    stage.run(100)
    demand(stage.serves("n0"), "n0 has heard of its followers")
    stage.settle()
    _ask(stage, "n1")
    stage.until(lambda: _told_count(stage) == 1, "n1 answers")


def answers_to_rounds_of_an_earlier_term() -> None:
    """A leader that leads again counts rounds from one again."""
    stage = group()
    stage.run(4_000)
    stage.hand_over("n0", "n1")
    stage.hand_over("n1", "n0")
    stage.holds_all(*stage.ids)
    _depose_n0(stage)
    _commit(stage, "n1", 5)
    _wake_n0(stage)
    _ask(stage, "n0")
    stage.run(20)
    stage.settle()


def lock_asked_of_a_deposed_leader() -> None:
    """A consumer that gave a queue back to the next leader does not get it from the one before."""
    stage = group()
    lockers, n0, n1 = stage.world.lockers, stage["n0"], stage["n1"]
    n0.enter(lockers.ask, n0, "c1")
    stage.until(lambda: stage.world.counts.get("queue changed hands") == 1, "c1 holds it")
    _depose_n0(stage)
    n1.enter(lockers.give_back, n1, "c1")
    n1.enter(lockers.ask, n1, "c2")
    stage.until(lambda: stage.world.counts.get("queue changed hands") == 2, "c2 holds it")
    _wake_n0(stage)
    n0.enter(lockers.ask, n0, "c1")
    stage.run(100)
    demand(stage.serves("n0"), "n0 does not know yet")
    stage.settle()


def _behind(stage: Stage) -> list[Held]:
    """n2 gets nothing from n0 but answers, from now on, and holds that its leader lives."""
    kinds = (AppendRequest, CommitRequest, HeartBeatRequest)
    return [stage.hold(kind, "n0", "n2") for kind in kinds]


def offset_asked_of_a_follower_that_is_behind() -> None:
    """It answers when it has applied what was stored when it was asked."""
    stage = group()
    _commit(stage, "n0", 1)
    stage.holds_all(*stage.ids)
    held = _behind(stage)
    _commit(stage, "n0", 5)
    _ask(stage, "n2")
    stage.run(200)
    demand(_told_count(stage) == 0, "n2 knows that it is behind")
    for one in held:
        one.release()
    stage.until(lambda: _told_count(stage) == 1, "n2 answers")
    demand(stage.world.counts.get("offset told by a follower") == 1, "as a follower")
    stage.settle()


def offset_asked_while_another_question_is_on_its_way() -> None:
    """What a leader tells of the first question says nothing of what was stored before the next."""
    stage = group()
    _commit(stage, "n0", 1)
    stage.holds_all(*stage.ids)
    answer = stage.hold(ReadIndexResponse, "n0", "n2")
    _ask(stage, "n2")
    stage.until(lambda: bool(answer.letters), "n0 has answered")
    answer.stop()
    held = _behind(stage)
    _commit(stage, "n0", 5)
    _ask(stage, "n2")
    answer.release()
    stage.until(lambda: _told_count(stage) == 1, "n2 answers the first one")
    stage.run(50)
    demand(_told_count(stage) == 1, "the second one waits")
    for one in held:
        one.release()
    stage.until(lambda: _told_count(stage) == 2, "n2 answers")
    stage.settle()


def offset_asked_of_a_follower_of_a_deposed_leader() -> None:
    """Whoever follows a leader that leads no more is told nothing by it, and says what it knows."""
    stage = group(5)
    _commit(stage, "n0", 1)
    stage.holds_all(*stage.ids)
    stage.isolate("n0", "n4")
    stage["n0"].pause()
    stage["n4"].pause()
    stage.lead("n1")
    _commit(stage, "n1", 5)
    stage["n4"].resume()
    stage["n0"].resume()
    stage.run(1)
    demand(stage.serves("n0"), "n0 serves yet")
    _ask(stage, "n4")
    stage.run(1_500)
    demand(_told_count(stage) == 0, "nobody tells n4 that it knows all")
    stage.settle()


def offset_asked_of_a_follower_that_has_started_again() -> None:
    """Its log begins behind the first entry, and what told the state was before its mark."""
    stage = group(segment_bytes=8_192)
    for _ in range(10):
        stage.send_all("n0", body_bytes=1_500)
    stage.run(3_000)
    stage.clean(*stage.ids)
    demand(stage["n2"].store.first_index > 1, "retention removed something")
    stage.run(2_000)
    _commit(stage, "n0", 5)
    stage.holds_all(*stage.ids)
    swept = stage["n2"].broker.state.sweep_index
    stage.restart("n2")
    demand(stage["n2"].broker.state.sweep_index == swept, "n2 knows where the state was told")
    stage.holds_all(*stage.ids)
    _ask(stage, "n2")
    stage.until(lambda: _told_count(stage) == 1, "n2 answers")
    demand(stage.world.counts.get("offset told by a follower") == 1, "as a follower")
    stage.settle()
