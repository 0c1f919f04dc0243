"""Messaging: producers and consumers that live as long as an ASGI application.

    messaging = Messaging("127.0.0.1:9876", group="shop")
    app = FastAPI(lifespan=messaging.lifespan)

    @messaging.on("orders", group="invoices")
    async def bill(message): ...

For Starlette, FastAPI, and whatever takes a lifespan in Starlette's form; none of them is imported.
The server says that it is up when the consumers have begun, and ends when they have, the consumers
before the producer: what listeners still send is sent.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ledgermq.client.client import Client
from ledgermq.client.config import ClientConfig, ConsumerConfig, Mode, ProducerConfig, Start
from ledgermq.client.errors import ClosedError, ConfigError
from ledgermq.client.messages import Message, SendResult
from ledgermq.client.producer import DEFAULT_GROUP, Producer
from ledgermq.client.push_consumer import Listener, PushConsumer
from ledgermq.client.serializers import Serializer
from ledgermq.client.topics import Topics

L = TypeVar("L", bound=Listener)

_HOW: Final = "give the application lifespan=messaging.lifespan"


@dataclass(slots=True, frozen=True, kw_only=True)
class _Subscription:
    group: str
    topic: Topics
    listener: Listener
    tags: str
    start: Start
    mode: Mode
    config: ConsumerConfig | None


class Messaging:
    """One client, one producer and any number of consumers of an application.

    It may be made at import, before the server forks: nothing is opened before the lifespan begins,
    and an application that is started again gets a new client.
    """

    def __init__(
        self,
        name_servers: str = "127.0.0.1:9876",
        *,
        group: str = DEFAULT_GROUP,
        serializer: Serializer | None = None,
        config: ClientConfig | None = None,
        producer_config: ProducerConfig | None = None,
    ) -> None:
        """Opens nothing.

        Args:
            name_servers: ``host:port;host:port``.
            group: of the producer.
            serializer: of bodies that are sent, and of values that listeners see.
            config: times, security, namespace, hooks of the client.
            producer_config: limits and times of sends.

        Raises:
            ConfigError: the addresses are wrong.
        """
        Client(name_servers, config=config)
        self._name_servers = name_servers
        self._group = group
        self._serializer = serializer
        self._config = config
        self._producer_config = producer_config
        self._subscriptions: list[_Subscription] = []
        self._client: Client | None = None
        self._producer: Producer | None = None
        self._consumers: list[PushConsumer] = []

    def on(
        self,
        topic: Topics,
        *,
        group: str,
        tags: str = "*",
        start: Start = "last",
        mode: Mode = "concurrent",
        config: ConsumerConfig | None = None,
    ) -> Callable[[L], L]:
        """Makes a function the listener of a group, from the begin of the lifespan to its end.

        Args:
            topic: one, several, or a pattern of names.
            group: of the consumer; one listener for each.
            tags: ``*`` for all, or tags joined by ``||``.
            start: where a group that has consumed nothing begins: "first" or "last" message.
            mode: "concurrent", "orderly" or "broadcast".
            config: times and limits of the consumer.

        Raises:
            ConfigError: the group has a listener already, or the application runs.
        """
        if any(known.group == group for known in self._subscriptions):
            raise ConfigError(f"group {group} has a listener already; one client is one member")
        if self._client is not None:
            raise ConfigError(f"group {group} comes too late: the application runs")

        def keep(listener: L) -> L:
            self._subscriptions.append(
                _Subscription(
                    group=group,
                    topic=topic,
                    listener=listener,
                    tags=tags,
                    start=start,
                    mode=mode,
                    config=config,
                )
            )
            return listener

        return keep

    @asynccontextmanager
    async def lifespan(self, _app: Any = None) -> AsyncIterator[None]:
        """Opens all for as long as the application runs; enter it in a lifespan of your own, too.

        Raises:
            ConfigError: it runs already: one Messaging belongs to one application.
            ClientError: a consumer cannot begin; what was opened is closed again.
        """
        if self._client is not None:
            raise ConfigError("this Messaging runs already; make one for each application")
        try:
            async with AsyncExitStack() as stack:
                client = Client(self._name_servers, config=self._config)
                self._client = await stack.enter_async_context(client)
                producer = client.producer(
                    self._group, serializer=self._serializer, config=self._producer_config
                )
                self._producer = await stack.enter_async_context(producer)
                for wanted in self._subscriptions:
                    self._consumers.append(
                        await stack.enter_async_context(self._consumer(client, wanted))
                    )
                yield
        finally:
            self._client = self._producer = None
            self._consumers = []

    def _consumer(self, client: Client, wanted: _Subscription) -> PushConsumer:
        return client.push_consumer(
            wanted.group,
            wanted.topic,
            wanted.listener,
            tags=wanted.tags,
            start=wanted.start,
            mode=wanted.mode,
            serializer=self._serializer,
            config=wanted.config,
        )

    @property
    def client(self) -> Client:
        """The client, to make more of it.

        Raises:
            ClosedError: the application does not run.
        """
        if self._client is None:
            raise ClosedError(f"the application does not run; {_HOW}")
        return self._client

    @property
    def producer(self) -> Producer:
        """The producer; as a dependency of FastAPI: ``Depends(lambda: messaging.producer)``.

        Raises:
            ClosedError: the application does not run.
        """
        if self._producer is None:
            raise ClosedError(f"the application does not run; {_HOW}")
        return self._producer

    @property
    def consumers(self) -> list[PushConsumer]:
        """The consumers, in the order of their listeners; none while the application is down."""
        return list(self._consumers)

    async def send(self, message: Message, *, ordering_key: str | None = None) -> SendResult:
        """Sends a message and returns where it is stored; see Producer.send.

        Raises:
            ClosedError: the application does not run.
            ClientError: as for Producer.send.
        """
        return await self.producer.send(message, ordering_key=ordering_key)
