"""AdminClient: what operators do with a cluster, from a program."""

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ledgermq.client.admin import groups, lag, offsets, topics
from ledgermq.client.admin.asking import Asking, each
from ledgermq.client.admin.dead_letter_work import DeadLetterWork, OnOutcome
from ledgermq.client.admin.dead_letters import DeadLetters
from ledgermq.client.admin.offsets import ResetTo
from ledgermq.client.admin.results import (
    BrokerState,
    DeadLetter,
    DeadLetterOutcome,
    GroupDescription,
    GroupLag,
    GroupSummary,
    OffsetChange,
    TopicDescription,
    TopicSummary,
)
from ledgermq.client.closing import Closing
from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import ClientError, UnreachableError
from ledgermq.protocol.bodies import SubscriptionGroupConfig
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.route import KVTable

T = TypeVar("T")
P = ParamSpec("P")


def _readable(
    method: Callable[Concatenate["AdminClient", P], Awaitable[T]],
) -> Callable[Concatenate["AdminClient", P], Coroutine[Any, Any, T]]:
    """Checks that the client is open, and turns what cannot be read into a ClientError."""

    @functools.wraps(method)
    async def call(self: "AdminClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._check_open()
        try:
            return await method(self, *args, **kwargs)
        except RemoteProtocolError as error:
            raise UnreachableError(f"unreadable answer: {error}") from error
        except ExceptionGroup as failures:
            # Of several brokers that were asked at the same time, the first that failed speaks.
            for failure in failures.exceptions:
                if isinstance(failure, ClientError):
                    raise failure from failure.__cause__
                if isinstance(failure, RemoteProtocolError):
                    raise UnreachableError(f"unreadable answer: {failure}") from failure
            raise

    return call


class AdminClient(Closing):
    """Looks at a cluster and changes it; use it in an ``async with`` block.

    Names of topics and groups are those on the wire: there is no namespace. Every call raises
    NameServerError or UnreachableError when somebody who must be asked does not answer,
    RefusedError when a broker answers with an error, NotFoundError when what is named is not there,
    and ConfigError for an argument that cannot be; `retriable` says whether to call again.
    """

    def __init__(
        self, name_servers: str = "127.0.0.1:9876", *, config: ClientConfig | None = None
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: ``host:port;host:port``.
            config: times, account and TLS.

        Raises:
            ConfigError: an address is wrong, or the settings have a namespace.
        """
        self._asking = Asking(name_servers, config or ClientConfig())
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._asking.instance.start()
        self._is_open = True
        return self

    async def close(self) -> None:
        """Closes at once. Safe to call twice."""
        if self._is_open and not self._asking.instance.is_foreign:
            self._is_open = False
            await self._asking.instance.close()

    def _check_open(self) -> None:
        """Checks that it may be used.

        Raises:
            ClosedError: it is used outside its block.
        """
        self._asking.instance.check_open(self._is_open, "admin client")

    # The cluster.

    @_readable
    async def brokers(self) -> list[BrokerState]:
        """Returns all brokers with what they tell about themselves, by cluster, name and id.

        One that does not answer is in the list, and says why.
        """
        info = await self._asking.clusters()
        listed = [
            BrokerState(cluster=cluster, broker_name=name, broker_id=broker_id, address=address)
            for cluster, names in sorted(info.cluster_addr_table.items())
            for name in sorted(names)
            if name in info.broker_addr_table
            for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
        ]
        return await each(self._told, listed)

    async def _told(self, broker: BrokerState) -> BrokerState:
        figures: dict[str, str] = {}
        failure = None
        try:
            code = RequestCode.GET_BROKER_RUNTIME_INFO
            figures = KVTable.decode((await self._asking.call(broker.address, code)).body).table
        except (ClientError, RemoteProtocolError) as error:
            failure = str(error)
        return BrokerState(
            cluster=broker.cluster,
            broker_name=broker.broker_name,
            broker_id=broker.broker_id,
            address=broker.address,
            failure=failure,
            figures=figures,
        )

    # Topics.

    @_readable
    async def topics(self) -> list[TopicSummary]:
        """Returns all topics, sorted by name."""
        return await topics.topics(self._asking)

    @_readable
    async def create_topic(
        self,
        name: str,
        *,
        queue_count: int = 8,
        permission: int = 6,
        is_ordered: bool = False,
        attributes: str = "",
        cluster: str | None = None,
        wait_s: float = 10.0,
    ) -> None:
        """Creates a topic on all brokers of a cluster that lead.

        Args:
            name: of a topic that is not there.
            queue_count: on each broker.
            permission: 2 write, 4 read, 6 both.
            is_ordered: for consumers in order over several brokers.
            attributes: such as ``+message.type=FIFO``.
            cluster: None for all clusters that the name servers know.
            wait_s: returns when the name servers know it, or fails so late; 0 does not wait.
        """
        settings = topics.topic_settings(
            name,
            read_queue_count=queue_count,
            write_queue_count=queue_count,
            permission=permission,
            is_ordered=is_ordered,
            attributes=attributes,
        )
        await topics.create_topic(self._asking, cluster, settings, wait_s)

    @_readable
    async def update_topic(
        self,
        name: str,
        *,
        queue_count: int | None = None,
        permission: int | None = None,
        is_ordered: bool | None = None,
        attributes: str = "",
    ) -> None:
        """Changes what is given of a topic on all its brokers; the rest stays."""
        await topics.update_topic(
            self._asking,
            name,
            queue_count=queue_count,
            permission=permission,
            is_ordered=is_ordered,
            attributes=attributes,
        )

    @_readable
    async def delete_topic(self, name: str, *, cluster: str | None = None) -> None:
        """Deletes a topic with its messages and the offsets in it; what is not there is no error.

        Args:
            name: its name.
            cluster: None for all clusters that the name servers know.
        """
        await topics.delete_topic(self._asking, name, cluster)

    @_readable
    async def describe_topic(self, name: str) -> TopicDescription:
        """Returns settings, queues and groups of a topic."""
        return await topics.describe_topic(self._asking, name)

    # Groups.

    @_readable
    async def groups(self, *, with_members: bool = True) -> list[GroupSummary]:
        """Returns all consumer groups, sorted by name.

        Args:
            with_members: counts the members, which takes a request to each broker for each group.
        """
        return await groups.groups(self._asking, with_members=with_members)

    @_readable
    async def describe_group(self, name: str) -> GroupDescription:
        """Returns settings, members, lag and problems of a group."""
        return await groups.describe_group(self._asking, name)

    @_readable
    async def group_settings(self, name: str) -> dict[str, SubscriptionGroupConfig]:
        """Returns the settings of a group by address of each broker that has any."""
        return await groups.settings_of(self._asking, name)

    @_readable
    async def delete_group(
        self,
        name: str,
        *,
        cluster: str | None = None,
        with_offsets: bool = True,
        with_topics: bool = True,
    ) -> None:
        """Deletes a group.

        Args:
            name: its name.
            cluster: None for all clusters that the name servers know.
            with_offsets: forgets how far it has consumed.
            with_topics: deletes its retry topic and its dead letters.
        """
        await groups.delete_group(
            self._asking,
            name,
            cluster=cluster,
            with_offsets=with_offsets,
            with_topics=with_topics,
        )

    @_readable
    async def lag(self, group: str, *, topic: str | None = None) -> GroupLag:
        """Returns how far a group is behind, in all its topics or in one."""
        return await lag.lag_of(self._asking, group, topic)

    @_readable
    async def lags(self) -> list[GroupLag]:
        """Returns how far all groups are behind, sorted by name: one request to each broker."""
        return await lag.lags(self._asking)

    # Offsets.

    @_readable
    async def preview_reset(
        self, group: str, topic: str, to: ResetTo, *, forward: bool = True
    ) -> list[OffsetChange]:
        """Returns what reset_offsets would change, by queue; nothing is changed."""
        return await offsets.preview_reset(self._asking, group, topic, to, forward=forward)

    @_readable
    async def reset_offsets(
        self, group: str, topic: str, to: ResetTo, *, forward: bool = True
    ) -> list[OffsetChange]:
        """Makes a group go on elsewhere in a topic, whether it is online or not.

        Args:
            group: the group.
            topic: the topic.
            to: "first", "last", a datetime with its zone, or ms since 1970.
            forward: False leaves alone the queues where the group would leave messages out.

        Returns:
            By queue what was and what is.
        """
        return await offsets.reset_offsets(self._asking, group, topic, to, forward=forward)

    @_readable
    async def copy_offsets(self, from_group: str, to_group: str, topic: str) -> list[OffsetChange]:
        """Makes a group go on where another one is."""
        return await offsets.copy_offsets(self._asking, from_group, to_group, topic)

    # Dead letters.

    @_readable
    async def dead_letters(
        self,
        group: str,
        *,
        start: ResetTo = "first",
        stop: ResetTo = "last",
        count_max: int = 100,
        waiting_only: bool = True,
    ) -> list[DeadLetter]:
        """Returns messages that a group gave up on, in the order of their queues.

        Args:
            group: the group.
            start: the oldest, or those stored at a time or later.
            stop: all, or those stored before a time.
            count_max: so many at most.
            waiting_only: False returns those that were sent again or dropped, too.
        """
        letters = DeadLetters(self._asking, group)
        return await letters.browse(
            start=start, stop=stop, count_max=count_max, waiting_only=waiting_only
        )

    @_readable
    async def dead_letter(self, group: str, letter_id: str) -> list[DeadLetter]:
        """Returns the dead letter at a place (broker/queue/offset), or those of a message id."""
        letters = DeadLetters(self._asking, group)
        found = await letters.find(letter_id)
        return [await letters.look_at(one, await letters.done_before(one.queue)) for one in found]

    @_readable
    async def resend_dead_letters(
        self,
        group: str,
        ids: Iterable[str],
        *,
        rate: float | None = None,
        on_outcome: OnOutcome | None = None,
    ) -> list[DeadLetterOutcome]:
        """Sends dead letters to the topics that they came from.

        Each is sent once, however often and by whomever that is asked for: body, keys, tags,
        properties and message id stay as they were. One that fails does not end the others.

        Args:
            group: the group.
            ids: places (broker/queue/offset), or ids of messages.
            rate: messages a second at most.
            on_outcome: told of each outcome as it comes.

        Raises:
            ClientError: somebody else works on them now.
        """
        work = DeadLetterWork(DeadLetters(self._asking, group), rate, on_outcome)
        return await work.resend(ids)

    @_readable
    async def drop_dead_letters(
        self,
        group: str,
        ids: Iterable[str],
        *,
        rate: float | None = None,
        on_outcome: OnOutcome | None = None,
    ) -> list[DeadLetterOutcome]:
        """Notes that dead letters are dealt with: lists leave them out, retention deletes them.

        The arguments are those of resend_dead_letters.
        """
        work = DeadLetterWork(DeadLetters(self._asking, group), rate, on_outcome)
        return await work.drop(ids)

    @_readable
    async def drop_all_dead_letters(self, group: str, *, stop: ResetTo = "last") -> int:
        """Notes that all dead letters, or those before a time, are dealt with; returns how many."""
        work = DeadLetterWork(DeadLetters(self._asking, group), None, None)
        return await work.drop_all(stop)
