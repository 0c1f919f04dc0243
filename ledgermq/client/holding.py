"""Holding: the queues that one member of a group has, with a pull on its way for each.

It takes and drops queues as they are shared out, pulls while there is room, follows the leader, and
commits what is consumed. What it pulls goes into the queue that its owner gave.
"""

import asyncio
import contextlib
import logging
import random
from typing import Final

from ledgermq.client.allocation import allocate
from ledgermq.client.config import ConsumerConfig
from ledgermq.client.errors import ClientError, RefusedError, UnreachableError
from ledgermq.client.instance import ClientInstance, tell_failure
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.process_queue import ProcessQueue, offset_after_illegal
from ledgermq.client.queue_requests import PullResult, PullStatus, QueueRequests
from ledgermq.client.retry import back_off_ms
from ledgermq.client.routes import MASTER_ID, TopicRoute
from ledgermq.protocol.bodies import GetConsumerListByGroupResponseBody, MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import GetConsumerListByGroupRequestHeader

# Tries of the last commit; a leader may just be changing.
_LAST_COMMIT_TRIES: Final = 4

# How long another member gets to commit what it consumed of a queue that is now this member's.
# Without it most of the messages that it had in hand would come twice.
_HANDOVER_S: Final = 0.25

_log = logging.getLogger("ledgermq.client")


class _Held:
    """One queue with the task that pulls it."""

    __slots__ = ("process_queue", "puller", "room")

    def __init__(self, process_queue: ProcessQueue) -> None:
        self.process_queue = process_queue
        self.puller: asyncio.Task[None] | None = None
        # Set when a message was consumed.
        self.room = asyncio.Event()


