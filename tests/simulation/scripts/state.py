"""The broker's replicated state: equal on all members, and never seen before it is committed."""

from typing import Final

from ledgermq.dledger.messages import AppendRequest
from ledgermq.state.errors import BrokerError
from ledgermq.state.queue_locks import QueueKey
from ledgermq.state.topics import TopicConfig
from ledgermq.testing.simulation.clients import GROUP, TOPICS
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Stage, group

# A sweep has begun, and come to its end.
_SWEEP_MS: Final = 25_000


def make_topic(stage: Stage, member_id: str, name: str, queues: int) -> list[BrokerError | None]:
    """The operator makes a topic; returns what becomes of it."""
    broker, world = stage[member_id].broker, stage.world
    told: list[BrokerError | None] = []
    topic = TopicConfig(name, queues, queues)

    def done(error: BrokerError | None) -> None:
        told.append(error)
        if error is None:
            world.timeline.at(0.0, world.tables.on_acked, topic)

    assert broker is not None
    stage[member_id].enter(lambda: broker.state.put_topic(topic, done))
    stage.run(50)
    return told


def _commit(stage: Stage, member_id: str, offset: int) -> list[BrokerError | None]:
    """A consumer commits; returns what it is told."""
    broker, world = stage[member_id].broker, stage.world
    told: list[BrokerError | None] = []

    def done(error: BrokerError | None) -> None:
        told.append(error)
        if error is None:
            world.timeline.at(0.0, world.history.on_offset_acked, GROUP, (TOPICS[0], 0), offset)

    assert broker is not None
    stage[member_id].enter(lambda: broker.commit_offset(GROUP, TOPICS[0], 0, offset, done))
    stage.run(50)
    return told


def _lock(stage: Stage, member_id: str, client_id: str) -> list[object]:
    """A consumer asks for a queue; returns whether it has it."""
    broker = stage[member_id].broker
    told: list[object] = []
    queue = QueueKey(TOPICS[0], "b", 0)
    assert broker is not None
    stage[member_id].enter(
        lambda: broker.state.lock_requests.lock(
            GROUP, [queue], client_id, lambda held, error: told.append(error or bool(held))
        )
    )
    stage.run(50)
    return told


def state_over_a_change_of_leader() -> None:
    """What a leader proposes alone is seen by nobody, there or elsewhere, then or later; what it
    was told is committed is there on every member: I26, I40.
    """
    stage = group(sweep_step_bytes=512)
    demand(make_topic(stage, "n0", "made-1", 3) == [None], "the first one is made")
    demand(_lock(stage, "n0", "c1") == [True], "the first consumer has the queue")
    stage.isolate("n0")
    lost = make_topic(stage, "n0", "made-2", 4)
    lock_lost = _lock(stage, "n0", "c1")
    broker = stage["n0"].broker
    demand(broker.state.topics.find("made-2") is None, "I40 seen before it is committed")
    stage.lead("n1")
    demand(make_topic(stage, "n1", "made-3", 5) == [None], "the third one is made")
    demand(make_topic(stage, "n1", "made-3", 6) == [None], "it is made another")
    # Its holder may count on it.
    demand(_lock(stage, "n1", "c2") == [False], "the queue is the first consumer's")
    stage.heal()
    stage.until(lambda: len(lost) == len(lock_lost) == 1, "those that wait are told")
    demand(lost[0] is not None, "I26 told of a topic that is not made", lost)
    stage.send_all("n1")
    stage.holds_all(*stage.ids)
    for member_id in stage.ids:
        found = stage[member_id].broker.state.topics.find("made-2")
        demand(found is None, "I40 never committed and there", member_id)
    stage.restart(*stage.ids)
    stage.lead("n2")
    demand(make_topic(stage, "n2", "made-4", 7) == [None], "the fourth one is made")
    stage.settle()


def topic_that_is_removed() -> None:
    """It is nowhere, on no member, whatever starts again and whoever leads: I26."""
    stage = group(sweep_step_bytes=512)
    for number in range(6):
        demand(make_topic(stage, "n0", f"made-{number}", 3) == [None], "made", number)
    for number in (0, 3, 5):
        told: list[BrokerError | None] = []
        topic, state = TopicConfig(f"made-{number}", 3, 3), stage["n0"].broker.state
        stage.world.tables.on_removing(topic)
        stage["n0"].enter(state.remove_topic, topic.name, told.append)
        stage.until(lambda told=told: told == [None], "it is removed")
        stage.run(1)
        stage.world.tables.on_removed(topic)
    # Followers hear with the next heart beat that it is committed.
    stage.run(1_000)
    _demand_topics(stage, {"made-1", "made-2", "made-4"})
    stage.restart(*stage.ids)
    stage.lead("n1")
    stage.run(1_000)
    _demand_topics(stage, {"made-1", "made-2", "made-4"})
    stage.kill("n2")
    stage.world.faults.wipe(stage["n2"])
    stage["n1"].enter(stage["n1"].broker.state.begin_sweep)
    stage.start("n2")
    stage.run(3_000)
    stage.holds_all(*stage.ids)
    _demand_topics(stage, {"made-1", "made-2", "made-4"})
    stage.settle()


def _demand_topics(stage: Stage, names: set[str]) -> None:
    for member_id in stage.ids:
        topics = stage[member_id].broker.state.topics.all()
        found = {topic.name for topic in topics if topic.name.startswith("made-")}
        demand(found == names, "I26 other topics", member_id, found)


