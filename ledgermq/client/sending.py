"""Sending: what both producers are: connections, and a road for sends while they are open."""

import abc
from typing import Self

from ledgermq.client.checks import check_group
from ledgermq.client.closing import Closing
from ledgermq.client.config import ProducerConfig
from ledgermq.client.connection import Answer
from ledgermq.client.hooks import guarded
from ledgermq.client.instance import ClientInstance, instance_of
from ledgermq.client.namespaces import with_namespace
from ledgermq.client.participant import Participant
from ledgermq.client.sends import SendRoad
from ledgermq.client.serializers import Serializer
from ledgermq.client.tracing import tracer_of
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.heartbeat import ProducerData


class Sending(Closing):
    """A producer's group, settings and connections."""

    def __init__(
        self,
        name_servers: str | ClientInstance,
        group: str,
        serializer: Serializer | None,
        config: ProducerConfig | None,
        *,
        stays_connected: bool = False,
    ) -> None:
        """Opens nothing yet; raises ConfigError for wrong addresses or a name that no group has."""
        self.group = group
        self.config = config or ProducerConfig()
        self._serializer = serializer
        self._hooks = self.config.client.hooks
        self._metrics = guarded(self.config.client.metrics)
        self._wire_group = with_namespace(self.config.client.namespace, group)
        check_group(self._wire_group)
        self._instance = instance_of(name_servers, self.config.client)
        self._participant = Participant(
            producer_group=self._wire_group,
            on_request=self._requested,
            heartbeat=lambda: ProducerData(self._wire_group),
            stays_connected=stays_connected,
            default_queue_nums=self.config.default_topic_queue_nums,
        )
        self._road: SendRoad | None = None
        self._tracer = tracer_of(self._instance, group, self.config.client)

    async def __aenter__(self) -> Self:
        self._instance.join(self._participant)
        self._road = SendRoad(self._instance, self.group, self.config)
        if self._tracer is not None:
            self._tracer.start()
        self._is_open = True
        return self

    async def close(self) -> None:
        """Closes at once: sends without an answer fail, and what is not ended of a transaction is
        asked of another producer. Safe to call twice.
        """
        road, self._road = self._road, None
        if road is None or self._instance.is_foreign:
            return
        self._is_open = False
        self._closed()
        try:
            await road.close()
            if self._tracer is not None:
                await self._tracer.close()
            await self._instance.quit(self._participant)
        finally:
            # Whoever is cancelled while it says good-bye leaves nothing behind either.
            if self._tracer is not None:
                self._tracer.abort()
            self._instance.drop(self._participant)

    def _is_elsewhere(self) -> bool:
        return self._instance.is_foreign

    def _closed(self) -> None:
        """Ends what a producer has besides."""

    def _opened(self) -> SendRoad:
        """Returns the road.

        Raises:
            ClosedError: the producer is not open.
        """
        road = self._road
        if road is None or self._instance.is_foreign:
            self._instance.check_open(road is not None, "producer")
        assert road is not None
        return road

    @abc.abstractmethod
    def _requested(self, address: str, request: RemotingCommand) -> Answer:
        """Takes a request of a broker."""
