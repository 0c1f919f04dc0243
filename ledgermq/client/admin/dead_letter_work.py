"""Dead letters that are sent again or dropped: each at most once, one after the other."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final, TypeAlias

from ledgermq.client.admin.dead_letters import (
    DROPPED,
    RESENT,
    UNKNOWN,
    WAITING,
    DeadLetters,
    id_of,
    is_note,
    message_id_of,
)
from ledgermq.client.admin.lag import TOOLS_GROUP
from ledgermq.client.admin.offsets import ResetTo, commit, offset_at, timestamp_of
from ledgermq.client.admin.results import DeadLetter, DeadLetterOutcome
from ledgermq.client.errors import (
    ClientError,
    ConfigError,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.queue_locks import RENEW_INTERVAL_S, QueueLocks
from ledgermq.client.retry import UNSAFE_STORE_CODES
from ledgermq.client.routes import TopicRoute, route_of
from ledgermq.client.selection import next_queue, queue_of_key
from ledgermq.protocol import properties as names
from ledgermq.protocol import sysflag
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from ledgermq.protocol.names import DEFAULT_TOPIC
from ledgermq.protocol.properties import PROPERTIES_BYTES_MAX, format_properties

_SENDER_GROUP: Final = "ledgermq_dead_letters"
_NOTE: Final = b"dropped"
_STORED_CODES: Final = UNSAFE_STORE_CODES | {int(ResponseCode.SUCCESS)}
_KEPT_FLAGS: Final = sysflag.COMPRESSED | sysflag.COMPRESSION_MASK
_LEFT_OUT: Final = names.OF_A_DELIVERY | {*names.TIMERS, names.RESENT}

# Told of each outcome as it comes.
OnOutcome: TypeAlias = Callable[[DeadLetterOutcome], object]
_Work: TypeAlias = Callable[[DeadLetter], Awaitable[DeadLetterOutcome]]

_log = logging.getLogger("ledgermq.client")


class DeadLetterWork:
    """What is done with the dead letters of one group."""

    def __init__(
        self, letters: DeadLetters, rate: float | None, on_outcome: OnOutcome | None
    ) -> None:
        """Does nothing yet.

        Args:
            letters: of the group.
            rate: messages a second at most; None as fast as they go.
            on_outcome: told of each outcome.

        Raises:
            ConfigError: the rate is not above zero.
        """
        if rate is not None and rate <= 0:
            raise ConfigError(f"rate is {rate}; allowed: above 0 messages/s, or None")
        self._letters = letters
        self._asking = letters.asking
        self._pause_s = 0.0 if rate is None else 1.0 / rate
        self._on_outcome = on_outcome
        self._turn = 0
        # Routes of the origin topics, asked for once.
        self._routes: dict[str, TopicRoute] = {}

    async def resend(self, ids: Iterable[str]) -> list[DeadLetterOutcome]:
        """Sends dead letters to the topics that they came from."""
        return await self._work(ids, self._resend)

    async def drop(self, ids: Iterable[str]) -> list[DeadLetterOutcome]:
        """Notes that dead letters are dealt with."""
        return await self._work(ids, self._drop)

    async def drop_all(self, stop: ResetTo) -> int:
        """Notes that all dead letters before a moment are dealt with; returns how many.

        Those that were dealt with one by one count, too.
        """
        queues = await self._letters.queues()
        count = 0
        async with self._locked(list(queues)):
            for queue, address in queues.items():
                low = await offset_at(self._asking, address, queue, timestamp_of("first"))
                done = max(await self._letters.done_before(queue), low)
                end = await self._letters.first_from(address, queue, stop)
                if end > done:
                    await commit(self._asking, address, TOOLS_GROUP, queue, end)
                    count += end - done
        return count

    async def _work(self, ids: Iterable[str], work: _Work) -> list[DeadLetterOutcome]:
        outcomes: list[DeadLetterOutcome] = []

        def tell(outcome: DeadLetterOutcome) -> None:
            outcomes.append(outcome)
            if self._on_outcome is not None:
                self._on_outcome(outcome)

        chosen: dict[str, ReceivedMessage] = {}
        for one in dict.fromkeys(ids):
            try:
                chosen |= {id_of(message): message for message in await self._letters.find(one)}
            except NotFoundError as error:
                tell(DeadLetterOutcome(id=one, outcome="not found", reason=error.what))
        queues = sorted({message.queue for message in chosen.values()})
        loop = asyncio.get_running_loop()
        async with self._locked(queues) as locks:
            due_s = loop.time()
            for letter_id, message in chosen.items():
                await asyncio.sleep(max(due_s - loop.time(), 0))
                due_s = max(due_s, loop.time() - self._pause_s) + self._pause_s
                if locks.is_valid(message.queue):
                    tell(await self._one(message, work))
                else:
                    reason = "the lock of its queue is lost, so that somebody else may work on it"
                    tell(DeadLetterOutcome(id=letter_id, outcome="not tried", reason=reason))
            for queue in queues:
                await self._move_on(queue)
        return outcomes

    @contextlib.asynccontextmanager
    async def _locked(self, queues: list[MessageQueue]) -> AsyncIterator[QueueLocks]:
        """Holds the locks of queues.

        Raises:
            ClientError: somebody else has one, or a broker could not be asked.
        """
        group, busy = self._letters.group, self._asking.busy_groups
        what = f"somebody else works on the dead letters of group {group!r}"
        if group in busy:
            raise ClientError(f"{what} with this client", retriable=True)
        busy.add(group)
        locks = QueueLocks(self._asking.instance, group, asyncio.get_running_loop().time)
        renewal: asyncio.Task[None] | None = None
        try:
            for queue in queues:
                if not await locks.take(queue):
                    raise ClientError(
                        f"{what} now, or did so in the last minute; try again then",
                        retriable=True,
                        topic=queue.topic,
                        broker=queue.broker_name,
                    )
            renewal = asyncio.get_running_loop().create_task(_renew(locks, queues))
            yield locks
        finally:
            busy.discard(group)
            if renewal is not None:
                renewal.cancel()
            await locks.give_all_back()

    async def _one(self, message: ReceivedMessage, work: _Work) -> DeadLetterOutcome:
        """Does it with one; whatever goes wrong is its outcome, and not that of the others."""
        try:
            letter = await self._letters.look_at(message)
            if letter.state == UNKNOWN:
                return _failed(
                    letter,
                    "its broker does not find it by its id (key messageIndexEnable), so that nobody"
                    " can tell whether it was sent already",
                )
            return await work(letter)
        except (ClientError, RemoteProtocolError) as error:
            return DeadLetterOutcome(
                id=id_of(message),
                outcome="failed",
                message_id=message_id_of(message),
                reason=str(error),
            )

    async def _resend(self, letter: DeadLetter) -> DeadLetterOutcome:
        if letter.state == RESENT:
            return _outcome(letter, "already resent")
        if letter.origin is None:
            return _failed(letter, "it does not say which topic it came from")
        message = letter.message
        own = {name: value for name, value in message.properties.items() if name not in _LEFT_OUT}
        own[names.UNIQUE_KEY] = message_id_of(message)
        own[names.RESENT] = self._letters.mark(message)
        route = await self._route(letter.origin)
        queue = self._queue(route, own.get(names.SHARDING_KEY))
        if queue is None or queue.broker_name not in route.masters:
            return _failed(letter, f"no queue of topic {letter.origin!r} has a leader now")
        return await self._send(letter, queue, route.masters[queue.broker_name], own, "resent")

    async def _drop(self, letter: DeadLetter) -> DeadLetterOutcome:
        if letter.state in (RESENT, DROPPED):
            return _outcome(letter, f"already {letter.state}")
        own = {
            names.UNIQUE_KEY: message_id_of(letter.message),
            names.DROPPED: letter.id,
            names.TAGS: DROPPED,
        }
        queue = letter.message.queue
        address = (await self._letters.queues())[queue]
        return await self._send(letter, queue, address, own, "dropped")

    async def _send(
        self,
        letter: DeadLetter,
        queue: MessageQueue,
        address: str,
        properties: dict[str, str],
        done: str,
    ) -> DeadLetterOutcome:
        """Sends once. Who gets no answer does not know, and the next call looks first."""
        record = letter.message.record
        is_note_of_it = done == "dropped"
        try:
            text = format_properties({**properties, names.WAIT_STORE_MSG_OK: "true"})
        except LocalProtocolError as error:
            return _failed(letter, str(error))
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > PROPERTIES_BYTES_MAX:
            return _failed(letter, f"properties of {size} bytes; allowed: {PROPERTIES_BYTES_MAX}")
        header = SendMessageRequestHeaderV2(
            producer_group=_SENDER_GROUP,
            topic=queue.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=1,
            queue_id=queue.queue_id,
            sys_flag=0 if is_note_of_it else record.sys_flag & _KEPT_FLAGS,
            born_timestamp=record.born_timestamp,
            flag=0 if is_note_of_it else record.flag,
            properties=text,
            reconsume_times=0,
            unit_mode=False,
            batch=False,
        )
        body = _NOTE if is_note_of_it else bytes(record.body)
        try:
            code = RequestCode.SEND_MESSAGE_V2
            answer = await self._asking.ask(address, code, header, body)
        except UnreachableError as error:
            return _outcome(letter, "unknown", reason=str(error))
        if answer.code not in _STORED_CODES:
            refusal = RefusedError(answer.code, answer.remark, broker=address, topic=queue.topic)
            return _failed(letter, str(refusal))
        stored = answer.header(SendMessageResponseHeader)
        place = MessageQueue(queue.topic, queue.broker_name, stored.queue_id)
        return _outcome(letter, done, queue=place, queue_offset=stored.queue_offset)

    async def _route(self, topic: str) -> TopicRoute:
        if topic not in self._routes:
            self._routes[topic] = route_of(topic, await self._asking.route(topic))
        return self._routes[topic]

    def _queue(self, route: TopicRoute, key: str | None) -> MessageQueue | None:
        if not route.write_queues:
            return None
        if key is not None:
            return queue_of_key(route.write_queues, key)
        self._turn += 1
        return next_queue(route.write_queues, route.masters, self._turn)

    async def _move_on(self, queue: MessageQueue) -> None:
        """Commits the offset before which all is dealt with; that only makes lists short."""
        try:
            address = (await self._letters.queues())[queue]
            first = done = await self._letters.done_before(queue)
            end = await offset_at(self._asking, address, queue, timestamp_of("last"))
            while done < end:
                messages, following = await self._letters.pull(queue, done)
                for message in messages:
                    if not is_note(message):
                        letter = await self._letters.look_at(message)
                        if letter.state in (WAITING, UNKNOWN):
                            end = following = message.queue_offset
                            break
                done = following
            if done > first:
                await commit(self._asking, address, TOOLS_GROUP, queue, done)
        except ClientError as error:
            _log.info("how far %s is dealt with is not noted: %s", queue, error)


async def _renew(locks: QueueLocks, queues: list[MessageQueue]) -> None:
    while True:
        await asyncio.sleep(RENEW_INTERVAL_S)
        await locks.renew(queues)


def _outcome(
    letter: DeadLetter,
    outcome: str,
    *,
    reason: str = "",
    queue: MessageQueue | None = None,
    queue_offset: int | None = None,
) -> DeadLetterOutcome:
    return DeadLetterOutcome(
        id=letter.id,
        outcome=outcome,
        message_id=message_id_of(letter.message),
        origin=letter.origin,
        queue=queue,
        queue_offset=queue_offset,
        reason=reason,
    )


def _failed(letter: DeadLetter, reason: str) -> DeadLetterOutcome:
    return _outcome(letter, "failed", reason=reason)
