"""Snapshots of the broker's state, flushes without room, and files that are replaced."""

from ledgermq.dledger.messages import AppendRequest
from ledgermq.testing.simulation.clients import RETURNING_TOPIC
from ledgermq.testing.simulation.deliveries import deliver
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.scripts.state import make_topic
from tests.simulation.stage import Choices, Stage, group

_QUEUES = 60


def _snapshot(stage: Stage, member_id: str) -> None:
    """A leader tells the whole state once more."""
    state = stage[member_id].broker.state
    stage[member_id].enter(state.begin_sweep)
    stage.until(lambda: state.is_swept, "the snapshot is told")
    stage.holds_all(*stage.ids)


def entry_in_several_parts() -> None:
    """The offsets of many queues, which a snapshot tells in several parts, are all there, on each
    member and after each restart: I25.
    """
    stage = group(sweep_step_bytes=512, returning_queue_count=_QUEUES)
    demand(make_topic(stage, "n0", RETURNING_TOPIC, _QUEUES) == [None], "it is made")
    operator = stage.world.topic_operator
    stage["n0"].enter(operator.commit_all, stage["n0"], 7)
    stage.run(2_000)
    _snapshot(stage, "n0")
    counts = stage.world.counts
    demand(counts.get("later part of a snapshot's entry", 0) > 3, "it took several parts")
    stage.restart(*stage.ids)
    stage.lead("n1")
    stage["n1"].enter(operator.commit_all, stage["n1"], 8)
    stage.run(2_000)
    _snapshot(stage, "n1")
    stage.hand_over("n1", "n2")
    found = stage["n2"].broker.state.offsets.of_topic("many-queues", RETURNING_TOPIC)
    demand(found == dict.fromkeys(range(_QUEUES), 8), "I25 group offset forgotten", found)
    stage.settle()


def entry_whose_last_parts_are_lost() -> None:
    """A leader that is lost between the parts of an entry has nothing of the entry forgotten: the
    next one has it whole.
    """
    stage = group(sweep_step_bytes=512, returning_queue_count=_QUEUES)
    demand(make_topic(stage, "n0", RETURNING_TOPIC, _QUEUES) == [None], "it is made")
    stage["n0"].enter(stage.world.topic_operator.commit_all, stage["n0"], 7)
    stage.run(2_000)
    counts = stage.world.counts
    begun: set[str] = set()

    def is_behind(message: AppendRequest) -> bool:
        """Whether a push comes behind the one that has the entry's first part."""
        if message.target in begun:
            return True
        if b'"goes_on":true' in bytes(message.entries.data):
            begun.add(message.target)
        return False

    for member_id in ("n1", "n2"):
        stage.hold(AppendRequest, "n0", member_id, is_behind)
    stage["n0"].enter(stage["n0"].broker.state.begin_sweep)
    name = "part of a snapshot's entry that goes on"
    stage.until(lambda: counts.get(name, 0) > 0, "the first part is committed")
    stage.kill("n0")
    stage.lead("n1")
    demand(counts.get("later part of a snapshot's entry", 0) < 5, "the rest is lost")
    stage.settle()


def cursors_that_only_a_snapshot_tells() -> None:
    """A member whose log begins behind all deliveries goes on where they ended: I47."""
    stage = group(segment_bytes=8_192, sweep_step_bytes=512)
    counts = [(0, 2), (1, 3), (18, 1)]
    stage["n0"].enter(deliver, stage["n0"].broker, counts)
    stage.run(100)
    delivered_at = stage.last_index("n0")
    for _ in range(12):
        stage.send_all("n0", body_bytes=1_500)
    _snapshot(stage, "n0")
    for _ in range(12):
        stage.send_all("n0", body_bytes=1_500)
    # The queues are flushed, so that nothing else keeps the log.
    stage.run(3_000)
    for _ in range(3):
        stage.clean("n0", "n1")
    stage.kill("n2")
    stage.world.faults.wipe(stage["n2"])
    stage.start("n2")
    stage.holds_all(*stage.ids)
    stage.run(1_000)
    demand(stage["n2"].store.first_index > delivered_at, "retention took the deliveries")
    stage.hand_over("n0", "n2")
    stage["n2"].enter(deliver, stage["n2"].broker, counts)
    stage.run(100)
    stage.settle()


