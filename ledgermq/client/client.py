"""Client: one object for all producers and consumers of a program.

    async with Client("127.0.0.1:9876") as client:
        async with client.producer("shop") as producer, client.push_consumer(...) as consumer:
            ...

What is made of it shares its connections, routes, id and heartbeats: a broker sees one client, and
hears one heartbeat, however many groups there are. Made without it, each producer and consumer has
all of that by itself; the rest is the same. Leaving the block closes what was made of it first.
"""

import asyncio
import logging
import weakref
from dataclasses import replace
from typing import Final, Self, TypeVar

from ledgermq.client.closing import Closing
from ledgermq.client.config import ClientConfig, ConsumerConfig, Mode, ProducerConfig, Start
from ledgermq.client.errors import ConfigError
from ledgermq.client.instance import ClientInstance
from ledgermq.client.lite_pull_consumer import LitePullConsumer
from ledgermq.client.producer import DEFAULT_GROUP, Producer
from ledgermq.client.pull_consumer import DEFAULT_READER, PullConsumer
from ledgermq.client.push_consumer import Listener, PushConsumer
from ledgermq.client.serializers import Serializer
from ledgermq.client.telling import OnQueues
from ledgermq.client.topics import Topics
from ledgermq.client.transactions import Check, TransactionalProducer

_NOT_SET: Final = ClientConfig()

C = TypeVar("C", bound=Closing)

_log = logging.getLogger("ledgermq.client")


class Client(Closing):
    """Connections, routes, an id and heartbeats; use it in an ``async with`` block.

    The methods that make something take what its class takes, without the name servers; what they
    return is used in an ``async with`` block of its own, or closed by this one at its end. Of one
    consumer group there is one consumer at a time.
    """

    def __init__(
        self, name_servers: str = "127.0.0.1:9876", *, config: ClientConfig | None = None
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: ``host:port;host:port``.
            config: times, security, namespace, hooks: the same for all that is made of it.

        Raises:
            ConfigError: the addresses are wrong.
        """
        self.config = config or ClientConfig()
        self._instance = ClientInstance(name_servers, self.config, is_shared=True)
        self._made: weakref.WeakSet[Closing] = weakref.WeakSet()
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._instance.start()
        self._is_open = True
        return self

    async def close(self) -> None:
        """Closes what was made of it and is still open, then its connections. Safe to call twice.

        Each ends as by its own `close`: a call that is held at a broker ends at once.
        """
        if not self._is_open or self._instance.is_foreign:
            return
        self._is_open = False
        try:
            made = list(self._made)
            outcomes = await asyncio.gather(*(one.close() for one in made), return_exceptions=True)
            for one, outcome in zip(made, outcomes, strict=True):
                if isinstance(outcome, BaseException):
                    _log.error("%r did not close well", one, exc_info=outcome)
            await self._instance.close()
        finally:
            self._instance.abort()

    @property
    def client_id(self) -> str:
        """The name under which brokers know it."""
        return self._instance.client_id

    def producer(
        self,
        group: str = DEFAULT_GROUP,
        *,
        serializer: Serializer | None = None,
        config: ProducerConfig | None = None,
    ) -> Producer:
        """Makes a Producer."""
        config = self._producing(config)
        return self._kept(Producer(self._instance, group, serializer=serializer, config=config))

    def transactional_producer(
        self,
        group: str,
        check: Check,
        *,
        serializer: Serializer | None = None,
        config: ProducerConfig | None = None,
    ) -> TransactionalProducer:
        """Makes a TransactionalProducer."""
        config = self._producing(config)
        return self._kept(
            TransactionalProducer(
                self._instance, group, check, serializer=serializer, config=config
            )
        )

    def push_consumer(
        self,
        group: str,
        topic: Topics,
        listener: Listener | None = None,
        *,
        tags: str = "*",
        sql: str | None = None,
        start: Start = "last",
        mode: Mode = "concurrent",
        batch_max: int | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
        serializer: Serializer | None = None,
        config: ConsumerConfig | None = None,
    ) -> PushConsumer:
        """Makes a PushConsumer."""
        return self._kept(
            PushConsumer(
                self._instance,
                group,
                topic,
                listener,
                tags=tags,
                sql=sql,
                start=start,
                mode=mode,
                batch_max=batch_max,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                serializer=serializer,
                config=self._consuming(config),
            )
        )

    def lite_pull_consumer(
        self,
        group: str,
        *,
        start: Start = "last",
        auto_commit: bool = True,
        serializer: Serializer | None = None,
        config: ConsumerConfig | None = None,
    ) -> LitePullConsumer:
        """Makes a LitePullConsumer."""
        return self._kept(
            LitePullConsumer(
                self._instance,
                group,
                start=start,
                auto_commit=auto_commit,
                serializer=serializer,
                config=self._consuming(config),
            )
        )

    def pull_consumer(
        self,
        group: str = DEFAULT_READER,
        *,
        tags: str = "*",
        sql: str | None = None,
        serializer: Serializer | None = None,
        config: ConsumerConfig | None = None,
    ) -> PullConsumer:
        """Makes a PullConsumer."""
        return self._kept(
            PullConsumer(
                self._instance,
                group,
                tags=tags,
                sql=sql,
                serializer=serializer,
                config=self._consuming(config),
            )
        )

    def _is_elsewhere(self) -> bool:
        return self._instance.is_foreign

    def _producing(self, config: ProducerConfig | None) -> ProducerConfig:
        config = config or ProducerConfig()
        return replace(config, client=self._checked(config.client))

    def _consuming(self, config: ConsumerConfig | None) -> ConsumerConfig:
        config = config or ConsumerConfig()
        return replace(config, client=self._checked(config.client))

    def _checked(self, given: ClientConfig) -> ClientConfig:
        if given not in (_NOT_SET, self.config):
            raise ConfigError(
                "the settings of connections are those of the Client: give them to it"
            )
        return self.config

    def _kept(self, made: C) -> C:
        """Keeps what is made in mind, to close it at the end."""
        self._made.add(made)
        return made