def changes_in_the_midst_of_a_sweep() -> None:
    """A part of a sweep says what the tables hold at its own place in the log, also where a
    majority is slow and changes wait before it.
    """
    stage = group(sweep_step_bytes=512)
    for number in range(24):
        demand(make_topic(stage, "n0", f"made-{number}", 1) == [None], "made", number)
    broker = stage["n0"].broker
    for number in range(24):
        broker.state.begin_sweep()
        slow = [stage.hold(AppendRequest, "n0", member_id) for member_id in ("n1", "n2")]
        told = make_topic(stage, "n0", f"made-{number}", 2)
        demand(told == [], "committed without a majority", told)
        stage.run(600)
        for one in slow:
            one.release()
        stage.until(lambda told=told: told == [None], "it is made another")
        stage.run(300)
    stage.holds_all(*stage.ids)
    stage.settle()


def changes_while_a_file_is_encoded() -> None:
    """A file is encoded in many steps; a member that stops right after it was written has all
    changes again: what is not in the file stands behind the mark.
    """
    stage = group(file_slice_chars=64)
    for number in range(24):
        demand(make_topic(stage, "n0", f"made-{number:02}", 1) == [None], "made", number)
    for number in range(8):
        flushes = stage["n2"].broker.store.flushes
        stage.send_all("n0")
        stage.until(lambda flushes=flushes: flushes.is_encoding, "n2 encodes a file")
        stage.run(60)
        demand(flushes.is_encoding, "n2 still encodes")
        # What is encoded already, and what is not.
        for name in ("made-00", "made-23"):
            demand(make_topic(stage, "n0", name, 2 + number) == [None], "it is made another", name)
        demand(flushes.is_encoding, "n2 still encodes")
        stage.until(lambda flushes=flushes: flushes.is_idle, "n2 has flushed")
        if number % 2:
            stage.send_all("n0")
            stage.until(lambda flushes=flushes: not flushes.is_idle, "n2 flushes once more")
            stage.until(lambda flushes=flushes: flushes.is_idle, "n2 has flushed once more")
        stage.kill("n2")
        stage.start("n2")
        stage.holds_all(*stage.ids)
        demand(make_topic(stage, "n0", "behind", 2 + number) == [None], "a change behind it")
        stage.run(100)
    stage.settle()


def sweep_whose_leader_is_lost() -> None:
    """One that lacks parts is none: what is before it stays in the log, and a member that has
    nothing but the log knows all.
    """
    stage = group(segment_bytes=4_096, sweep_step_bytes=512)
    for number in range(120):
        demand(make_topic(stage, "n0", f"made-{number}", number + 1) == [None], "made", number)
    for _ in range(12):
        stage.send_all("n0", body_bytes=1_500)
    stage.run(_SWEEP_MS)
    broker = stage["n0"].broker
    stage.until(lambda: broker.state.is_swept, "a sweep is over")
    stage["n0"].enter(broker.state.begin_sweep)
    parts = stage.last_index("n0")
    stage.until(lambda: stage.last_index("n0") > parts + 4, "some parts are in the log")
    demand(not broker.state.is_swept, "the sweep is under way")
    stage.holds_all(*stage.ids)
    stage.kill("n0")
    stage.lead("n1")
    # The queues are flushed, so that nothing else keeps the log.
    stage.run(3_000)
    for _ in range(8):
        stage.clean("n1", "n2")
    stage.start("n0")
    stage.kill("n2")
    stage.world.faults.wipe(stage["n2"])
    stage.start("n2")
    known = stage.commit_index("n1")

    def has_all() -> bool:
        broker = stage["n2"].broker
        return broker is not None and broker.messages.dispatched_index >= known

    stage.until(has_all, "n2 has the log")
    demand(stage["n2"].store.first_index > 0, "retention removed something")
    demand(not stage["n1"].broker.state.is_swept, "nobody has told the state again")
    stage.world.tables.check("n2", stage["n2"].broker.state, known)
    stage.settle()


def state_of_a_member_without_a_log() -> None:
    """A sweep tells the whole state to a member whose log begins behind all former changes, also
    when tables change meanwhile, and a leader is lost in its midst.
    """
    stage = group(segment_bytes=8_192, sweep_step_bytes=512)
    for number in range(12):
        demand(make_topic(stage, "n0", f"made-{number}", number + 1) == [None], "made", number)
        if number % 3 == 0:
            stage.restart("n2")
    demand(_commit(stage, "n0", 7) == [None], "committed")
    stage.run(1_000)
    stage.kill("n0")
    stage.lead("n1")
    stage.start("n0")
    # Changes between the parts of the sweeps.
    for number in range(12, 32):
        demand(make_topic(stage, "n1", f"made-{number % 16}", number) == [None], "made", number)
        stage.run(150)
    for _ in range(24):
        stage.send_all("n1", body_bytes=1_500)
    stage.run(_SWEEP_MS)
    stage.clean(*stage.ids)
    demand(stage["n1"].store.first_index > 0, "retention removed something")
    stage.kill("n2")
    stage.world.faults.wipe(stage["n2"])
    stage.start("n2")
    stage.until(lambda: stage["n2"].raft is not None, "n2 runs")
    stage.holds_all(*stage.ids)
    stage.run(1_000)
    stage.hand_over("n1", "n2")
    demand(make_topic(stage, "n2", "made-last", 3) == [None], "the last one is made")
    stage.settle()