class Holding:
    """The queues of one member."""

    def __init__(
        self,
        instance: ClientInstance,
        requests: QueueRequests,
        arrived: asyncio.Queue[tuple[ProcessQueue, ReceivedMessage] | None],
        config: ConsumerConfig,
    ) -> None:
        self._instance = instance
        self._requests = requests
        self._arrived = arrived
        self._config = config
        self._held: dict[MessageQueue, _Held] = {}
        # Where a group without an offset begins; by topic.
        self._starts: dict[str, str] = {}

    @property
    def pending_count(self) -> int:
        """Messages that are pulled and not consumed."""
        return sum(held.process_queue.pending_count for held in self._held.values())

    def queues(self, topic: str) -> list[MessageQueue]:
        """Returns the queues of a topic that this member has now, sorted."""
        return sorted(queue for queue in self._held if queue.topic == topic)

    def begin_at(self, topic: str, start: str) -> None:
        """Says where a group without an offset begins in a topic: "first" (so by default) or
        "last".
        """
        self._starts[topic] = start

    async def share_out(self, topic: str, group: str, tags: str) -> bool:
        """Takes and drops queues of a topic until they are this member's part.

        Returns:
            False when another round is needed soon: this member is not known yet, or a queue could
            not be taken.

        Raises:
            ClientError: route or members are not to be had; everything stays as it is.
        """
        route = await self._instance.routes.get(topic)
        members = await self._members(route, group)
        if self._instance.client_id not in members:
            return False
        mine = set(allocate(route.read_queues, members, self._instance.client_id))
        lost = [queue for queue in self._held if queue.topic == topic and queue not in mine]
        await asyncio.gather(*map(self._drop, lost))
        wanted = [queue for queue in sorted(mine) if queue not in self._held]
        if wanted and len(members) > 1:
            # The member that had them commits as it learns that it has them no more.
            await asyncio.sleep(_HANDOVER_S)
        return all(await asyncio.gather(*(self._take(queue, tags) for queue in wanted)))

    def made_room(self, process_queue: ProcessQueue) -> None:
        """Notes that a message of a queue was consumed."""
        held = self._held.get(process_queue.queue)
        if held is not None:
            held.room.set()

    async def commit(self) -> None:
        """Tells the brokers what is consumed and not yet told.

        Raises:
            ClientError: one of them could not be told; the others were.
        """
        failures = await asyncio.gather(
            *(self._commit(held.process_queue) for held in list(self._held.values())),
            return_exceptions=True,
        )
        for failure in failures:
            if isinstance(failure, BaseException):
                raise failure

    def stop(self) -> None:
        """Ends all pulls; nothing that is pulled shall be consumed any more."""
        for held in self._held.values():
            held.process_queue.is_dropped = True
            if held.puller is not None:
                held.puller.cancel()

    async def commit_at_end(self) -> None:
        """Commits for the last time, a few times when a broker cannot be told at once."""
        for attempt in range(1, _LAST_COMMIT_TRIES + 1):
            try:
                await self.commit()
                return
            except ClientError as error:
                _log.info("last commit: %s", error)
                await asyncio.sleep(back_off_ms(attempt + 2, 1.0) / 1000)

    async def _members(self, route: TopicRoute, group: str) -> list[str]:
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        # Any broker of the topic knows all members: they tell all of them that they are there.
        addresses = [
            by_id.get(MASTER_ID) or next(iter(by_id.values()))
            for by_id in route.addresses.values()
            if by_id
        ]
        random.shuffle(addresses)
        failure: ClientError = UnreachableError("no broker", retriable=True, topic=route.topic)
        for address in addresses:
            command = RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            try:
                answer = await self._instance.request(address, command)
                if answer.code == ResponseCode.SUCCESS:
                    body = GetConsumerListByGroupResponseBody.decode(answer.body)
                    return body.consumer_id_list
                failure = RefusedError(answer.code, answer.remark, retriable=True, broker=address)
            except UnreachableError as error:
                failure = error
            except RemoteProtocolError as error:
                failure = UnreachableError(f"unreadable answer: {error}", broker=address)
        with contextlib.suppress(ClientError):
            await self._instance.routes.refresh(route.topic)
        raise failure

    async def _take(self, queue: MessageQueue, tags: str) -> bool:
        try:
            offset = await self._requests.committed(queue)
            if offset is None:
                if self._starts.get(queue.topic, "first") == "last":
                    offset = await self._requests.max_offset(queue)
                else:
                    offset = await self._requests.min_offset(queue)
        except ClientError as error:
            _log.info("cannot take %s yet: %s", queue, error)
            return False
        self._hold(queue, offset, tags)
        return True

    def _hold(self, queue: MessageQueue, offset: int, tags: str) -> None:
        held = _Held(ProcessQueue(queue, offset))
        self._held[queue] = held
        held.puller = asyncio.get_running_loop().create_task(self._pull(held, tags))
        held.puller.add_done_callback(tell_failure)

    async def _drop(self, queue: MessageQueue) -> None:
        held = self._held.pop(queue)
        held.process_queue.is_dropped = True
        if held.puller is not None:
            held.puller.cancel()
        with contextlib.suppress(ClientError):
            await self._commit(held.process_queue)

    async def _commit(self, process_queue: ProcessQueue) -> None:
        offset = process_queue.committable()
        if offset != process_queue.committed:
            await self._requests.commit(process_queue.queue, offset)
            process_queue.committed = offset

    async def _pull(self, held: _Held, tags: str) -> None:
        """Pulls one queue until it is dropped."""
        process_queue = held.process_queue
        loop = asyncio.get_running_loop()
        failures = 0
        illegal_since_s: float | None = None
        while True:
            while process_queue.is_full(
                self._config.cached_messages_max, self._config.cached_bytes_max
            ):
                held.room.clear()
                await held.room.wait()
            offset = process_queue.next_offset
            try:
                # As stock clients do, each pull tells what is consumed; commit() tells the rest.
                result = await self._requests.pull(
                    process_queue.queue,
                    offset,
                    tags=tags,
                    commit_offset=process_queue.committable() or None,
                )
            except ClientError as error:
                failures += 1
                level = logging.INFO if error.retriable else logging.WARNING
                _log.log(level, "pull failed: %s", error)
                await asyncio.sleep(back_off_ms(failures, random.random()) / 1000)
                continue
            failures = 0
            if result.status is not PullStatus.OFFSET_ILLEGAL:
                illegal_since_s = None
                self._arrive(process_queue, result)
                continue
            illegal_since_s = illegal_since_s or loop.time()
            waited_s = loop.time() - illegal_since_s
            moved = offset_after_illegal(offset, result.min_offset, result.max_offset, waited_s)
            if moved is not None:
                _log.warning(
                    "offset %d of %s is gone, on at %d", offset, process_queue.queue, moved
                )
                process_queue.is_dropped = True
                self._hold(process_queue.queue, moved, tags)
                return
            await asyncio.sleep(back_off_ms(5, random.random()) / 1000)

    def _arrive(self, process_queue: ProcessQueue, result: PullResult) -> None:
        for message in process_queue.add(result.messages, result.next_offset):
            self._arrived.put_nowait((process_queue, message))
