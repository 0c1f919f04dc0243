"""Client without an event loop: one thread for all producers and consumers made of it."""

from ledgermq.client.blocking.consumers import LitePullConsumer, PullConsumer, PushConsumer
from ledgermq.client.blocking.producers import Producer, TransactionalProducer
from ledgermq.client.blocking.twin import Twin
from ledgermq.client.client import Client as AsyncClient
from ledgermq.client.config import ClientConfig, ConsumerConfig, Mode, ProducerConfig, Start
from ledgermq.client.producer import DEFAULT_GROUP
from ledgermq.client.pull_consumer import DEFAULT_READER
from ledgermq.client.push_consumer import Listener
from ledgermq.client.serializers import Serializer
from ledgermq.client.telling import OnQueues
from ledgermq.client.topics import Topics
from ledgermq.client.transactions import Check


class Client(Twin[AsyncClient]):
    """See ledgermq.client.Client; use it in a ``with`` block.

    What is made of it runs on its thread, and is used in ``with`` blocks inside of its own.
    """

    def __init__(
        self, name_servers: str = "127.0.0.1:9876", *, config: ClientConfig | None = None
    ) -> None:
        """Opens nothing yet; the arguments are those of the asyncio face."""
        super().__init__(AsyncClient(name_servers, config=config))

    @property
    def client_id(self) -> str:
        """The name under which brokers know it."""
        return self._twin.client_id

    def producer(
        self,
        group: str = DEFAULT_GROUP,
        *,
        serializer: Serializer | None = None,
        config: ProducerConfig | None = None,
    ) -> Producer:
        """Makes a Producer."""
        made = self._twin.producer(
            group,
            serializer=serializer,
            config=config,
        )
        return Producer.of(made, self)

    def transactional_producer(
        self,
        group: str,
        check: Check,
        *,
        serializer: Serializer | None = None,
        config: ProducerConfig | None = None,
    ) -> TransactionalProducer:
        """Makes a TransactionalProducer."""
        made = self._twin.transactional_producer(
            group,
            check,
            serializer=serializer,
            config=config,
        )
        return TransactionalProducer.of(made, self)

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
        made = self._twin.push_consumer(
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
            config=config,
        )
        return PushConsumer.of(made, self)

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
        made = self._twin.lite_pull_consumer(
            group,
            start=start,
            auto_commit=auto_commit,
            serializer=serializer,
            config=config,
        )
        return LitePullConsumer.of(made, self)

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
        made = self._twin.pull_consumer(
            group,
            tags=tags,
            sql=sql,
            serializer=serializer,
            config=config,
        )
        return PullConsumer.of(made, self)
