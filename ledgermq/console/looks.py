"""Looks at all members of a cluster: who answers, and what it tells about itself."""

import asyncio
from typing import Final, NamedTuple

from ledgermq.console.answers import check_size
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.figures import Figures, read_figures
from ledgermq.console.tally import FAILURES, Tally, reason_of
from ledgermq.console.timeline import Seen
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.properties_file import parse_properties
from ledgermq.protocol.route import MASTER_ID

_AGE_S: Final = 2.0
_SETTINGS_AGE_S: Final = 60.0
_SETTINGS_BYTES_MAX: Final = 256 * 1024
_TIMEOUT_S: Final = 2.0
# Members that were there once are shown for so long after they have gone.
_REMEMBERED_MS: Final = 24 * 3600 * 1000
_REMEMBERED_MAX: Final = 500
# Roles that answer, and yet do not count.
_NO_HELP: Final = frozenset({"FAILED", "UNKNOWN"})


class Look(NamedTuple):
    """One member, seen now."""

    # Of its broker group.
    group: str
    broker_id: int | None
    address: str
    # None when it does not answer.
    figures: Figures | None
    reason: str
    answer_ms: float | None
    last_answer_ms: int | None
    # n0, or the broker id.
    name: str

    @property
    def role(self) -> str:
        """As it says itself, or by its number."""
        if self.figures is None:
            return "UNKNOWN"
        if self.figures.role:
            return self.figures.role
        return "MASTER" if self.broker_id == MASTER_ID else "SLAVE"

    @property
    def leads(self) -> bool:
        """True for who takes writes."""
        return self.figures is not None and self.role in ("LEADER", "MASTER")

    @property
    def helps(self) -> bool:
        """True for who counts in a majority."""
        return self.figures is not None and self.role not in _NO_HELP


class Looks(NamedTuple):
    """All members, by broker group."""

    groups: dict[str, list[Look]]
    tally: Tally
    # Name servers that answer, and those that do not with the reason.
    name_servers: dict[str, str]
    at_ms: int


class Looker:
    """Looks at one cluster, and remembers whom it saw."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        # Group and address -> broker id, name, and when it answered last.
        self._remembered: dict[tuple[str, str], tuple[int, str, int]] = {}

    async def look(self, now_ms: int) -> Looks:
        """Returns all members, seen at most 2 s ago.

        Raises:
            UnreachableError, RefusedError: no name server tells who is there.
        """

        async def load() -> Looks:
            return await self._load(now_ms)

        return (await self._view.load("looks", _AGE_S, load))[0]

    async def _load(self, now_ms: int) -> Looks:
        tally = Tally()
        brokers = await self._view.brokers()
        registered = [
            (Target(group, address), number)
            for group, addresses in brokers.items()
            for number, address in addresses.items()
        ]
        there = {(target.name, target.address) for target, _ in registered}
        gone: list[tuple[Target, int | None]] = [
            (Target(*key), None)
            for key, (_, _, seen_ms) in self._remembered.items()
            if key not in there and now_ms - seen_ms < _REMEMBERED_MS
        ]
        looks, name_servers = await asyncio.gather(
            asyncio.gather(
                *(self._look(tally, target, number, now_ms) for target, number in registered),
                *(self._look(tally, target, number, now_ms) for target, number in gone),
            ),
            self._name_servers(),
        )
        groups: dict[str, list[Look]] = {group: [] for group in brokers}
        for look in looks:
            groups.setdefault(look.group, []).append(look)
        for group, members in groups.items():
            members += await self._never_seen(group, members)
            members.sort(key=lambda look: (look.name, look.address))
        self._view.timeline.look(
            {group: map(_seen, members) for group, members in groups.items()}, now_ms
        )
        return Looks(groups, tally, name_servers, now_ms)

    async def _look(self, tally: Tally, target: Target, number: int | None, now_ms: int) -> Look:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        known = self._remembered.get(target)
        broker_id = number if number is not None or known is None else known[0]
        tally.asked(target.address)
        try:
            code = RequestCode.GET_BROKER_RUNTIME_INFO
            answer = await self._view.remote.call(target.address, code, timeout_s=_TIMEOUT_S)
            figures = read_figures(answer)
        except FAILURES as error:
            tally.failed(target.name, target.address, error)
            name = known[1] if known is not None else str(broker_id)
            seen_ms = known[2] if known is not None else None
            reason = reason_of(error)
            return Look(target.name, number, target.address, None, reason, None, seen_ms, name)
        name = figures.member or str(broker_id)
        self._remember(target, broker_id or 0, name, now_ms)
        answer_ms = (loop.time() - begun_s) * 1000
        return Look(target.name, number, target.address, figures, "", answer_ms, now_ms, name)

    def _remember(self, target: Target, number: int, name: str, now_ms: int) -> None:
        self._remembered.pop(target, None)
        while len(self._remembered) >= _REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[target] = (number, name, now_ms)

    async def _never_seen(self, group: str, members: list[Look]) -> list[Look]:
        """Members of the ledger that were never registered since this console runs."""
        settings = await self.settings(group, members)
        names = {look.name for look in members}
        found = []
        for peer in settings.get("dLegerPeers", "").split(";"):
            name, dash, address = peer.strip().partition("-")
            if dash and name not in names and any(look.name[:1] == "n" for look in members):
                reason = "it has not registered since this console runs; this is its ledger's port"
                found.append(Look(group, None, address, None, reason, None, None, name))
        return found

    async def settings(self, group: str, members: list[Look]) -> dict[str, str]:
        """Returns the settings of a broker group as one member tells them, up to a minute old."""
        answering = [look for look in members if look.figures is not None]
        if not answering:
            return {}
        address = next((look.address for look in answering if look.leads), answering[0].address)

        async def load() -> dict[str, str]:
            try:
                answer = await self._view.remote.call(address, RequestCode.GET_BROKER_CONFIG)
                return read_settings(answer)
            except FAILURES:
                # It is no admin's account; what stands on the settings is unknown then.
                return {}

        return (await self._view.load(("settings", group), _SETTINGS_AGE_S, load))[0]

    async def _name_servers(self) -> dict[str, str]:
        async def ask(address: str) -> tuple[str, str]:
            code = RequestCode.GET_BROKER_CLUSTER_INFO
            try:
                await self._view.remote.call(address, code, timeout_s=_TIMEOUT_S)
            except FAILURES as error:
                return address, reason_of(error)
            return address, ""

        return dict(await asyncio.gather(*map(ask, self._view.remote.name_server_addresses)))


def read_settings(answer: RemotingCommand) -> dict[str, str]:
    """Returns the settings that a server tells (26).

    Raises:
        RemoteProtocolError: it is far too long.
    """
    check_size(answer.body, _SETTINGS_BYTES_MAX)
    return parse_properties(answer.body.decode("utf-8", "replace"))


def _seen(look: Look) -> Seen:
    figures = look.figures
    return Seen(
        name=look.name,
        is_leader=look.leads,
        is_answering=figures is not None,
        term=None if figures is None else figures.term,
        disk_used_ratio=None if figures is None else figures.disk_used_ratio,
        alarms=() if figures is None else tuple(figures.alarms),
    )
