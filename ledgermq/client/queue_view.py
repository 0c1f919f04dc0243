"""QueueView: what consumers that read at offsets can ask about queues."""

from ledgermq.client.closing import Closing
from ledgermq.client.instance import ClientInstance
from ledgermq.client.queue_requests import QueueRequests
from ledgermq.protocol.bodies import MessageQueue


class QueueView(Closing):
    """The questions that PullConsumer and LitePullConsumer share."""

    _instance: ClientInstance
    _requests: QueueRequests

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Returns the readable queues of a topic, asked for anew."""
        self._check_open()
        return list((await self._instance.routes.refresh(topic)).read_queues)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the oldest message."""
        self._check_open()
        return await self._requests.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the next message will have."""
        self._check_open()
        return await self._requests.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Returns the offset of the message stored nearest to a time (ms since 1970).

        That may be an earlier one: the last before the time, where it is nearer than the next, or
        where nothing came since. Returns: the oldest or newest when the time lies outside; 0 of
        an empty queue.
        """
        self._check_open()
        return await self._requests.offset_at(queue, timestamp_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Returns the committed offset of the group, None when there is none."""
        self._check_open()
        return await self._requests.committed(queue)

    def _is_elsewhere(self) -> bool:
        return self._instance.is_foreign

    def _check_open(self) -> None:
        self._instance.check_open(self._is_open, "consumer")
