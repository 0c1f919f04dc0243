"""Announcements: what a name server is told next, by what it knows already.

    it knows nothing, or another role of this broker   the whole table, in slices
    it lacks changes                                   these topics
    it lacks the version only                          a registration without topics
    it knows all                                       nothing

A name server adds to its table and replaces in it what a registration brings, and takes that only
with a version that differs from the last one of this address (4.9). So each slice has a made-up
version that no other has, and the last one the table's, once the name server has all that the
version stands for. (5.x, which can split registrations, counts its version up for each part.)
What changes meanwhile stands behind in the order of changes, so nothing is lost, and nothing is
kept for a slow name server but a number.

A slave, or follower, brings no topics. Its versions are made up, too: when it leads, a name server
that has its address takes the table in any case.

Sources: `RouteInfoManager.registerBroker`, `BrokerController.registerIncrementBrokerData`.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Final, NamedTuple

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.leadership import LEADER_BROKER_ID, NO_BROKER_ID, Leadership
from ledgermq.protocol import lenient_json
from ledgermq.protocol.checksum import crc32_masked
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
)
from ledgermq.protocol.route import TopicRouteData
from ledgermq.state.data_version import DataVersion
from ledgermq.state.topics import PERM_READ_WRITE, TopicTable

# Topics of one registration: about a millisecond's work, here and there.
SLICE_BYTES_MAX: Final = 128 * 1024
# Before the first change of a table.
NOTHING: Final = -1
# Times of made-up versions lie before this one, ms since 1970: no table changed then.
_MADE_UP_MS_MAX: Final = 1_000_000_000_000


class Identity(NamedTuple):
    """As what this broker registers; whoever knows another one is told all anew."""

    broker_id: int
    term: int
    # "ip:port" for clients, and for slaves.
    address: str
    ha_address: str
    # Of all topics, PERM_ bits; unless open for both ways it replaces that of each one.
    permission: int


class Known(NamedTuple):
    """What a name server knows."""

    identity: Identity
    # Last change of the topic table that it has, NOTHING when it has none.
    number: int
    # The version that it was told last.
    version: DataVersion


class Announcement(NamedTuple):
    """A registration, and what a name server knows that has accepted it."""

    request: RemotingCommand
    known: Known
    # It has all topics then.
    is_all: bool
    # It has the table's version, too.
    is_last: bool
    # Topics that it shall have are not in it.
    is_partial: bool


class _Slice(NamedTuple):
    """A run of changes, oldest first."""

    # Members of upstream's table by name.
    members: dict[str, bytes]
    # Of the last change in it, or of the last one of all.
    number: int
    is_last: bool


class Gathered:
    """The whole table for one registration, as far as it was put together."""

    def __init__(self, identity: Identity) -> None:
        """Begins empty."""
        self.identity = identity
        self.number = NOTHING
        self.members: dict[str, bytes] = {}


class Announcements:
    """Makes them for all name servers."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        topics: TopicTable,
        *,
        address: Callable[[], str],
        ha_address: Callable[[], str],
        chance: Callable[[], float],
    ) -> None:
        """Binds what is told.

        Args:
            config: names and permission.
            leadership: broker id and term of the moment.
            topics: what is told.
            address: of this broker for clients; asked when it is known.
            ha_address: where slaves of this broker copy its log.
            chance: draws from [0, 1), so that made-up versions are none of a process before.
        """
        self._config = config
        self._leadership = leadership
        self._topics = topics
        self._address = address
        self._ha_address = ha_address
        self._made_up_ms = int(chance() * _MADE_UP_MS_MAX)
        self._made_up_counts = count(1)
        # The slice that was made last, and of what: name servers are told the same side by side.
        self._slice: tuple[tuple[int, int, int], _Slice] | None = None

    def identity(self) -> Identity | None:
        """Returns as what this broker registers at the moment; None while it has no role."""
        leadership = self._leadership
        if leadership.broker_id == NO_BROKER_ID:
            return None
        return Identity(
            leadership.broker_id,
            leadership.term,
            self._address(),
            self._ha_address(),
            self._config.broker_permission,
        )

    def next(self, identity: Identity, known: Known | None) -> Announcement | None:
        """Returns what a name server is told next, None when it knows all.

        Args:
            identity: of the moment.
            known: by the name server; None for nothing.
        """
        if identity.broker_id != LEADER_BROKER_ID:
            if known is not None and known.identity == identity:
                return None
            version = self._made_up()
            return self._announcement(identity, (), version, NOTHING, is_all=True, is_last=True)
        number, told = NOTHING, None if known is None else known.version
        if known is not None and known.identity == identity:
            number = known.number
        version = self._topics.version
        news = self._slice_behind(number, identity.permission)
        if number != NOTHING and not news.members and told == version:
            return None
        is_last = news.is_last and told is not None and told != version
        return self._announcement(
            identity,
            news.members.values(),
            version if is_last else self._made_up(),
            news.number,
            is_all=news.is_last,
            is_last=is_last,
            is_partial=len(news.members) < len(self._topics),
        )

    def gather(self, gathered: Gathered, told: DataVersion | None) -> Announcement | None:
        """Adds a slice to a registration that shall have all topics.

        Args:
            gathered: what it has so far.
            told: the version that the name server has; None when it knows nothing.

        Returns:
            The registration, when it has them.
        """
        identity = gathered.identity
        news = self._slice_behind(gathered.number, identity.permission)
        gathered.members.update(news.members)
        gathered.number = news.number
        if not news.is_last:
            return None
        find = self._topics.find
        members = [member for name, member in gathered.members.items() if find(name) is not None]
        version = self._topics.version
        is_last = told != version
        version = version if is_last else self._made_up()
        return self._announcement(
            identity, members, version, news.number, is_all=True, is_last=is_last
        )

    def _made_up(self) -> DataVersion:
        return DataVersion(self._made_up_ms, next(self._made_up_counts))

    def _slice_behind(self, number: int, permission: int) -> _Slice:
        key = (number, permission, self._topics.generation)
        if self._slice is None or self._slice[0] != key:
            self._slice = (key, self._make_slice(number, permission))
        return self._slice[1]

    def _make_slice(self, number: int, permission: int) -> _Slice:
        topics = self._topics
        members: dict[str, bytes] = {}
        size = 0
        for change, name in topics.changes.behind(number):
            entry = topics.get(name).to_json()
            if permission != PERM_READ_WRITE:
                entry["perm"] = permission
            member = lenient_json.write_plain(name) + b":" + lenient_json.write_plain(entry)
            size += len(member) + 1
            if members and size > SLICE_BYTES_MAX:
                return _Slice(members, number, is_last=False)
            members[name] = member
            number = change
        return _Slice(members, topics.changes.last_number, is_last=True)

    def _announcement(
        self,
        identity: Identity,
        members: Iterable[bytes],
        version: DataVersion,
        number: int,
        *,
        is_all: bool,
        is_last: bool,
        is_partial: bool = False,
    ) -> Announcement:
        body = b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":%b,' % (
            lenient_json.write_plain(version.to_json())
        )
        body += b'"topicConfigTable":{%b}}}' % b",".join(members)
        header = RegisterBrokerRequestHeader(
            broker_name=self._config.broker_name,
            broker_addr=identity.address,
            cluster_name=self._config.cluster_name,
            ha_server_addr=identity.ha_address,
            broker_id=identity.broker_id,
            body_crc32=crc32_masked(body),
            ledger_term=self._ledger_term(identity),
        )
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
        known = Known(identity, number, version)
        return Announcement(request, known, is_all, is_last, is_partial)

    def _ledger_term(self, identity: Identity) -> int | None:
        """By it a name server tells a leader from those before; nobody else has one."""
        if identity.broker_id != LEADER_BROKER_ID or not self._config.is_group_member:
            return None
        return identity.term

    # What a name server is asked.

    def version_question(self, known: Known) -> RemotingCommand | None:
        """Returns the question whether a leader's version is still what a name server has (322),
        which counts as a sign of life when it is; None for a slave, whose registration is as small.
        """
        identity = known.identity
        if identity.broker_id != LEADER_BROKER_ID:
            return None
        header = QueryDataVersionRequestHeader(
            broker_name=self._config.broker_name,
            broker_addr=identity.address,
            cluster_name=self._config.cluster_name,
            broker_id=identity.broker_id,
        )
        body = lenient_json.write_plain(known.version.to_json())
        return RemotingCommand.request(RequestCode.QUERY_DATA_VERSION, header, body)

    def route_question(self) -> RemotingCommand | None:
        """Returns the question for the route of the topic that is named as this broker, None when
        there is none.
        """
        name = self._config.broker_name
        if self._topics.find(name) is None:
            return None
        header = GetRouteInfoRequestHeader(topic=name)
        return RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)

    def is_in_route(self, body: bytes, identity: Identity) -> bool:
        """Whether that route leads here.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        route = TopicRouteData.decode(body)
        return any(
            data.broker_name == self._config.broker_name
            and data.broker_addrs.get(identity.broker_id) == identity.address
            for data in route.broker_datas
        )
