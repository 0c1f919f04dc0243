"""TransactionalProducer: messages that consumers see when, and only when, a transaction commits.

1. `send_half` stores the message where no consumer sees it.
2. The program does its work (a change in a database, say).
3. `commit` makes the message visible, `rollback` forgets it; `transaction` does either at its end.

A program may die between 2 and 3, and an end may get lost. So the broker asks some producer of the
group about a message that was not ended for a while: `check` looks up what became of the work. It
must be able to tell so for messages of every other process of the group.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from enum import Enum
from typing import Final, TypeAlias

from ledgermq.client.config import ProducerConfig
from ledgermq.client.endless import loudness, tell_failure
from ledgermq.client.errors import ClientError, ConfigError, MessageError, RefusedError
from ledgermq.client.hooks import followed, measure
from ledgermq.client.instance import ClientInstance, now_ms
from ledgermq.client.messages import Message, ReceivedMessage, SendResult
from ledgermq.client.namespaces import without_namespace
from ledgermq.client.retry import is_retriable, retry_after_loss
from ledgermq.client.send_frame import properties_text, single_body
from ledgermq.client.sending import Sending
from ledgermq.client.serializers import Serializer, body_of
from ledgermq.client.trace_records import Kind
from ledgermq.client.user_function import UserFunction
from ledgermq.protocol import properties as names
from ledgermq.protocol import sysflag
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from ledgermq.protocol.message_id import decode_offset_id
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.record import decode_record

# Questions of brokers that are looked into at the same time; the broker asks again later.
_CHECKS_MAX: Final = 1000
# Calls of a plain check function that run at the same time.
_CHECK_THREADS: Final = 4

_log = logging.getLogger("ledgermq.client")


class TransactionState(Enum):
    """What became of the work that a half message belongs to."""

    COMMIT = sysflag.TRANSACTION_COMMIT
    ROLLBACK = sysflag.TRANSACTION_ROLLBACK
    # Not known yet: the broker asks again later.
    UNKNOWN = sysflag.TRANSACTION_NONE


# Tells the state of a transaction by its message; may be a plain function, which runs in a thread.
Check: TypeAlias = Callable[[ReceivedMessage], Awaitable[TransactionState] | TransactionState]


class TransactionalProducer(Sending):
    """Sends messages in transactions; use it in an ``async with`` block."""

    def __init__(
        self,
        name_servers: str | ClientInstance,
        group: str,
        check: Check,
        *,
        serializer: Serializer | None = None,
        config: ProducerConfig | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: ``host:port;host:port``.
            group: name of the producers that can answer for one another.
            check: called with a message that was not ended; a coroutine function, or a plain one,
                which runs in a thread. Raising counts as UNKNOWN.
            serializer: makes bytes of the bodies of messages; None takes bytes only.
            config: times and limits.

        Raises:
            ConfigError: the addresses are wrong, or the group is empty.
        """
        if not group:
            raise ConfigError("group must not be empty")
        # A new leader must know whom to ask.
        super().__init__(name_servers, group, serializer, config, stays_connected=True)
        self._check = UserFunction(check, _CHECK_THREADS)
        self._checks: set[asyncio.Task[None]] = set()
        # Set for good by `close`.
        self._is_ending = False

    def _closed(self) -> None:
        self._is_ending = True
        for task in list(self._checks):
            task.cancel()
        self._check.close()

    async def send_half(self, message: Message) -> SendResult:
        """Stores a message where no consumer sees it.

        Returns:
            What commit and rollback want; its offset is one of the broker's own queue.

        Raises:
            MessageError: it cannot be sent as it is, or is delayed.
            SendError: it was not acknowledged in time.
            ClosedError: the producer is not open.
        """
        self._opened()
        if message.delay_level:
            raise MessageError("a message of a transaction cannot be delayed", topic=message.topic)
        own = {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self._wire_group}
        message = replace(message, properties={**message.properties, **own})
        if self._hooks is None:
            return await (await self._submit(message))
        sending = self._hooks.send([message], self.group)
        return await (await followed(sending, self._submit(sending.messages[0])))

    async def _submit(self, message: Message) -> asyncio.Future[SendResult]:
        body_bytes = body_of(message.body, self._serializer, message.topic)
        message = replace(message, body=body_bytes)
        now = now_ms()
        message_id = self._instance.unique_ids.create(now)
        text = properties_text(message, message_id, self.config.client.namespace)
        config = self.config
        body = single_body(
            message,
            text,
            now,
            config.compress_from_bytes,
            config.body_bytes_max,
            config.compression,
        )
        body = body._replace(sys_flag=body.sys_flag | sysflag.TRANSACTION_PREPARED)
        begun_s = self._opened().loop.time()
        sent = await self._opened().submit(message.topic, message_id, body, None)
        if self._metrics is not None:
            measure(self._metrics, sent, message.topic, self.group, begun_s)
        if self._tracer is not None:
            self._tracer.follow(sent, [message], len(body.body), now, Kind.HALF)
        return sent

    async def commit(self, half: SendResult) -> None:
        """Makes a message visible to consumers.

        Raises:
            ClientError: the broker could not be told in time; it will ask `check`.
        """
        await self._end(half, TransactionState.COMMIT)

    async def rollback(self, half: SendResult) -> None:
        """Forgets a message.

        Raises:
            ClientError: the broker could not be told in time; it will ask `check`.
        """
        await self._end(half, TransactionState.ROLLBACK)

    @contextlib.asynccontextmanager
    async def transaction(self, message: Message) -> AsyncIterator[SendResult]:
        """Sends a half message, and commits it at the end of the block; an exception rolls it back.

        Raises:
            ClientError: as for send_half and commit.
        """
        half = await self.send_half(message)
        try:
            yield half
        except BaseException:
            # The reason why the block failed counts, not why the broker could not be told.
            with contextlib.suppress(ClientError):
                await self.rollback(half)
            raise
        await self.commit(half)

    async def _end(self, half: SendResult, state: TransactionState) -> None:
        self._opened()
        try:
            place = decode_offset_id(half.offset_message_id).physical_offset
        except RemoteProtocolError as error:
            raise MessageError(f"no half message: {error}", topic=half.topic) from error
        header = EndTransactionRequestHeader(
            producer_group=self._wire_group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=place,
            commit_or_rollback=state.value,
            msg_id=half.message_id,
            transaction_id=half.message_id,
        )
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.config.timeout_s
        attempts = 0
        while True:
            attempts += 1
            try:
                await self._tell_end(half, header)
                if self._tracer is not None:
                    self._tracer.ended(half, f"{state.name}_MESSAGE")
                return
            except ClientError as error:
                left_ms = (deadline_s - loop.time()) * 1000
                retry = retry_after_loss(attempts, left_ms, random.random())
                if retry is None or not error.retriable:
                    raise
            await asyncio.sleep(retry.delay_ms / 1000)
            with contextlib.suppress(ClientError):
                await self._instance.routes.refresh(half.topic)

    async def _tell_end(self, half: SendResult, header: EndTransactionRequestHeader) -> None:
        name = half.broker_name
        address = await self._instance.master_of(half.topic, name)
        command = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
        answer = await self._instance.request(address, command)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(
                answer.code,
                answer.remark,
                retriable=is_retriable(answer.code, answer.remark),
                broker=name,
                topic=half.topic,
            )

    # Questions of brokers.

    def _requested(self, address: str, request: RemotingCommand) -> None:
        if request.code != RequestCode.CHECK_TRANSACTION_STATE or self._is_ending:
            return
        if len(self._checks) >= _CHECKS_MAX:
            level = loudness(f"{self.group} is asked too much")
            _log.log(level, "%s is asked about more than %d messages", self.group, _CHECKS_MAX)
            return
        task = asyncio.get_running_loop().create_task(self._answer_check(address, request))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        task.add_done_callback(tell_failure)

    async def _answer_check(self, address: str, request: RemotingCommand) -> None:
        try:
            asked = request.header(CheckTransactionStateRequestHeader)
            record = decode_record(request.body)
            asked_group = decode_properties(record.properties).get(names.PRODUCER_GROUP)
        except RemoteProtocolError as error:
            _log.warning("%s asks about an unreadable message: %s", address, error)
            return
        if asked_group not in (None, self._wire_group):
            # Meant for another producer that shares this one's connections.
            return
        namespace = self.config.client.namespace
        topic = without_namespace(namespace, record.topic)
        queue = MessageQueue(topic, self._broker_name(address), record.queue_id)
        message = ReceivedMessage(
            record, queue, self.config.body_bytes_max, namespace, self._serializer
        )
        try:
            state = await self._check.call(message)
        except Exception:
            _log.warning("check of %s failed on %r", self.group, message, exc_info=True)
            return
        if not isinstance(state, TransactionState):
            _log.warning(
                "check of %s returned %.80r for %r; wanted: a TransactionState",
                *(self.group, state, message),
            )
            return
        if state is TransactionState.UNKNOWN:
            return
        header = EndTransactionRequestHeader(
            producer_group=self._wire_group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=asked.msg_id or message.message_id,
            transaction_id=asked.transaction_id,
        )
        # Whoever asked is the leader. When it does not get this, it asks again.
        with contextlib.suppress(ClientError):
            connection = await self._instance.connections.open(address)
            connection.send_one_way(
                RemotingCommand.request(RequestCode.END_TRANSACTION, header, one_way=True)
            )

    def _broker_name(self, address: str) -> str:
        for route in self._instance.routes.known():
            for name, by_id in route.addresses.items():
                if address in by_id.values():
                    return name
        return ""
