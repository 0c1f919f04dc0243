"""Identity: the clusters as one account sees them; each account asks with its own signature.

So what an account may see and change is judged by the brokers, as it is for any tool, and nothing
that one account was shown is kept for another.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import UnreachableError
from ledgermq.console.cluster import ClusterView
from ledgermq.console.remote import Remote
from ledgermq.console.sampler import Sampler
from ledgermq.console.shapes.session import Cluster, Clusters
from ledgermq.console.tally import FAILURES, Tally
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import ClusterInfo
from ledgermq.protocol.signature import Credentials

_CLUSTERS_MAX: Final = 200
_AGE_S: Final = 2.0
_NEW_AGE_S: Final = 0.1


class Sight(NamedTuple):
    """A cluster, and who looks at it again and again."""

    view: ClusterView
    sampler: Sampler


class _Found(NamedTuple):
    # Of the set of name servers.
    number: int
    info: ClusterInfo
    name: str


class Identity:
    """One account, or nobody's."""

    def __init__(
        self, name_servers: Sequence[str], config: ClientConfig, now_ms: Callable[[], int]
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: sets of name servers, each ``host:port;host:port``.
            config: credentials and TLS.
            now_ms: the wall clock.

        Raises:
            ConfigError: an address is wrong.
        """
        self.remotes = [Remote(text, config) for text in name_servers]
        self._config = config
        # Nobody begins to look any more.
        self._is_closed = False
        self._now_ms = now_ms
        self._sights: dict[str, Sight] = {}
        self._found: tuple[float, dict[str, _Found], Tally] | None = None

    def set_of(self, cluster_id: str) -> int | None:
        """Returns the number of the set of name servers that a cluster of this id is of, be it
        there or not; None when there is no such set.
        """
        _, at, first = cluster_id.rpartition("@")
        if not at:
            return 0
        for number, remote in enumerate(self.remotes):
            if number and first == _first_of(remote):
                return number
        return None

    async def sign_as(self, number: int, credentials: Credentials) -> None:
        """Asks a set of name servers and its brokers with other credentials from now on.

        Args:
            number: of the set; none of its clusters was found yet.
            credentials: what its brokers let in.
        """
        former = self.remotes[number]
        if former.config.credentials != credentials:
            config = replace(self._config, credentials=credentials)
            self.remotes[number] = Remote(former.name_servers, config)
            self._found = None
            await former.close()

    async def clusters(self) -> Clusters:
        """Returns all clusters."""
        found, tally = await self._find()
        rows = [
            Cluster(
                id=cluster_id,
                name=one.name,
                name_servers=list(self.remotes[one.number].name_server_addresses),
                broker_groups=len(one.info.cluster_addr_table[one.name]),
                brokers=sum(
                    len(one.info.broker_addr_table[broker].broker_addrs)
                    for broker in one.info.cluster_addr_table[one.name]
                    if broker in one.info.broker_addr_table
                ),
            )
            for cluster_id, one in sorted(found.items())
        ]
        return Clusters(clusters=rows, answers=tally.answers())

    async def find(self, cluster_id: str) -> Sight | None:
        """Returns a cluster; None when there is none of that id.

        One that was there once stays, whether its name servers answer or not.

        Raises:
            UnreachableError: name servers that may know it do not answer.
        """
        sight = self._sights.get(cluster_id)
        if sight is None:
            one = (await self._find())[0].get(cluster_id)
            if one is None:
                # It may have come this very moment.
                found, tally = await self._find(0.0)
                one = found.get(cluster_id)
                if one is None and not tally.is_whole:
                    silent = tally.answers().silent
                    told = "; ".join(f"{each.address}: {each.reason}" for each in silent)
                    raise UnreachableError(
                        f"whether there is a cluster {cluster_id!r} is not known, a name server"
                        f" does not answer: {told}"
                    )
            # Another one may have asked at the same time.
            sight = self._sights.get(cluster_id)
            has_room = len(self._sights) < _CLUSTERS_MAX and not self._is_closed
            if one is not None and sight is None and has_room:
                view = ClusterView(cluster_id, one.name, self.remotes[one.number])
                sight = self._sights[cluster_id] = Sight(view, Sampler(view, self._now_ms))
                sight.sampler.start()
        return sight

    async def look_at_all(self) -> None:
        """Begins to look at all clusters that there are."""
        for cluster_id in (await self._find())[0]:
            await self.find(cluster_id)

    async def close(self) -> None:
        """Ends all looks and closes all connections."""
        self._is_closed = True
        for sight in self._sights.values():
            sight.sampler.stop()
            sight.view.close()
        await asyncio.gather(*(remote.close() for remote in self.remotes))

    async def _find(self, age_max_s: float = _AGE_S) -> tuple[dict[str, _Found], Tally]:
        """Clusters by id."""
        now_s = asyncio.get_running_loop().time()
        if self._found is not None:
            loaded_s, found, tally = self._found
            if now_s - loaded_s < (age_max_s if found else min(age_max_s, _NEW_AGE_S)):
                return found, tally
        tally = Tally()
        infos = await asyncio.gather(*(self._ask(tally, remote) for remote in self.remotes))
        by_id: dict[str, _Found] = {}
        for number, info in enumerate(infos):
            for name in () if info is None else sorted(info.cluster_addr_table):
                assert info is not None
                by_id.setdefault(self._id_of(name, number), _Found(number, info, name))
        self._found = (now_s, by_id, tally)
        return by_id, tally

    def _id_of(self, name: str, number: int) -> str:
        """Returns the name, and behind @ the first name server where it is of a later set.

        Whoever may register a broker chooses the name of its cluster: none is the id of another.
        """
        name = name.replace("%", "%25").replace("@", "%40")
        return f"{name}@{_first_of(self.remotes[number])}" if number else name

    async def _ask(self, tally: Tally, remote: Remote) -> ClusterInfo | None:
        tally.asked(remote.name_servers)
        try:
            answer = await remote.call_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
            return ClusterInfo.decode(answer.body)
        except FAILURES as error:
            tally.failed("name server", remote.name_servers, error)
            return None


def _first_of(remote: Remote) -> str:
    return remote.name_servers.partition(";")[0]
