"""What brokers ask a consumer, mostly because a tool asked them: offsets, state, a trial message.

    220 go on at other offsets        221 which offsets do you hold
    307 tell about yourself           309 consume this message now, and tell how it went

Source: ClientRemotingProcessor.java, ConsumerRunningInfo.java.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from ledgermq.client.connection import Answer
from ledgermq.client.endless import tell_failure
from ledgermq.client.errors import ClientError
from ledgermq.client.holding import Holding
from ledgermq.client.instance import now_ms
from ledgermq.client.listening import Listening, NotConsumedError, Tally, failure_of
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.namespaces import (
    queue_with_namespace,
    queue_without_namespace,
    without_namespace,
)
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.client.serializers import Serializer
from ledgermq.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    MessageQueue,
    ResetOffsetBody,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from ledgermq.protocol.heartbeat import ConsumeType, SubscriptionData
from ledgermq.protocol.record import decode_record
from ledgermq.protocol.running_info import (
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumeStatus,
    ProcessQueueInfo,
)

_MIB: Final = 1024 * 1024

_log = logging.getLogger("ledgermq.client")


class Consumer(NamedTuple):
    """The parts of a consumer that answers are made of."""

    # As it stands on the wire.
    group: str
    is_orderly: bool
    name_servers: tuple[str, ...]
    concurrency: int
    body_bytes_max: int
    # Returns what it wants now.
    subscriptions: Callable[[], Sequence[SubscriptionData]]
    holding: Holding
    # None when messages are iterated over.
    listening: Listening | None
    locks: QueueLocks | None
    # Taken off the names of topics.
    namespace: str = ""
    serializer: Serializer | None = None
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY


class Questions:
    """Answers for one consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._begun_ms = now_ms()
        self._tasks: set[asyncio.Task[Any]] = set()

    def answer(self, request: RemotingCommand) -> Answer:
        """Returns the answer to a request; None when it is not one of these four."""
        try:
            match request.code:
                case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                    return self._reset(request)
                case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                    return self._tell_offsets(request)
                case RequestCode.GET_CONSUMER_RUNNING_INFO:
                    return self._tell_state(request)
                case RequestCode.CONSUME_MESSAGE_DIRECTLY:
                    return self._try_message(request)
        except RemoteProtocolError as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        return None

    def close(self) -> None:
        """Ends what is still being answered."""
        for task in self._tasks:
            task.cancel()

    def _reset(self, request: RemotingCommand) -> Answer:
        header = request.header(ResetOffsetRequestHeader)
        table = {
            queue_without_namespace(self._consumer.namespace, queue): offset
            for queue, offset in ResetOffsetBody.decode(request.body).offset_table.items()
        }
        if header.group != self._consumer.group:
            return self._refusal(request, header.group)
        _log.info("%s goes on at other offsets of %r", header.group, header.topic)
        self._start(self._move(table)).add_done_callback(tell_failure)
        return request.response(ResponseCode.SUCCESS)

    async def _move(self, table: dict[MessageQueue, int]) -> None:
        try:
            await self._consumer.holding.move(table)
        except ClientError as error:
            _log.info("new offsets of %s are not committed yet: %s", self._consumer.group, error)

    def _tell_offsets(self, request: RemotingCommand) -> Answer:
        header = request.header(GetConsumerStatusRequestHeader)
        if header.group != self._consumer.group:
            return self._refusal(request, header.group)
        namespace = self._consumer.namespace
        topic = without_namespace(namespace, header.topic)
        positions = {
            queue_with_namespace(namespace, queue): offset
            for queue, offset in self._consumer.holding.positions(topic).items()
        }
        body = ConsumerStatusBody(message_queue_table=positions).encode()
        return request.response(ResponseCode.SUCCESS, body=body)

    def _tell_state(self, request: RemotingCommand) -> Answer:
        header = request.header(GetConsumerRunningInfoRequestHeader)
        consumer = self._consumer
        if header.consumer_group != consumer.group:
            return self._refusal(request, header.consumer_group)
        listening = consumer.listening
        tallies = listening.tallies if listening is not None else {}
        seconds = max(now_ms() - self._begun_ms, 1) / 1000
        info = ConsumerRunningInfo(
            properties={
                "PROP_CLIENT_VERSION": "V4_9_3",
                "PROP_CONSUMEORDERLY": "true" if consumer.is_orderly else "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._begun_ms),
                "PROP_CONSUME_TYPE": consumer.consume_type.value,
                "PROP_NAMESERVER_ADDR": ";".join(consumer.name_servers),
                "PROP_THREADPOOL_CORE_SIZE": str(consumer.concurrency),
            },
            subscription_set=list(consumer.subscriptions()),
            mq_table={
                queue_with_namespace(consumer.namespace, held.queue): self._queue_info(held)
                for held in consumer.holding.held()
            },
            status_table={topic: _status(tally, seconds) for topic, tally in tallies.items()},
        )
        return request.response(ResponseCode.SUCCESS, body=info.encode())

    def _queue_info(self, held: ProcessQueue) -> ProcessQueueInfo:
        locks = self._consumer.locks
        return ProcessQueueInfo(
            commit_offset=held.committable(),
            cached_msg_min_offset=held.committable() if held.pending_count else 0,
            cached_msg_max_offset=held.next_offset - 1 if held.pending_count else 0,
            cached_msg_count=held.pending_count,
            cached_msg_size_in_mib=held.pending_bytes // _MIB,
            locked=locks is not None and locks.is_valid(held.queue),
            last_pull_timestamp=held.pulled_ms,
            last_consume_timestamp=held.moved_ms,
        )

    def _try_message(self, request: RemotingCommand) -> Answer:
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        consumer = self._consumer
        if header.consumer_group != consumer.group:
            return self._refusal(request, header.consumer_group)
        if consumer.listening is None:
            remark = f"the consumer of {consumer.group} has no listener: it iterates"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        record = decode_record(request.body)
        topic = without_namespace(consumer.namespace, record.topic)
        queue = MessageQueue(topic, header.broker_name or "", record.queue_id)
        message = ReceivedMessage(
            record, queue, consumer.body_bytes_max, consumer.namespace, consumer.serializer
        )
        return self._start(self._consume(request, consumer.listening, message))

    async def _consume(
        self, request: RemotingCommand, listening: Listening, message: ReceivedMessage
    ) -> RemotingCommand:
        begun_s = time.perf_counter()
        outcomes = await listening.consume([message])
        failure = None if outcomes is None else failure_of(outcomes[0])
        said = "CR_LATER" if isinstance(failure, NotConsumedError) else "CR_THROW_EXCEPTION"
        result = ConsumeMessageDirectlyResult(
            consume_result="CR_SUCCESS" if failure is None else said,
            order=self._consumer.is_orderly,
            remark=None if failure is None else f"{type(failure).__name__}: {failure}",
            spent_time_mills=round((time.perf_counter() - begun_s) * 1000),
        )
        return request.response(ResponseCode.SUCCESS, body=result.encode())

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @staticmethod
    def _refusal(request: RemotingCommand, group: str) -> RemotingCommand:
        remark = f"The Consumer Group <{group}> not exist in this consumer"
        return request.response(ResponseCode.SYSTEM_ERROR, remark)


def _status(tally: Tally, seconds: float) -> ConsumeStatus:
    count = tally.consumed_count + tally.failed_count
    return ConsumeStatus(
        consume_rt=tally.busy_ms / count if count else 0.0,
        consume_ok_tps=tally.consumed_count / seconds,
        consume_failed_tps=tally.failed_count / seconds,
        consume_failed_msgs=tally.failed_count,
    )
