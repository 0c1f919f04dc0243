"""What a consumer asks the leader of a queue: messages, offsets, and to take a message back.

Every failure is a ClientError that names broker, topic and queue. A failure that a new leader may
heal has made sure that the next try asks the name server first.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final

from ledgermq.client.checks import check_group
from ledgermq.client.config import ConsumerConfig
from ledgermq.client.delays import level_of
from ledgermq.client.errors import (
    ClientError,
    ClosedError,
    NoRouteError,
    RefusedError,
    UnreachableError,
)
from ledgermq.client.first_commits import FirstCommits
from ledgermq.client.instance import ClientInstance
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.namespaces import with_namespace
from ledgermq.client.retry import ROUTE_CODES, is_passing
from ledgermq.client.serializers import Serializer
from ledgermq.client.subscription import EVERYTHING, Expression
from ledgermq.protocol import sysflag
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    Header,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from ledgermq.protocol.properties import TAGS
from ledgermq.protocol.record import decode_record

# A pull is answered this long after the broker may hold it, or it is lost.
_PULL_GRACE_S: Final = 10.0
# As Java's default for a message that fails again and again.
_RECONSUME_TIMES_MAX: Final = 16
# Delay level that means: to the dead letters, whatever was tried before.
_BURY_AT_ONCE: Final = -1
# Pulls that may be refused for a moment only: the next heartbeat or a quieter broker heals them.
_PASSING_PULL_CODES: Final = ROUTE_CODES | {
    int(ResponseCode.SYSTEM_ERROR),
    int(ResponseCode.SYSTEM_BUSY),
    int(ResponseCode.SUBSCRIPTION_NOT_EXIST),
    int(ResponseCode.SUBSCRIPTION_NOT_LATEST),
    int(ResponseCode.FLOW_CONTROL),
}


class PullStatus(Enum):
    """How a pull ended."""

    # There are messages.
    FOUND = 0
    # Nothing new at the offset, for as long as the pull was held.
    NO_NEW_MESSAGE = 19
    # There were messages, none of which the subscription wants; go on at next_offset.
    NO_MATCHED_MESSAGE = 20
    # The offset is not, or no longer, in the queue.
    OFFSET_ILLEGAL = 21


_PULL_CODES: Final = frozenset(status.value for status in PullStatus)


@dataclass(slots=True, frozen=True, kw_only=True)
class PullResult:
    """What a pull brought."""

    status: PullStatus
    # In order of their offsets.
    messages: list[ReceivedMessage]
    # Where the next pull goes on.
    next_offset: int
    # The queue holds messages of min_offset up to and without max_offset.
    min_offset: int
    max_offset: int


def decode_messages(
    body: bytes,
    queue: MessageQueue,
    body_bytes_max: int,
    tags: frozenset[str],
    namespace: str = "",
    serializer: Serializer | None = None,
    count_max: int | None = None,
) -> list[ReceivedMessage]:
    """Returns the messages of the answer to a pull.

    Args:
        body: records back to back.
        queue: where they were pulled from.
        body_bytes_max: largest body after decompression.
        tags: keep these only (the broker compares hashes, so others may slip through); empty keeps
            all.
        namespace: of the consumer.
        serializer: of the consumer.
        count_max: records that the answer may have; None: any number.

    Raises:
        RemoteProtocolError: the bytes are not whole records, or too many.
    """
    messages = []
    count = 0
    offset = 0
    while offset < len(body):
        record = decode_record(body, offset)
        offset += record.size_bytes
        count += 1
        if count_max is not None and count > count_max:
            raise RemoteProtocolError("messages of an answer", f"over {count_max}", count_max)
        message = ReceivedMessage(record, queue, body_bytes_max, namespace, serializer)
        if not tags or message.readable_properties.get(TAGS, "") in tags:
            messages.append(message)
    return messages


class QueueRequests:
    """Requests about queues, on behalf of one group."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        config: ConsumerConfig,
        serializer: Serializer | None = None,
    ) -> None:
        self._instance = instance
        # As programs see it.
        self.group = group
        self._namespace = config.client.namespace
        self._group = with_namespace(self._namespace, group)
        check_group(self._group)
        self._config = config
        self._serializer = serializer
        self._first_commits = FirstCommits()
        # Requests that wait; the end of their waiting.
        self._waiting: set[asyncio.Timeout] = set()
        self._is_closed = False

    def close(self) -> None:
        """Ends what waits, and refuses what comes. Safe to call twice."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, set()
        for timeout in waiting:
            timeout.reschedule(asyncio.get_running_loop().time())

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: Expression = EVERYTHING,
        count_max: int | None = None,
        suspend_s: float | None = None,
        commit_offset: int | None = None,
    ) -> PullResult:
        """Asks for messages from an offset on.

        Args:
            queue: where.
            offset: of the first message wanted.
            expression: which of them.
            count_max: messages at most; None as configured.
            suspend_s: how long the broker may wait for a message; None as configured, 0 not at all.
            commit_offset: consumed up to here; None says nothing about that, nor is it told before
                the first `commit` for the topic was answered.

        Raises:
            RefusedError, UnreachableError, NoRouteError, NameServerError.
        """
        if suspend_s is None:
            suspend_s = self._config.suspend_s
        if not self._first_commits.is_behind(queue):
            commit_offset = None
        flags = sysflag.PULL_SUBSCRIPTION
        flags |= sysflag.PULL_SUSPEND if suspend_s > 0 else 0
        flags |= sysflag.PULL_COMMIT_OFFSET if commit_offset is not None else 0
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=self._wire(queue.topic),
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count_max or self._config.pull_count_max,
            sys_flag=flags,
            commit_offset=commit_offset or 0,
            suspend_timeout_millis=int(suspend_s * 1000),
            subscription=expression.text,
            sub_version=0,
            expression_type=expression.kind,
        )
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        answer = await self._ask(queue, command, timeout_s=suspend_s + _PULL_GRACE_S)
        if answer.code not in _PULL_CODES:
            raise await self._refused(
                queue, answer, is_passing(answer.code, answer.remark, _PASSING_PULL_CODES)
            )
        try:
            return self._pulled(queue, answer, expression)
        except RemoteProtocolError as error:
            raise self._unreadable(queue, error) from error

    def _pulled(
        self, queue: MessageQueue, answer: RemotingCommand, expression: Expression
    ) -> PullResult:
        found = answer.header(PullMessageResponseHeader)
        status = PullStatus(answer.code)
        messages = []
        if status is PullStatus.FOUND:
            limit = self._config.body_bytes_max
            messages = decode_messages(
                answer.body, queue, limit, expression.tags, self._namespace, self._serializer
            )
        return PullResult(
            status=status,
            messages=messages,
            next_offset=found.next_begin_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the oldest message."""
        header = GetMinOffsetRequestHeader(topic=self._wire(queue.topic), queue_id=queue.queue_id)
        answer = await self._ask_well(queue, RequestCode.GET_MIN_OFFSET, header)
        return self._read(queue, answer, GetMinOffsetResponseHeader)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the next message will have."""
        header = GetMaxOffsetRequestHeader(topic=self._wire(queue.topic), queue_id=queue.queue_id)
        answer = await self._ask_well(queue, RequestCode.GET_MAX_OFFSET, header)
        return self._read(queue, answer, GetMaxOffsetResponseHeader)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Returns the offset of the message stored nearest to a time (ms since 1970)."""
        header = SearchOffsetRequestHeader(
            topic=self._wire(queue.topic), queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        answer = await self._ask_well(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return self._read(queue, answer, SearchOffsetResponseHeader)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Returns up to where the group has consumed, None when it never told."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=self._wire(queue.topic),
            queue_id=queue.queue_id,
        )
        command = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = await self._ask(queue, command)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            is_retriable = is_passing(answer.code, answer.remark, frozenset((answer.code,)))
            raise await self._refused(queue, answer, is_retriable)
        offset = self._read(queue, answer, QueryConsumerOffsetResponseHeader)
        return offset if offset >= 0 else None

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Tells the broker up to where the group has consumed, and waits for its word."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=self._wire(queue.topic),
            queue_id=queue.queue_id,
            commit_offset=offset,
        )

        async def tell() -> None:
            await self._ask_well(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)

        await self._first_commits.tell(queue, tell)

    async def send_back(self, message: ReceivedMessage, delay: timedelta | None = None) -> None:
        """Gives a message back: the broker delivers it to the group later, or buries it.

        Args:
            message: which was pulled.
            delay: after how long; None: longer each time.
        """
        # A level of 0 leaves it to the broker.
        level = 0 if delay is None else max(1, level_of(delay))
        await self._send_back(message, delay_level=level)

    async def bury(self, message: ReceivedMessage) -> None:
        """Puts a message among the dead letters of the group."""
        await self._send_back(message, delay_level=_BURY_AT_ONCE)

    async def _send_back(self, message: ReceivedMessage, *, delay_level: int) -> None:
        times_max = self._config.reconsume_times_max
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.record.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.offset_message_id,
            origin_topic=self._wire(message.topic),
            max_reconsume_times=_RECONSUME_TIMES_MAX if times_max is None else times_max,
        )
        await self._ask_well(message.queue, RequestCode.CONSUMER_SEND_MSG_BACK, header)

    def _wire(self, topic: str) -> str:
        return with_namespace(self._namespace, topic)

    async def _ask_well(
        self, queue: MessageQueue, code: RequestCode, header: Header
    ) -> RemotingCommand:
        answer = await self._ask(queue, RemotingCommand.request(code, header))
        if answer.code != ResponseCode.SUCCESS:
            raise await self._refused(
                queue, answer, is_passing(answer.code, answer.remark, _PASSING_PULL_CODES)
            )
        return answer

    async def _ask(
        self, queue: MessageQueue, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        if timeout_s is None:
            timeout_s = self._config.client.request_timeout_s
        try:
            if self._is_closed:
                raise TimeoutError
            async with asyncio.timeout(None) as waiting:
                self._waiting.add(waiting)
                try:
                    return await self._instance.ask_leader(
                        queue.topic, queue.broker_name, command, timeout_s
                    )
                finally:
                    self._waiting.discard(waiting)
        except TimeoutError as error:
            raise ClosedError("the consumer was closed", topic=queue.topic) from error
        except (UnreachableError, NoRouteError) as error:
            await self._look_again(queue)
            raise type(error)(
                error.what,
                retriable=True,
                broker=queue.broker_name,
                topic=queue.topic,
                queue_id=queue.queue_id,
            ) from error

    async def _look_again(self, queue: MessageQueue) -> None:
        """Asks for the route anew; when that fails too, the old one stays."""
        try:
            await self._instance.routes.refresh(queue.topic)
        except ClientError:
            return

    async def _refused(
        self, queue: MessageQueue, answer: RemotingCommand, retriable: bool
    ) -> RefusedError:
        if answer.code in ROUTE_CODES:
            await self._look_again(queue)
        return RefusedError(
            answer.code,
            answer.remark,
            retriable=retriable,
            broker=queue.broker_name,
            topic=queue.topic,
            queue_id=queue.queue_id,
        )

    def _read(
        self,
        queue: MessageQueue,
        answer: RemotingCommand,
        header_class: type[GetMinOffsetResponseHeader]
        | type[GetMaxOffsetResponseHeader]
        | type[SearchOffsetResponseHeader]
        | type[QueryConsumerOffsetResponseHeader],
    ) -> int:
        try:
            return answer.header(header_class).offset
        except RemoteProtocolError as error:
            raise self._unreadable(queue, error) from error

    def _unreadable(self, queue: MessageQueue, error: RemoteProtocolError) -> UnreachableError:
        return UnreachableError(
            f"unreadable answer: {error}",
            broker=queue.broker_name,
            topic=queue.topic,
            queue_id=queue.queue_id,
        )


def _is_passing(answer: RemotingCommand) -> bool:
    return is_passing(answer.code, answer.remark, _PASSING_PULL_CODES)
