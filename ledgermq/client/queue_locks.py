"""QueueLocks: the queues that a broker has locked for this member of a group.

A broker gives each queue to one member at a time, until the member gives it back or is silent for
a minute. A new leader knows of no lock, so members ask again well before that, and count on a lock
for half a minute only.

Source: RebalanceImpl and ConsumeMessageOrderlyService of 4.9.3.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from ledgermq.client.endless import Lasting, all_of
from ledgermq.client.errors import ClientError, RefusedError, UnreachableError
from ledgermq.client.instance import ClientInstance
from ledgermq.client.namespaces import (
    queue_with_namespace,
    queue_without_namespace,
    with_namespace,
)
from ledgermq.client.retry import is_passing
from ledgermq.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError

# How often locks are asked for again.
RENEW_INTERVAL_S: Final = 20.0
# How long a lock is counted on without news; a broker keeps it for 60 s.
VALID_S: Final = 30.0

_log = logging.getLogger("ledgermq.client")


class QueueLocks:
    """The locks of one member."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        now_s: Callable[[], float],
        namespace: str = "",
    ) -> None:
        self._instance = instance
        self._namespace = namespace
        self._group = with_namespace(namespace, group)
        self._now_s = now_s
        # When each lock was last granted.
        self._granted_s: dict[MessageQueue, float] = {}
        # What was asked for and neither refused nor given back: a broker may have granted it, also
        # when its answer never came or nobody waited for it any more.
        self._asked: set[MessageQueue] = set()
        self._renewals = Lasting(f"{group} renews its locks")

    def is_valid(self, queue: MessageQueue) -> bool:
        """True while no other member can have the queue."""
        granted_s = self._granted_s.get(queue)
        return granted_s is not None and self._now_s() - granted_s < VALID_S

    async def take(self, queue: MessageQueue) -> bool:
        """Asks for a queue; False when another member has it.

        Raises:
            ClientError: its broker could not be asked.
        """
        return queue in await self._ask([queue])

    async def renew(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Asks for queues again; returns those that another member has now.

        What a broker does not answer stays as it is, and becomes invalid by itself.
        """
        by_broker: dict[tuple[str, str], list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault((queue.topic, queue.broker_name), []).append(queue)
        lost: list[MessageQueue] = []
        for wanted in by_broker.values():
            try:
                held = await self._ask(wanted)
                self._renewals.succeeded()
            except ClientError as error:
                # Nothing is consumed without them.
                level = self._renewals.level_of(error)
                _log.log(level, "locks of %s are not renewed: %s", self._group, error)
                continue
            lost += [queue for queue in wanted if queue not in held]
        return lost

    async def give_back(self, queue: MessageQueue) -> None:
        """Lets another member have a queue; one that is not told waits for a minute."""
        self._granted_s.pop(queue, None)
        self._asked.discard(queue)
        body = UnlockBatchRequestBody(self._group, self._instance.client_id, [self._wire(queue)])
        command = RemotingCommand.request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode())
        try:
            address = await self._instance.master_of(queue.topic, queue.broker_name)
            await self._instance.request(address, command)
        except ClientError as error:
            _log.info("%s is not unlocked: %s", queue, error)

    async def give_all_back(self) -> None:
        """Lets other members have all queues that may be locked for this one."""
        await all_of(map(self.give_back, sorted(self._asked)))

    def abandon(self) -> None:
        """Does as give_all_back, but waits for nothing: a broker without a connection hears nothing
        of it.
        """
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in sorted(self._asked):
            route = self._instance.routes.find(queue.topic)
            address = None if route is None else route.masters.get(queue.broker_name)
            if address is not None:
                by_address.setdefault(address, []).append(self._wire(queue))
        self._asked.clear()
        self._granted_s.clear()
        for address, queues in by_address.items():
            connection = self._instance.connections.find(address)
            if connection is not None:
                body = UnlockBatchRequestBody(self._group, self._instance.client_id, queues)
                connection.send_one_way(
                    RemotingCommand.request(
                        RequestCode.UNLOCK_BATCH_MQ, body=body.encode(), one_way=True
                    )
                )

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        return queue_with_namespace(self._namespace, queue)

    async def _ask(self, queues: list[MessageQueue]) -> set[MessageQueue]:
        """Asks the broker of some queues of one topic for their locks."""
        place = queues[0]
        # Granted at the earliest when it was asked for.
        asked_s = self._now_s()
        address = await self._instance.master_of(place.topic, place.broker_name)
        body = LockBatchRequestBody(
            self._group, self._instance.client_id, list(map(self._wire, queues))
        )
        command = RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=body.encode())
        self._asked.update(queues)
        answer = await self._instance.request(address, command)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(
                answer.code,
                answer.remark,
                retriable=is_passing(answer.code, answer.remark, frozenset((answer.code,))),
                broker=place.broker_name,
                topic=place.topic,
            )
        try:
            granted = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
        except RemoteProtocolError as error:
            raise UnreachableError(f"unreadable answer: {error}", broker=address) from error
        held = {queue_without_namespace(self._namespace, queue) for queue in granted}
        for queue in queues:
            if queue in held:
                self._granted_s[queue] = asked_s
            else:
                self._granted_s.pop(queue, None)
                self._asked.discard(queue)
        return held
