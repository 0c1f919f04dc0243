"""Sampler: looks at a cluster each ten seconds, and keeps what it saw for an hour.

While somebody looks at the overview, it also asks for the rates of topics, some in each round, and
more often for what all groups together are behind.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ledgermq.client.endless import keep_going
from ledgermq.console.cluster import ClusterView
from ledgermq.console.group_figures import AllFigures, load_all
from ledgermq.console.history import STEP_S
from ledgermq.console.looks import Look, Looker, Looks
from ledgermq.console.tally import FAILURES
from ledgermq.console.topic_figures import own_names, topic_rate
from ledgermq.console.topic_tables import kind_of

_TOPICS_OF_ROUND: Final = 50
# Rounds between two looks at what all groups are behind, when somebody looks and when nobody does.
_LAG_ROUNDS: Final = 6
_QUIET_LAG_ROUNDS: Final = 30
# The overview counts as looked at for so long after it was asked for.
_WATCHED_S: Final = 60.0


class Sampler:
    """The looks at one cluster, one after the other."""

    def __init__(self, view: ClusterView, now_ms: Callable[[], int]) -> None:
        """Begins with `start`; now_ms is the wall clock."""
        self.view = view
        self.looker = Looker(view)
        self._now_ms = now_ms
        self._task: asyncio.Task[None] | None = None
        # Address, put or got -> bytes since its start, and when that was, by the loop's clock.
        self._bytes: dict[tuple[str, str], tuple[int, float]] = {}
        # Bytes a second of each broker group's leader.
        self.pace: dict[str, float] = {}
        # Rates of topics, and where the next round goes on.
        self.rates: dict[str, float] = {}
        self._next_topic = 0
        self._round = 0
        self._watched_s = -_WATCHED_S

    def start(self) -> None:
        """Looks for the first time at once."""
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(keep_going("looking at a cluster", self._turn))

    def stop(self) -> None:
        """Looks no more."""
        if self._task is not None:
            self._task.cancel()

    def watched(self) -> None:
        """Somebody looks at the overview."""
        self._watched_s = asyncio.get_running_loop().time()

    async def _turn(self) -> None:
        try:
            await self.sample()
        except FAILURES:
            # No name server tells who is there: a gap in the figures.
            self._add_gap()
        await asyncio.sleep(STEP_S)

    def _add_gap(self) -> None:
        for name in ("in_per_s", "out_per_s", "in_bytes_per_s", "out_bytes_per_s", "lag_messages",
                     "put_p99_ms"):  # fmt: skip
            self.view.history.add(name, "", self._now_ms(), None)

    async def sample(self) -> None:
        """Looks once.

        Raises:
            ClientError, ProtocolError: no name server tells who is there.
        """
        now_ms = self._now_ms()
        looks = await self.looker.look(now_ms)
        self._keep(looks, now_ms)
        loop = asyncio.get_running_loop()
        is_watched = loop.time() - self._watched_s < _WATCHED_S
        if is_watched:
            await self._ask_rates()
        if self._round % (_LAG_ROUNDS if is_watched else _QUIET_LAG_ROUNDS) == 0:
            await self._ask_lag(now_ms)
        self._round += 1

    def _keep(self, looks: Looks, now_ms: int) -> None:
        add = self.view.history.add
        inwards: list[float] = []
        outwards: list[float] = []
        paces: list[float] = []
        out_paces: list[float] = []
        put_times: list[float | None] = []
        for group, members in looks.groups.items():
            for look in members:
                figures, name = look.figures, f"{group}/{look.name}"
                add("answer_ms", name, now_ms, look.answer_ms)
                put_times.append(self._keep_put_time(look, name, now_ms))
                if figures is None:
                    continue
                add("disk_used_ratio", name, now_ms, figures.disk_used_ratio)
                pace = self._pace_of(look.address, "put", figures.put_bytes)
                out_pace = self._pace_of(look.address, "got", figures.got_bytes)
                if out_pace is not None:
                    # Followers give messages, too.
                    out_paces.append(out_pace)
                if look.leads:
                    inwards.append(figures.in_per_s or 0.0)
                    outwards.append(figures.out_per_s or 0.0)
                    if pace is not None:
                        self.pace[group] = pace
                        paces.append(pace)
                behind = behind_bytes(members, look)
                if behind is not None and not look.leads:
                    add("behind_bytes", name, now_ms, float(behind))
        add("in_per_s", "", now_ms, sum(inwards) if inwards else None)
        add("out_per_s", "", now_ms, sum(outwards) if outwards else None)
        add("in_bytes_per_s", "", now_ms, sum(paces) if paces else None)
        add("out_bytes_per_s", "", now_ms, sum(out_paces) if out_paces else None)
        slowest = max((one for one in put_times if one is not None), default=None)
        add("put_p99_ms", "", now_ms, slowest)

    def _keep_put_time(self, look: Look, name: str, now_ms: int) -> float | None:
        """Keeps how long messages take at a leader; who leads no more has one gap, then nothing."""
        history, figures = self.view.history, look.figures
        put_time = figures.put_p99_ms if look.leads and figures is not None else None
        if put_time is not None or history.last("put_p99_ms", name) is not None:
            history.add("put_p99_ms", name, now_ms, put_time)
        return put_time

    def _pace_of(self, address: str, kind: str, total: int | None) -> float | None:
        """Bytes of messages a second, since the look before."""
        now_s = asyncio.get_running_loop().time()
        if total is None:
            return None
        before = self._bytes.get((address, kind))
        self._bytes[address, kind] = (total, now_s)
        if before is None or total < before[0] or now_s <= before[1]:
            return None
        return (total - before[0]) / (now_s - before[1])

    async def _ask_rates(self) -> None:
        table, own = (await self.view.topics()).by_name, await own_names(self.view)
        names = [
            topic
            for topic, entries in sorted(table.items())
            if kind_of(topic, next(iter(entries.values())), own)
            not in ("retry", "dead_letter", "system")
        ]
        if not names:
            self.rates.clear()
            return
        self._next_topic %= len(names)
        chosen = (names[self._next_topic :] + names[: self._next_topic])[:_TOPICS_OF_ROUND]
        self._next_topic += len(chosen)
        found = await asyncio.gather(
            *(topic_rate(self.view, topic, sorted(table[topic])) for topic in chosen)
        )
        self.rates.update(zip(chosen, found, strict=True))
        for gone in self.rates.keys() - set(names):
            del self.rates[gone]

    async def _ask_lag(self, now_ms: int) -> None:
        figures, _ = await load_all(self.view, now_ms, 0.0)
        total = None
        if not figures.tally.is_silent:
            total = float(sum(one.lag.messages for one in figures.by_group.values()))
            self._keep_lags(figures, now_ms)
        self.view.history.add("lag_messages", "", now_ms, total)

    def _keep_lags(self, figures: AllFigures, now_ms: int) -> None:
        """Keeps the lag of each group, where all brokers told it: a part of it is none."""
        lags = self.view.lags
        lags.keep(figures.by_group)
        if not figures.tally.is_whole:
            return
        for group, one in figures.by_group.items():
            lags.add(group, now_ms, one.lag.messages, one.lag.age_ms)


def behind_bytes(members: list[Look], look: Look) -> int | None:
    """Returns how much of its leader's log a member has not; None when nobody can tell."""
    ends = [one.figures.log_end for one in members if one.leads and one.figures is not None]
    end = None if look.figures is None else look.figures.log_end
    if not ends or ends[0] is None or end is None:
        return None
    return max(ends[0] - end, 0)
