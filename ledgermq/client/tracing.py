"""Tracer: tells the trace topic what becomes of messages, where the stock clients tell it.

Records are gathered for a moment and sent several in one message. Tracing never holds up or fails
what it traces: beyond a limit, and when brokers take none, records are dropped and counted.
"""

import asyncio
import contextlib
import functools
import logging
from collections import deque
from typing import Final

from ledgermq.client.config import ClientConfig, ProducerConfig
from ledgermq.client.endless import keep_going, level_of
from ledgermq.client.errors import ClientError
from ledgermq.client.instance import ClientInstance, now_ms
from ledgermq.client.messages import Message, ReceivedMessage, SendResult, SendStatus
from ledgermq.client.send_frame import properties_text, single_body
from ledgermq.client.sends import SendRoad
from ledgermq.client.trace_records import (
    Kind,
    Outcome,
    Traced,
    begun_record,
    ended_record,
    keys_of,
    sent_record,
    transaction_record,
)
from ledgermq.protocol import properties as names
from ledgermq.protocol.errors import RemoteProtocolError

# As stock clients: records that wait, and bytes and records of one message.
_WAITING_MAX: Final = 2048
_MESSAGE_BYTES_MAX: Final = 128_000
_MESSAGE_RECORDS_MAX: Final = 100
_PAUSE_S: Final = 0.2
# How long a trace may take to be sent, while others wait behind it, and how long close waits.
_SEND_TIMEOUT_S: Final = 60.0
_CLOSE_TIMEOUT_S: Final = 5.0
_NO_REGION: Final = "null"

_log = logging.getLogger("ledgermq.client")


class Delivery:
    """A delivery that has begun."""

    __slots__ = ("begun_ms", "request_id", "traced")

    def __init__(self, traced: Traced, request_id: str, begun_ms: int) -> None:
        self.traced = traced
        self.request_id = request_id
        self.begun_ms = begun_ms


