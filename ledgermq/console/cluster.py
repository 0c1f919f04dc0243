"""ClusterView: one cluster as one account sees it: its brokers, and tables that pages share."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ledgermq.client.errors import RefusedError
from ledgermq.console.answers import NAMES_MAX, check_objects
from ledgermq.console.history import History
from ledgermq.console.kept import Kept
from ledgermq.console.lag_history import LagHistory
from ledgermq.console.remote import Remote
from ledgermq.console.tally import FAILURES, Tally
from ledgermq.console.timeline import Timeline
from ledgermq.console.topic_tables import TopicEntry, read_topic_table
from ledgermq.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupTableBody
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import GetRouteInfoRequestHeader
from ledgermq.protocol.headers.header import Header
from ledgermq.protocol.route import MASTER_ID, ClusterInfo, TopicRouteData

_T = TypeVar("_T")
# Of an answer that is read in a turn of the loop; fastjson's dialect takes a microsecond a byte.
_READ_AT_ONCE_BYTES_MAX: Final = 8192
_BROKERS_AGE_S: Final = 2.0
_TABLES_AGE_S: Final = 5.0
# Who asks for something that was just made finds it; who asks for nothing is no burden.
_NEW_AGE_S: Final = 0.2


class Target(NamedTuple):
    """A server to ask."""

    # Name of its broker group, or of the name server.
    name: str
    address: str


class Topics(NamedTuple):
    """The topics of a cluster."""

    # By name, then by broker group.
    by_name: dict[str, dict[str, TopicEntry]]
    tally: Tally


class Groups(NamedTuple):
    """The consumer groups of a cluster."""

    by_name: dict[str, dict[str, SubscriptionGroupConfig]]
    tally: Tally


class ClusterView:
    """One cluster and one account."""

    def __init__(self, cluster_id: str, name: str, remote: Remote) -> None:
        self.id = cluster_id
        self.name = name
        self.remote = remote
        self.kept = Kept()
        self.timeline = Timeline()
        self.history = History()
        self.lags = LagHistory()
        # Broker name -> address of who led last, so that a group without a leader is still asked.
        self._led: dict[str, str] = {}

    def close(self) -> None:
        """Ends what is being loaded; the remote is its owner's."""
        self.kept.close()

    @staticmethod
    def now_ms() -> int:
        """Returns the wall clock in ms since 1970."""
        return time.time_ns() // 1_000_000

    async def brokers(self) -> dict[str, dict[int, str]]:
        """Returns broker id -> address by name of the broker group, sorted by both.

        Raises:
            UnreachableError: no name server answers.
            RefusedError: it refuses.
        """
        return (await self.kept.get("brokers", _BROKERS_AGE_S, self._load_brokers))[0]

    async def _load_brokers(self) -> dict[str, dict[int, str]]:
        answer = await self.remote.call_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = ClusterInfo.decode(answer.body)
        found: dict[str, dict[int, str]] = {}
        for name in sorted(info.cluster_addr_table.get(self.name, [])):
            broker = info.broker_addr_table.get(name)
            found[name] = dict(sorted(broker.broker_addrs.items())) if broker is not None else {}
        return found

    async def leaders(self, tally: Tally, names: Sequence[str] = ()) -> list[Target]:
        """Returns one broker of each group to ask: who takes writes, or else who is there.

        Args:
            tally: told of groups that nobody of is there.
            names: of the broker groups; empty: all.
        """
        targets = []
        brokers = await self.brokers()
        for name in names or brokers:
            addresses = brokers.get(name)
            if not addresses:
                tally.missed(name, name, "no broker of this name is registered")
                continue
            leader = addresses.get(MASTER_ID)
            if leader is not None:
                self._led[name] = leader
            targets.append(Target(name, leader or next(iter(addresses.values()))))
        return targets

    async def writers(self, names: Sequence[str] = ()) -> tuple[list[Target], list[str]]:
        """Returns who takes writes, and the names of groups of which nobody does."""
        brokers = await self.brokers()
        found, missing = [], []
        for name in names or brokers:
            address = brokers.get(name, {}).get(MASTER_ID)
            if address is None:
                missing.append(name)
            else:
                found.append(Target(name, address))
        return found, missing

    async def everybody(self) -> list[Target]:
        """Returns all registered members."""
        return [
            Target(name, address)
            for name, addresses in (await self.brokers()).items()
            for address in addresses.values()
        ]

    async def each(
        self,
        tally: Tally,
        targets: Iterable[Target],
        code: int,
        header: Header | None = None,
        *,
        read: Callable[[RemotingCommand], _T],
        empty_codes: frozenset[int] = frozenset(),
    ) -> list[tuple[Target, _T]]:
        """Asks servers at one time; returns what those said who answered.

        Args:
            tally: told of the others.
            targets: whom.
            code, header: of the request.
            read: reads an answer; a large one in a thread.
            empty_codes: refusals that only mean that there is nothing.
        """

        async def ask(target: Target) -> tuple[Target, _T] | None:
            tally.asked(target.address)
            try:
                answer = await self.remote.call(target.address, code, header)
                if len(answer.body) > _READ_AT_ONCE_BYTES_MAX:
                    return target, await asyncio.to_thread(read, answer)
                return target, read(answer)
            except FAILURES as error:
                if not (isinstance(error, RefusedError) and error.code in empty_codes):
                    tally.failed(target.name, target.address, error)
                return None

        found = await asyncio.gather(*map(ask, targets))
        return [one for one in found if one is not None]

    async def topics(self, wanted: str | None = None) -> Topics:
        """Returns all topics, as brokers have them, up to 5 s old.

        Args:
            wanted: one that should be among them; younger ones are asked for when it is not.
        """
        topics = (await self.kept.get("topics", _TABLES_AGE_S, self._load_topics))[0]
        if wanted is not None and wanted not in topics.by_name:
            topics = (await self.kept.get("topics", _NEW_AGE_S, self._load_topics))[0]
        return topics

    async def _load_topics(self) -> Topics:
        tally = Tally()
        found = await self.each(
            tally,
            await self.leaders(tally),
            RequestCode.GET_ALL_TOPIC_CONFIG,
            read=lambda answer: read_topic_table(answer.body),
        )
        return Topics(_by_name(found), tally)

    async def groups(self, wanted: str | None = None) -> Groups:
        """Returns all consumer groups, as brokers have them, up to 5 s old.

        Args:
            wanted: as in `topics`.
        """
        groups = (await self.kept.get("groups", _TABLES_AGE_S, self._load_groups))[0]
        if wanted is not None and wanted not in groups.by_name:
            groups = (await self.kept.get("groups", _NEW_AGE_S, self._load_groups))[0]
        return groups

    async def _load_groups(self) -> Groups:
        tally = Tally()
        found = await self.each(
            tally,
            await self.leaders(tally),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            read=_read_groups,
        )
        return Groups(_by_name(found), tally)

    async def route(self, topic: str) -> TopicRouteData:
        """Returns what name servers tell clients about a topic.

        Raises:
            RefusedError: there is no such topic.
            UnreachableError: no name server answers.
        """
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await self.remote.call_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return TopicRouteData.decode(answer.body)

    async def load(
        self, key: object, age_max_s: float, load: Callable[[], Awaitable[_T]]
    ) -> tuple[_T, float]:
        """Returns what is kept under a key, and its age in seconds."""
        return await self.kept.get(key, age_max_s, load)

    async def tallied(
        self,
        tally: Tally,
        key: object,
        age_max_s: float,
        load: Callable[[Tally], Awaitable[_T]],
    ) -> _T:
        """The same, for what tells who was asked: also of what is kept."""

        async def load_both() -> tuple[_T, Tally]:
            own = Tally()
            return await load(own), own

        (value, told), _ = await self.kept.get(key, age_max_s, load_both)
        tally.add(told)
        return value


def _read_groups(answer: RemotingCommand) -> dict[str, SubscriptionGroupConfig]:
    # Each group is one, and up to two more of 5.x.
    check_objects(answer.body, 3 * NAMES_MAX)
    return SubscriptionGroupTableBody.decode(answer.body).subscription_group_table


def _by_name(found: Iterable[tuple[Target, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for target, entries in found:
        for name, entry in entries.items():
            table.setdefault(name, {})[target.name] = entry
    return table
