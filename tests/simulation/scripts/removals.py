"""Removals of topics that very many groups consume, and records with content that none can read."""

from ledgermq.state.errors import BrokerError
from ledgermq.state.topics import TopicConfig
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.scripts.state import make_topic
from tests.simulation.stage import Stage, group

_TOPIC = "many-groups"
_GROUPS = 60
# Half a surrogate pair, which JSON can say, and UTF-8 cannot; and lists in lists.
_UNREADABLE = (
    b'{"v":1,"kind":"groups","put":{"g":{"attributes":{"\\ud800":"x"}}},"removed":[],'
    b'"version":{"counter":99,"timestamp":1}}',
    b'{"v":1,"kind":"locks","put":{"g":%b%b}}' % (b"[" * 500, b"]" * 500),
)


def _commit(stage: Stage, member_id: str, groups: range, offset: int) -> None:
    """Groups commit offsets of the topic, as it is now."""
    commits = stage[member_id].broker.state.commits
    told: list[BrokerError | None] = []

    def commit() -> None:
        for number in groups:
            commits.commit(f"group-{number:02}", _TOPIC, 0, offset, told.append)

    stage[member_id].enter(commit)
    stage.until(lambda: len(told) == len(groups), "offsets are committed")
    demand(not any(told), "no offset is refused", told)
    stage.holds_all(*stage.ids)


def _remove(stage: Stage, member_id: str) -> None:
    told: list[BrokerError | None] = []
    state = stage[member_id].broker.state
    stage.world.tables.on_removing(TopicConfig(_TOPIC, 1, 1))
    stage[member_id].enter(lambda: state.remove_topic(_TOPIC, told.append))
    stage.until(lambda: told == [None], "the topic is removed")
    stage.holds_all(*stage.ids)


def _has(stage: Stage, offsets: dict[str, int]) -> None:
    """Every member has exactly these offsets, by group, when it has applied all."""
    end = stage.last_index("n0")
    stores = [stage[one].broker.messages for one in stage.ids]
    stage.until(lambda: min(one.dispatched_index for one in stores) >= end, "all is applied")
    for member_id in stage.ids:
        table = stage[member_id].broker.state.offsets
        found = {name: table.find(name, _TOPIC, 0) for name in table.groups_behind(_TOPIC)}
        demand(found == offsets, "offsets of the topic", member_id, found, offsets)


def topic_that_comes_back_while_its_offsets_are_dropped() -> None:
    """What is removed is gone at once, on each member and after a restart, and what is committed
    since then stays, however often the topic goes and comes back.
    """
    stage = group()
    for offset in (3, 2, 1):
        demand(make_topic(stage, "n0", _TOPIC, 1) == [None], "it is made")
        _commit(stage, "n0", range(_GROUPS), offset)
        _has(stage, {f"group-{number:02}": offset for number in range(_GROUPS)})
        _remove(stage, "n0")
        _has(stage, {})
        demand(len(stage["n0"].broker.state.offsets) > _GROUPS // 2, "it is being dropped")
        demand(make_topic(stage, "n0", _TOPIC, 1) == [None], "it is made again")
        _commit(stage, "n0", range(40, 43), offset + 10)
        kept = {f"group-{number:02}": offset + 10 for number in range(40, 43)}
        _has(stage, kept)
        state = stage["n0"].broker.state
        stage["n0"].enter(state.begin_sweep)
        stage.until(lambda state=state: state.is_swept, "the state is swept")
        _has(stage, kept)
        stage.kill("n2")
        stage.start("n2")
        stage.holds_all(*stage.ids)
        _has(stage, kept)
        _remove(stage, "n0")
        _has(stage, {})
    stage.run(4_000)
    _has(stage, {})
    stage.settle()


def record_that_cannot_be_read() -> None:
    """A committed record whose content makes no sense ends no member, nor its next start."""
    stage = group()
    told: list[BrokerError | None] = []
    for number, body in enumerate(_UNREADABLE, 1):
        write = stage["n0"].broker.write_state
        stage["n0"].enter(lambda body=body, write=write: write([body], told.append))
        stage.until(lambda number=number: len(told) == number, "the record is committed")
        stage.holds_all(*stage.ids)
    for member_id in stage.ids:
        demand(stage[member_id].broker.failure is None, "no member ends", member_id)
    stage.restart(*stage.ids)
    stage.lead("n1")
    demand(make_topic(stage, "n1", "later", 1) == [None], "the group goes on")
    stage.holds_all(*stage.ids)
    stage.settle()