class Tracer:
    """What one producer or consumer tells the trace topic."""

    def __init__(self, instance: ClientInstance, group: str, config: ClientConfig) -> None:
        """Sends nothing yet.

        Args:
            instance: whose connections are used.
            group: of the producer or consumer, as programs see it.
            config: says which topic.
        """
        self._instance = instance
        self._group = group
        self._topic = config.trace_topic
        self._config = ProducerConfig(client=config, timeout_s=_SEND_TIMEOUT_S)
        # Records with the words to find them by.
        self._waiting: deque[tuple[str, list[str]]] = deque()
        self._dropped_count = 0
        self._news = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._road: SendRoad | None = None

    def start(self) -> None:
        """Begins to send; needs a running loop."""
        self._road = SendRoad(self._instance, f"_INNER_TRACE_PRODUCER-{self._group}", self._config)
        sending = keep_going(f"sending the traces of {self._group}", self._send_soon)
        self._task = asyncio.get_running_loop().create_task(sending)

    async def close(self) -> None:
        """Sends what waits, as far as there is time for it."""
        if self._task is None or self._road is None:
            return
        self._closing.set()
        self._news.set()
        try:
            await asyncio.wait([self._task], timeout=_CLOSE_TIMEOUT_S)
        finally:
            self.abort()
        await asyncio.wait([self._task])
        await self._road.close()
        if self._dropped_count or self._waiting:
            count = self._dropped_count + len(self._waiting)
            _log.warning("%s dropped %d traces", self._group, count)

    def abort(self) -> None:
        """Sends nothing more, and waits for nothing."""
        if self._task is not None:
            self._task.cancel()
        if self._road is not None:
            self._road.abort()

    def follow(
        self,
        future: asyncio.Future[SendResult],
        messages: list[Message],
        body_bytes: int,
        begun_ms: int,
        kind: Kind,
    ) -> None:
        """Traces a send when it is acknowledged; several messages are one batch.

        Args:
            future: its outcome.
            messages: as the program gave them.
            body_bytes: size on the wire.
            begun_ms: when it began, ms since 1970.
            kind: which kind of message.
        """
        future.add_done_callback(
            functools.partial(self._sent, messages, body_bytes, begun_ms, kind)
        )

    def begin(self, message: ReceivedMessage) -> Delivery | None:
        """Traces a delivery that begins; None when its broker wants no traces of it."""
        try:
            properties = message.properties
        except RemoteProtocolError:
            # Whoever consumes it sees the error.
            return None
        if properties.get(names.TRACE_SWITCH) == "false":
            return None
        now = now_ms()
        region_id = properties.get(names.MSG_REGION, _NO_REGION)
        traced = Traced(message.topic, message.message_id, message.tags, message.keys, region_id)
        request_id = self._instance.unique_ids.create(now)
        record = begun_record(
            traced,
            time_ms=now,
            group=self._group,
            request_id=request_id,
            again=message.reconsume_times,
        )
        self._add(record, traced)
        return Delivery(traced, request_id, now)

    def end(self, delivery: Delivery | None, failure: Exception | None = None) -> None:
        """Traces the end of a delivery."""
        if delivery is None:
            return
        now = now_ms()
        record = ended_record(
            delivery.traced,
            time_ms=now,
            group=self._group,
            request_id=delivery.request_id,
            cost_ms=now - delivery.begun_ms,
            outcome=Outcome.SUCCESS if failure is None else Outcome.EXCEPTION,
        )
        self._add(record, delivery.traced)

    def ended(self, half: SendResult, state: str) -> None:
        """Traces the end of a transaction."""
        traced = Traced(half.topic, half.message_id, "", "", "")
        record = transaction_record(
            traced,
            time_ms=now_ms(),
            group=self._group,
            store_host=self._store_host(half),
            transaction_id=half.message_id,
            state=state,
            is_asked=False,
        )
        self._add(record, traced)

    def _sent(
        self,
        messages: list[Message],
        body_bytes: int,
        begun_ms: int,
        kind: Kind,
        future: asyncio.Future[SendResult],
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        result = future.result()
        if not result.region_id:
            # Its broker wants no traces.
            return
        first = messages[0]
        is_batch = len(messages) > 1
        traced = Traced(
            result.topic,
            result.message_id,
            "" if is_batch else first.tags,
            "" if is_batch else first.keys,
            result.region_id,
        )
        record = sent_record(
            traced,
            time_ms=begun_ms,
            group=self._group,
            store_host=self._store_host(result),
            body_bytes=body_bytes,
            cost_ms=now_ms() - begun_ms,
            kind=kind,
            offset_message_id=result.offset_message_id,
            is_success=result.status is SendStatus.SEND_OK,
        )
        self._add(record, traced)

    def _store_host(self, result: SendResult) -> str:
        route = self._instance.routes.find(result.topic)
        address = None if route is None else route.masters.get(result.broker_name)
        return address or _NO_REGION

    def _add(self, record: str, traced: Traced) -> None:
        if len(self._waiting) >= _WAITING_MAX:
            self._dropped_count += 1
            return
        self._waiting.append((record, keys_of(traced)))
        self._news.set()

    async def _send_soon(self) -> bool:
        """Waits for records and sends them; True when these were the last."""
        # After a failure there may be some without news.
        if not self._closing.is_set():
            if not self._waiting:
                await self._news.wait()
            self._news.clear()
            # More of them may come together.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    await self._closing.wait()
        while self._waiting:
            await self._send()
        return self._closing.is_set()

    async def _send(self) -> None:
        """Sends one message of records."""
        assert self._road is not None
        texts: list[str] = []
        words: dict[str, None] = {}
        size = 0
        while self._waiting and len(texts) < _MESSAGE_RECORDS_MAX and size < _MESSAGE_BYTES_MAX:
            text, keys = self._waiting.popleft()
            texts.append(text)
            words.update(dict.fromkeys(keys))
            size += len(text)
        now = now_ms()
        message = Message(self._topic, "".join(texts).encode(), keys=" ".join(words))
        id_ = self._instance.unique_ids.create(now)
        config = self._config
        try:
            body = single_body(
                message,
                properties_text(message, id_),
                now,
                config.compress_from_bytes,
                config.body_bytes_max,
            )
            await (await self._road.submit(self._topic, id_, body, None))
        except BaseException as error:
            self._dropped_count += len(texts)
            if not isinstance(error, ClientError):
                raise
            _log.log(level_of(error), "traces of %s were not sent: %s", self._group, error)


def tracer_of(instance: ClientInstance, group: str, config: ClientConfig) -> Tracer | None:
    """Returns a tracer where tracing is on."""
    return Tracer(instance, group, config) if config.trace else None
