"""What the console keeps of the figures that brokers tell."""

import asyncio
from types import SimpleNamespace
from typing import Any

from ledgermq.console.figures import figures_of
from ledgermq.console.history import History
from ledgermq.console.looks import Look, Looks
from ledgermq.console.sampler import Sampler


def look(role: str, number: int, **table: str) -> Look:
    return Look(
        group="a",
        broker_id=number,
        address=f"10.0.0.{number}:10911",
        figures=figures_of({"ledgerRole": role, **table}),
        reason="",
        answer_ms=1.0,
        last_answer_ms=0,
        name=f"n{number}",
    )


def looks_of(*members: Look) -> Looks:
    found: Any = SimpleNamespace(groups={"a": list(members)})
    kept: Looks = found
    return kept


def test_bytes_out_and_put_times_are_kept_as_series() -> None:
    async def story() -> History:
        view: Any = SimpleNamespace(history=History())
        sampler = Sampler(view, lambda: 0)
        loop = asyncio.get_running_loop()
        # The loop's clock, by which paces are told.
        now_s = loop.time()
        loop.time = lambda: now_s  # type: ignore[method-assign]
        first = {"putMessageSizeTotal": "1000", "getMessageSizeTotal": "500", "putLatency99": "7.0"}
        other = {"putMessageSizeTotal": "0", "getMessageSizeTotal": "100", "putLatency99": "9.0"}
        sampler._keep(looks_of(look("LEADER", 1, **first), look("FOLLOWER", 2, **other)), 10)
        assert view.history.last("out_bytes_per_s", "") is None
        now_s += 10
        first |= {"putMessageSizeTotal": "6000", "getMessageSizeTotal": "20500"}
        other |= {"getMessageSizeTotal": "1100"}
        sampler._keep(looks_of(look("LEADER", 1, **first), look("FOLLOWER", 2, **other)), 20)
        kept: History = view.history
        return kept

    history = asyncio.run(story())
    assert history.last("in_bytes_per_s", "") == 500
    # Followers give messages, too.
    assert history.last("out_bytes_per_s", "") == 2100
    assert history.last("put_p99_ms", "a/n1") == 7.0
    assert history.last("put_p99_ms", "a/n2") is None
    assert history.last("put_p99_ms", "") == 7.0


def test_put_times_of_one_who_leads_no_more_end_with_a_gap() -> None:
    async def story() -> History:
        view: Any = SimpleNamespace(history=History())
        sampler = Sampler(view, lambda: 0)
        roles = (("LEADER", "FOLLOWER"), ("FOLLOWER", "LEADER"), ("FOLLOWER", "LEADER"))
        for at_ms, (first, second) in enumerate(roles):
            members = look(first, 1, putLatency99="3.0"), look(second, 2, putLatency99="5.0")
            sampler._keep(looks_of(*members), at_ms)
        kept: History = view.history
        return kept

    history = asyncio.run(story())
    series = history.read(frozenset({"put_p99_ms"}), 0, members=True)
    assert {one.member: one.values for one in series} == {
        "": [3.0, 5.0, 5.0],
        "a/n1": [3.0, None],
        "a/n2": [5.0, 5.0],
    }


def test_what_a_broker_does_not_tell_is_a_gap() -> None:
    async def story() -> History:
        view: Any = SimpleNamespace(history=History())
        sampler = Sampler(view, lambda: 0)
        for at_ms in (10, 20):
            sampler._keep(looks_of(look("MASTER", 0)), at_ms)
        kept: History = view.history
        return kept

    history = asyncio.run(story())
    assert history.last("out_bytes_per_s", "") is None
    assert history.last("put_p99_ms", "a/n0") is None
