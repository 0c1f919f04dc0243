"""Offsets that nobody uses expire, on every member; those that somebody uses do not."""

from ledgermq.testing.simulation.broker import OFFSETS_RETENTION_MS
from ledgermq.testing.simulation.clients import TOPICS
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.visitors import SILENT
from tests.simulation.stage import Stage, group

_GUEST = "guest-0"


def _commit(stage: Stage, member_id: str, name: str) -> None:
    """A group commits at a leader."""
    member = stage[member_id]
    member.enter(stage.world.visitors.commit, member, name)
    stage.run(50)
    demand(_find(stage, member_id, name) is not None, "committed", name)


def _find(stage: Stage, member_id: str, name: str) -> int | None:
    return stage[member_id].broker.state.offsets.find(name, TOPICS[0], 0)


def _is_gone(stage: Stage, name: str) -> bool:
    return all(_find(stage, member_id, name) is None for member_id in stage.ids)


def offsets_of_a_client_that_says_nothing() -> None:
    """They stay while it is connected, and expire when it has been gone for long enough."""
    stage = group()
    visitors = stage.world.visitors
    visitors.connect(stage["n0"])
    _commit(stage, "n0", SILENT)
    _commit(stage, "n0", _GUEST)
    stage.run(3 * OFFSETS_RETENTION_MS)
    demand(_is_gone(stage, _GUEST), "nobody used them", _GUEST)
    demand(_find(stage, "n2", SILENT) is not None, "I44 a client is there")
    visitors.leave()
    stage.run(OFFSETS_RETENTION_MS / 2)
    demand(_find(stage, "n0", SILENT) is not None, "I44 it was there a moment ago")
    stage.until(lambda: _is_gone(stage, SILENT), "nobody uses them")
    stage.settle()


def offsets_of_a_group_that_commits() -> None:
    """A group without a client, as those of tools, uses its offsets when it commits."""
    stage = group()
    for _ in range(6):
        _commit(stage, "n0", _GUEST)
        stage.run(OFFSETS_RETENTION_MS / 2)
    demand(_find(stage, "n1", _GUEST) is not None, "I44 it committed a moment ago")
    stage.until(lambda: _is_gone(stage, _GUEST), "nobody uses them")
    # One that comes again begins anew.
    _commit(stage, "n0", _GUEST)
    stage.settle()


def offsets_used_while_another_member_led() -> None:
    """What a leader knew of a former leadership does not count: others led meanwhile."""
    stage = group()
    _commit(stage, "n0", _GUEST)
    stage.run(OFFSETS_RETENTION_MS / 2)
    stage.hand_over("n0", "n1")
    stage.run(OFFSETS_RETENTION_MS)
    _commit(stage, "n1", _GUEST)
    stage.hand_over("n1", "n0")
    stage.run(OFFSETS_RETENTION_MS / 3)
    demand(_find(stage, "n0", _GUEST) is not None, "I44 it committed a moment ago")
    stage.until(lambda: _is_gone(stage, _GUEST), "nobody uses them")
    stage.settle()
