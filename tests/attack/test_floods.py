"""Floods: a client beside goes on, nothing it sent is lost, the victim's memory stays and returns.

Judged by counts, by memory, and by what the victim's reactor computes in one turn beside what it
computes in a quiet one, never by times that depend on what else the machine does;
`tests/attack/floods.py` prints those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attack import floods
from tests.attack.floods import Size
from tests.attack.victim import Effect, Flood, Victim

# The short form of `floods`, halved in time, so that all of them end in a minute.
_SIZE = Size(2.0, 5_000, 300, 10_000, 60, 300)
# Sends of the client beside during a flood that lasts for seconds, at the least.
_SENDS_MIN = 10
# More memory than this, in MB, no short flood costs: the budget of frames is 64 MiB.
_GROWTH_MB_MAX = 150.0


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    broker = Victim(tmp_path_factory.mktemp("victim"))
    with broker.program:
        broker.wait_until_serving()
        yield broker


@pytest.fixture(scope="module")
def quiet(victim: Victim) -> Effect:
    """What a client sees that is alone, on the same machine a moment before."""
    return victim.watch(floods.quiet(_SIZE))


@pytest.mark.parametrize(
    "make",
    [floods.held_pulls, floods.woken_pulls, floods.sql, floods.new_sql, floods.idle_connections,
     floods.half_messages, floods.delayed_messages, floods.tls_handshakes, floods.one_way,
     floods.small_requests, floods.unfinished_frames, floods.slow_loris, floods.small_pieces,
     floods.list_requests, floods.changed_lists, floods.many_keys, floods.one_way_of_many,
     floods.stands_of_groups, floods.heart_beats, floods.leaving_members],
)  # fmt: skip
def test_a_client_beside_goes_on(
    victim: Victim, quiet: Effect, make: Callable[[Size], Flood]
) -> None:
    effect = victim.watch(make(_SIZE))
    assert victim.program.is_running
    assert len(effect.seen.acknowledged) >= _SENDS_MIN
    assert effect.seen.refused_count == 0
    if not floods.has_short_turns(effect, quiet):
        # The machine may be a slower one than a moment before.
        quiet = max(quiet, victim.watch(floods.quiet(_SIZE)), key=lambda seen: seen.turn_ms)
    assert floods.has_short_turns(effect, quiet), f"{effect.turn_ms} ms, {quiet.turn_ms} when quiet"
    assert effect.peak_mb - effect.before_mb < _GROWTH_MB_MAX
    assert effect.returned_s is not None, f"{effect.after_mb} MB, {effect.before_mb} before"
    assert not victim.lost()


def test_turns_that_nobody_bounds_are_found(tmp_path: Path) -> None:
    """The judge itself: with what bounds a turn taken away, these floods must not pass."""
    broker = Victim(tmp_path, has_shares=False)
    with broker.program:
        broker.wait_until_serving()
        quiet = broker.watch(floods.quiet(_SIZE))
        assert floods.has_short_turns(quiet, quiet)
        assert any(
            # Of few connections too little comes within one turn of an idle machine, and of any
            # number while the flooder is hardly given a processor.
            not floods.has_short_turns(
                broker.watch(floods.one_way(_SIZE, connection_count=count)), quiet
            )
            for count in (16, 32, 64)
        )
        assert any(
            not floods.has_short_turns(broker.watch(floods.sql(_SIZE)), quiet) for _ in range(3)
        )
