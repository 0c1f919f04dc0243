"""Members with another list than their group agreed on, and members whose disks hang."""

from ledgermq.dledger.store.text_file import seal, unseal
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Stage, group

_LONG_MS = 8_000


def start_with_another_list() -> None:
    """It is refused before anything runs, whatever the list; with its own the member goes on."""
    stage = group()
    settings = stage.world.faults.settings
    for ids in (("n2",), ("n1", "n2"), ("n0", "n1", "n2", "n9"), ("n0", "n2", "n9")):
        refused = "start with another member list refused"
        before = stage.world.counts.get(refused, 0)
        settings.give(stage["n2"], ids, 2_000)
        stage.run(1_500)
        demand(stage.world.counts.get(refused, 0) > before, "I48 it is refused", ids)
        stage.send_all("n0")
        stage.run(2_000)
    stage.holds_all(*stage.ids)
    stage.settle()


def _with_another_list(*, is_greeted: bool) -> Stage:
    """n2 has another list on its disk and in its configuration: one member more."""
    stage = group()
    member = stage["n2"]
    stage.kill("n2")
    path = f"{member.directory}/identity"
    values = unseal(member.disk.texts[path])
    own_ids = (*stage.ids, "n9")
    member.disk.texts[path] = seal({**values, "members": ";".join(own_ids)})
    member.configured_ids, member.takes_any_list = own_ids, True
    stage.world.network.ignores_lists = is_greeted
    stage.start("n2")
    stage.run(2_000)
    return stage


def _mend(stage: Stage) -> None:
    stage.kill("n2")
    member = stage["n2"]
    path = f"{member.directory}/identity"
    values = unseal(member.disk.texts[path])
    member.disk.texts[path] = seal({**values, "members": ";".join(stage.ids)})
    member.configured_ids, member.takes_any_list = stage.ids, False
    stage.world.network.ignores_lists = False
    stage.settle()


def connection_of_another_list() -> None:
    """Neither side uses a connection to a member with another list: I48."""
    stage = _with_another_list(is_greeted=False)
    links = stage.world.network.listening
    demand("n2" not in links["n0"].open_links, "I48 n0 takes the connection")
    demand("n0" not in links["n2"].open_links, "I48 n2 takes the connection")
    _mend(stage)


def votes_of_another_list() -> None:
    """Members with different lists neither ask each other successfully nor lead by such votes."""
    for favorite in ("n1", "n2"):
        stage = _with_another_list(is_greeted=True)
        stage.isolate("n0")
        stage.favorite = favorite
        stage.run(_LONG_MS)
        leads = [i for i in ("n1", "n2") if stage.is_leader(i)]
        demand(not leads, "I48 leads by a vote of another list", leads)
        stage.heal()
        _mend(stage)


def heart_beats_of_another_list() -> None:
    """Nobody follows a leader of another list, and it counts no such follower."""
    stage = _with_another_list(is_greeted=True)
    stage.send("n0")
    stage.run(2_000)
    demand(stage.is_leader("n0"), "n0 leads on")
    demand(stage["n2"].raft.leader_id is None, "I48 follows a leader of another list")
    stage.kill("n1")
    stage.run(_LONG_MS)
    demand(not stage.is_leader("n0"), "I48 a follower of another list counts")
    _mend(stage)


def follower_whose_disk_hangs() -> None:
    """What waits for its disk stays below its bound, however long that takes: I30."""
    stage = group()
    disk = stage["n2"].disk
    disk.is_hanging = True
    # Nothing of the next term can be taken before that is on disk.
    stage.hand_over("n0", "n1")
    for _ in range(240):
        stage.send_all("n1", 2, body_bytes=1_500)
        stage.run(1_000)
    disk.end_hang()
    stage.holds_all(*stage.ids)
    stage.settle()
