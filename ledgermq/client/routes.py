"""Where a topic is: its queues and the addresses of their brokers, and the cache of that.

A route is a value made from the name server's answer by a pure function. The cache asks for a topic
once however many want it at the same time, keeps what it has when no name server answers, and gives
a producer the route of the template topic TBW102 for a topic that does not exist yet.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ledgermq.client.checks import check_topic
from ledgermq.client.errors import NameServerError, NoRouteError, RefusedError, UnreachableError
from ledgermq.client.namespaces import with_namespace
from ledgermq.client.retry import is_passing
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import GetRouteInfoRequestHeader
from ledgermq.protocol.names import DEFAULT_TOPIC
from ledgermq.protocol.route import MASTER_ID, TopicRouteData

_READABLE: Final = 4
_WRITABLE: Final = 2
# Queues of one topic on one broker that a client is ready to hold.
_QUEUES_MAX: Final = 65_536
_TOPIC_QUEUES_MAX: Final = 1 << 17


@dataclass(slots=True, frozen=True, kw_only=True)
class TopicRoute:
    """The queues of a topic, and who serves them."""

    topic: str
    # Queues that take messages, in order of broker name and id; some may have no master now.
    write_queues: tuple[MessageQueue, ...]
    # Queues that may be read, in the same order.
    read_queues: tuple[MessageQueue, ...]
    # Broker name -> address of its master.
    masters: Mapping[str, str]
    # Broker name -> broker id -> address.
    addresses: Mapping[str, Mapping[int, str]]
    # True when the topic does not exist yet: these are the queues it would get.
    is_guess: bool = False

    def brokers(self) -> set[str]:
        """All addresses of the route."""
        return {address for by_id in self.addresses.values() for address in by_id.values()}


def route_of(topic: str, data: TopicRouteData) -> TopicRoute:
    """Returns the route that a name server's answer describes."""
    addresses = {
        broker.broker_name: dict(sorted(broker.broker_addrs.items()))
        for broker in data.broker_datas
    }
    known = [queues for queues in data.queue_datas if queues.broker_name in addresses]
    writable = queues_of(
        topic, [(one.broker_name, one.write_queue_nums) for one in known if one.perm & _WRITABLE]
    )
    readable = queues_of(
        topic, [(one.broker_name, one.read_queue_nums) for one in known if one.perm & _READABLE]
    )
    return TopicRoute(
        topic=topic,
        write_queues=tuple(sorted(writable)),
        read_queues=tuple(sorted(readable)),
        masters={name: by_id[MASTER_ID] for name, by_id in addresses.items() if MASTER_ID in by_id},
        addresses=addresses,
    )


def guessed_route(topic: str, template: TopicRoute, queue_nums: int) -> TopicRoute:
    """Returns the route that `topic` would get when a send creates it.

    Args:
        topic: a topic that does not exist.
        template: route of the template topic.
        queue_nums: queues the producer asks for; a broker gives no more than the template has.

    Source: MQClientInstance.updateTopicRouteInfoFromNameServer of 4.9.3.
    """
    queues = tuple(
        MessageQueue(topic, queue.broker_name, queue.queue_id)
        for queue in template.write_queues
        if queue.queue_id < queue_nums
    )
    return TopicRoute(
        topic=topic,
        write_queues=queues,
        read_queues=queues,
        masters=template.masters,
        addresses=template.addresses,
        is_guess=True,
    )


def queues_of(topic: str, counts: Iterable[tuple[str, int]]) -> list[MessageQueue]:
    """Returns the queues of a topic, of which a name server tells how many each broker name has.

    It may tell any number: so many are taken as a broker lets a topic have, and a million of all.
    """
    queues = (
        MessageQueue(topic, broker_name, queue_id)
        for broker_name, count in counts
        for queue_id in range(min(count, _QUEUES_MAX))
    )
    return list(itertools.islice(queues, _TOPIC_QUEUES_MAX))


class _NameServers(Protocol):
    """What the cache needs of the name servers."""

    async def request(self, command: RemotingCommand) -> RemotingCommand: ...