def flush_on_a_full_disk() -> None:
    """A flush that finds no room is done again as a whole, and no step of the former one comes
    after that.
    """
    stage = group()
    stage.run(3_000)
    disk, member = stage["n1"].disk, stage["n1"]
    for number in range(6):
        disk.free_bytes = 0
        stage.send_all("n0", 2)
        hits = stage.world.counts.get("ENOSPC hit", 0)
        stage.until(lambda h=hits: stage.world.counts.get("ENOSPC hit", 0) > h, "n1 has no room")
        disk.free_bytes = None
        demand(make_topic(stage, "n0", f"made-{number}", 3) == [None], "it is made")
        stage.run(2_500)
        demand(member.broker.failure is None, "n1 goes on", member.broker.failure)
        stage.kill("n1")
        stage.start("n1")
        stage.holds_all(*stage.ids)
    stage.settle()


def power_cut_inside_a_replacement() -> None:
    """What stood in a file is there, or what was to stand there, wherever its replacement stops."""
    for wanted in ("write_text", "sync_text", "rename", "sync_directory"):
        stage = group(member_count=1)
        stage.run(1_500)
        disk = stage["n0"].disk
        stops: list[str] = []

        def stops_in(kind: str, path: str, wanted: str = wanted, stops: list[str] = stops) -> bool:
            is_wanted = kind == wanted and path.startswith("/store/dledger-n0")
            stops += [path] if is_wanted else []
            return is_wanted

        disk.stops_in = stops_in
        # It votes for itself in its next term.
        stage.restart("n0")
        stage.until(lambda stops=stops: bool(stops), "n0 stops")
        disk.stops_in = lambda kind, path: False
        # The names that changed are on disk, and no byte of what was not synced.
        disk._rng = Choices(0.0, 0)
        stage["n0"].end(is_power_cut=True)
        stage.start("n0")
        stage.settle()


def power_cut_right_after_a_vote() -> None:
    """A vote that was answered stands on disk under its name: no member votes twice in a term."""
    stage = group()
    stage.isolate("n0")
    stage.kill("n0")
    disk = stage["n1"].disk
    # What was replaced before that is on disk.
    disk.sync_directory(stage["n1"].directory)
    stage.elect("n2")
    stage.cut_power("n1")
    stage.isolate("n2")
    stage.start("n0", "n1")
    stage.favorite = "n0"
    stage.until(lambda: stage.is_leader("n0"), "n0 leads in a later term")
    stage.settle()


def older_copy_of_a_state_file() -> None:
    """A file that is older than the checkpoint is not believed: what it lacks is made again from
    the log, and its member knows all when it leads.
    """
    stage = group()
    for number in range(3):
        demand(make_topic(stage, "n0", f"made-{number}", 3) == [None], "it is made")
        stage.run(3_000)
    stage.kill("n2")
    disk, path = stage["n2"].disk, "/store/config/topics.json"
    demand(disk.older_texts[path] != disk.texts[path], "there is an older one")
    disk.texts[path] = disk.older_texts[path]
    stage.start("n2")
    stage.run(2_000)
    stage.hand_over("n0", "n2")
    for number in range(3):
        found = stage["n2"].broker.state.topics.find(f"made-{number}")
        demand(found is not None, "I26 configuration lost", number)
    stage.settle()


def sectors_that_cannot_be_read() -> None:
    """A read that fails is damage: the member gets the entries from the others, and loses none."""
    stage = group(segment_bytes=8_192)
    for _ in range(8):
        stage.send_all("n0", body_bytes=1_500)
    stage.holds_all(*stage.ids)
    stage.run(3_000)
    stage.kill("n2")
    victim = stage["n2"]
    stage.world.raft_watch.on_lost(victim, victim.durable_end()[0])
    for path in sorted(victim.disk.files):
        if "/data/" in path:
            victim.disk.files[path].fail_reads(1_024)
    victim.suspect("a read failed")
    stage.start("n2")
    stage.send_all("n0")
    stage.holds_all(*stage.ids)
    stage.settle()