class RouteCache:
    """Routes by topic."""

    def __init__(
        self,
        name_servers: _NameServers,
        default_queue_nums: int = 4,
        namespace: str = "",
        on_route: Callable[[TopicRoute], None] | None = None,
    ) -> None:
        """Knows nothing yet.

        Args:
            name_servers: whom to ask.
            default_queue_nums: queues of a topic that a send creates.
            namespace: put in front of topics on the wire.
            on_route: told of each route that a name server gives.
        """
        self._on_route = on_route
        self._name_servers = name_servers
        self._default_queue_nums = default_queue_nums
        # True when a producer has said how many queues it asks for.
        self._is_limited = False
        self._namespace = namespace
        self._routes: dict[str, TopicRoute] = {}
        self._asking: dict[tuple[str, bool], asyncio.Task[TopicRoute]] = {}

    def limit_guess(self, queue_nums: int) -> None:
        """Notes how many queues a producer asks for; of several, the fewest count.

        A broker refuses what is sent to a queue that the topic did not get.
        """
        fewest = min(self._default_queue_nums, queue_nums) if self._is_limited else queue_nums
        self._default_queue_nums, self._is_limited = fewest, True

    def find(self, topic: str) -> TopicRoute | None:
        """Returns the route of a topic as it was last known."""
        return self._routes.get(topic)

    def known(self) -> list[TopicRoute]:
        """All routes that are known."""
        return list(self._routes.values())

    async def get(self, topic: str) -> TopicRoute:
        """Returns the known route of a topic, or asks for it; see refresh."""
        return self._routes.get(topic) or await self.refresh(topic)

    async def refresh(self, topic: str, *, may_create: bool = False) -> TopicRoute:
        """Asks for the route of a topic; those who ask at the same time share one request.

        Args:
            topic: its name.
            may_create: for a producer: of a topic that does not exist, the route it would get.

        Raises:
            NoRouteError: no name server knows the topic.
            NameServerError: no name server answers.
            RefusedError: it answers with another error.
            ConfigError: no topic can have that name.
        """
        check_topic(with_namespace(self._namespace, topic))
        task = self._asking.get((topic, may_create))
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(topic, may_create))
            self._asking[topic, may_create] = task
            task.add_done_callback(lambda done: self._asked(topic, may_create, done))
        return await asyncio.shield(task)

    async def _ask(self, topic: str, may_create: bool) -> TopicRoute:
        try:
            route = await self._fetch(topic)
        except NoRouteError:
            if not may_create:
                raise
            template = await self._fetch(DEFAULT_TOPIC, asked_for=topic)
            route = guessed_route(topic, template, self._default_queue_nums)
        self._routes[topic] = route
        if self._on_route is not None:
            self._on_route(route)
        return route

    async def _fetch(self, topic: str, *, asked_for: str | None = None) -> TopicRoute:
        command = RemotingCommand.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader(
                topic=with_namespace(self._namespace, topic), accept_standard_json_only=True
            ),
        )
        named = asked_for or topic
        try:
            answer = await self._name_servers.request(command)
            if answer.code == ResponseCode.SUCCESS:
                return route_of(topic, TopicRouteData.decode(answer.body))
        except UnreachableError as error:
            raise NameServerError(
                f"no name server answers, the last: {error.what}",
                retriable=error.retriable,
                broker=error.broker,
                topic=named,
            ) from error
        except RemoteProtocolError as error:
            raise NameServerError(f"unreadable route: {error}", topic=named) from error
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRouteError(
                "no name server knows the topic", retriable=True, topic=named, code=answer.code
            )
        is_retriable = is_passing(answer.code, answer.remark, frozenset((answer.code,)))
        raise RefusedError(answer.code, answer.remark, retriable=is_retriable, topic=named)

    def _asked(self, topic: str, may_create: bool, task: asyncio.Task[TopicRoute]) -> None:
        self._asking.pop((topic, may_create), None)
        if not task.cancelled():
            # Asked for here too, because all who waited for it may have gone.
            task.exception()
