"""Dead letters: what a group gave up on, browsed, sent again and dropped.

They lie in the topic %DLQ%<group>, where nothing is ever taken out. What became of one is told by
messages alone, so that every tool at every place knows it, also after a crash:

    sent again   a message in its origin topic with the same id, and a property that names it
    dropped      a note beside it with the same id, and a property that names it

Both are found by the id, in the brokers' key index. Who sends or drops holds the lock of the queue
meanwhile, so that of two who do it at the same time one is refused. All before a committed offset
of the tools' group is dealt with; it only makes lists short.
"""

from functools import partial
from typing import Final

from ledgermq.client.admin.asking import Asking, each
from ledgermq.client.admin.lag import TOOLS_GROUP
from ledgermq.client.admin.offsets import ResetTo, offset_at, timestamp_of
from ledgermq.client.admin.results import DeadLetter
from ledgermq.client.config import ConsumerConfig
from ledgermq.client.errors import ConfigError, NoRouteError, NotFoundError, RefusedError
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.queue_requests import PullStatus, QueueRequests, decode_messages
from ledgermq.protocol import properties as names
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import QueryMessageRequestHeader
from ledgermq.protocol.names import DEAD_LETTER_PREFIX

_BODY_BYTES_MAX: Final = 64 * 1024 * 1024
_PULL_COUNT: Final = 32
_FOUND_MAX: Final = 64
_TIME_MAX: Final = 2**63 - 1
# States of a dead letter.
WAITING: Final = "waiting"
RESENT: Final = "resent"
DROPPED: Final = "dropped"
UNKNOWN: Final = "unknown"


def id_of(message: ReceivedMessage) -> str:
    """Returns the name of a dead letter: its broker, queue and offset."""
    queue = message.queue
    return f"{queue.broker_name}/{queue.queue_id}/{message.queue_offset}"


def message_id_of(message: ReceivedMessage) -> str:
    """Returns the id that a message had when it was first sent."""
    own = message.readable_properties
    return (
        own.get(names.UNIQUE_KEY) or own.get(names.ORIGIN_MESSAGE_ID) or message.offset_message_id
    )


def is_note(message: ReceivedMessage) -> bool:
    """Tells whether it is no dead letter, but says that one is dropped."""
    return names.DROPPED in message.readable_properties


class DeadLetters:
    """The dead letters of one group."""

    def __init__(self, asking: Asking, group: str) -> None:
        """Asks nothing yet.

        Raises:
            ConfigError: there is no name.
        """
        if not group:
            raise ConfigError("the name of the group is empty")
        self.asking = asking
        self.group = group
        self.topic = DEAD_LETTER_PREFIX + group
        config = ConsumerConfig(client=asking.instance.config)
        self._requests = QueueRequests(asking.instance, TOOLS_GROUP, config)

    async def queues(self) -> dict[MessageQueue, str]:
        """Returns the queues with the addresses of their leaders; none when nothing died yet."""
        try:
            # By the cache of routes, which pulls go by.
            route = await self.asking.instance.routes.refresh(self.topic)
        except NoRouteError:
            return {}
        queues = sorted({*route.read_queues, *route.write_queues})
        if missing := sorted({one.broker_name for one in queues} - route.masters.keys()):
            raise NoRouteError(
                "no leader now", retriable=True, broker=", ".join(missing), topic=self.topic
            )
        return {queue: route.masters[queue.broker_name] for queue in queues}

    async def browse(
        self,
        *,
        start: ResetTo,
        stop: ResetTo,
        count_max: int,
        waiting_only: bool,
    ) -> list[DeadLetter]:
        """Returns dead letters in the order of their queues, with what became of them."""
        found: list[DeadLetter] = []
        for queue, address in (await self.queues()).items():
            offset = await self.first_from(address, queue, start)
            end = await self.first_from(address, queue, stop)
            done_before = await self.done_before(queue)
            if waiting_only:
                offset = max(offset, done_before)
            while offset < end and len(found) < count_max:
                messages, offset = await self.pull(queue, offset)
                inside = [one for one in messages if one.queue_offset < end and not is_note(one)]
                found += [
                    letter
                    for letter in await each(partial(self.look_at, done_before=done_before), inside)
                    if letter.state in (WAITING, UNKNOWN) or not waiting_only
                ]
        return found[:count_max]

    async def first_from(self, address: str, queue: MessageQueue, moment: ResetTo) -> int:
        """Returns the offset of the first message stored at a moment or later, the end for none.

        A broker tells the nearest message, of several that were stored in one ms any, so it is
        asked for the ms before, and what follows there is read up to the moment.
        """
        moment_ms = timestamp_of(moment)
        if moment in ("first", "last"):
            return await offset_at(self.asking, address, queue, moment_ms)
        end = await offset_at(self.asking, address, queue, timestamp_of("last"))
        offset = await offset_at(self.asking, address, queue, max(moment_ms - 1, 0))
        while offset < end:
            messages, next_offset = await self.pull(queue, offset)
            for message in messages:
                if message.store_timestamp_ms >= moment_ms:
                    return message.queue_offset
            offset = next_offset
        return end

    async def done_before(self, queue: MessageQueue) -> int:
        """Returns the offset before which all is dealt with."""
        return await self._requests.committed(queue) or 0

    async def waiting_max(self) -> int:
        """Returns how many messages are not known to be dealt with, without looking at each."""
        count = 0
        for queue, address in (await self.queues()).items():
            low = await offset_at(self.asking, address, queue, timestamp_of("first"))
            high = await offset_at(self.asking, address, queue, timestamp_of("last"))
            count += max(high - max(low, await self.done_before(queue)), 0)
        return count

    async def pull(
        self, queue: MessageQueue, offset: int, count_max: int = _PULL_COUNT
    ) -> tuple[list[ReceivedMessage], int]:
        """Returns some messages from an offset on, and where to go on."""
        result = await self._requests.pull(queue, offset, count_max=count_max, suspend_s=0)
        messages = result.messages if result.status is PullStatus.FOUND else []
        # Whatever the broker says, a loop over offsets gets on.
        return messages, max(result.next_offset, offset + 1)

    async def find(self, letter_id: str) -> list[ReceivedMessage]:
        """Returns a dead letter by its name, or those of a message id.

        Raises:
            NotFoundError: there is none.
        """
        messages: list[ReceivedMessage] = []
        broker_name, slash, place = letter_id.partition("/")
        if slash:
            queue_id, _, offset = place.partition("/")
            if not (queue_id.isdecimal() and offset.isdecimal() and len(place) < 40):
                raise ConfigError(
                    f"dead letter {letter_id!r}: give broker/queue/offset, or the id of a message"
                )
            queue = MessageQueue(self.topic, broker_name, int(queue_id))
            if queue in await self.queues():
                pulled = (await self.pull(queue, int(offset), 1))[0]
                messages = [one for one in pulled if one.queue_offset == int(offset)]
        elif await self.queues():
            messages = await self._of_id(self.topic, letter_id)
        messages = [one for one in messages if not is_note(one)]
        if not messages:
            raise NotFoundError(
                f"group {self.group!r} has no dead letter {letter_id!r}", topic=self.topic
            )
        return messages

    async def look_at(self, message: ReceivedMessage, done_before: int = 0) -> DeadLetter:
        """Returns a dead letter with what became of it.

        Args:
            message: as it was pulled.
            done_before: offset before which all is dealt with.
        """
        letter_id = id_of(message)
        beside = await self._of_id(self.topic, message_id_of(message))
        own = message.readable_properties
        origin = own.get(names.RETRY_TOPIC)
        if origin and await self._is_resent(message, origin):
            state = RESENT
        elif message.queue_offset < done_before or any(
            one.readable_properties.get(names.DROPPED) == letter_id for one in beside
        ):
            state = DROPPED
        elif names.UNIQUE_KEY in own and letter_id not in map(id_of, beside):
            # The index does not even know the dead letter itself.
            state = UNKNOWN
        else:
            state = WAITING
        return DeadLetter(
            id=letter_id, group=self.group, origin=origin, state=state, message=message
        )

    async def _is_resent(self, message: ReceivedMessage, topic: str) -> bool:
        mark = self.mark(message)
        found = await self._of_id(topic, message_id_of(message))
        return any(one.readable_properties.get(names.RESENT) == mark for one in found)

    def mark(self, message: ReceivedMessage) -> str:
        """Returns how a message that is sent again names the dead letter that it was."""
        return f"{self.group}/{id_of(message)}"

    async def _of_id(self, topic: str, message_id: str) -> list[ReceivedMessage]:
        """Returns the messages of an id from all brokers of a topic; none of one that is not there.

        Raises:
            ClientError: a broker could not be asked, so that nobody knows.
        """
        header = QueryMessageRequestHeader(
            topic=topic,
            key=message_id,
            max_num=_FOUND_MAX,
            begin_timestamp=0,
            end_timestamp=_TIME_MAX,
            unique_key_query=True,
        )
        try:
            brokers = await self.asking.brokers_of(topic)
        except NotFoundError:
            return []
        found: list[ReceivedMessage] = []
        for name, address in brokers.items():
            answer = await self.asking.ask(address, RequestCode.QUERY_MESSAGE, header)
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            if answer.code != ResponseCode.SUCCESS:
                raise RefusedError(answer.code, answer.remark, broker=address, topic=topic)
            place = MessageQueue(topic, name, 0)
            for one in decode_messages(answer.body, place, _BODY_BYTES_MAX, frozenset()):
                one.queue = MessageQueue(topic, name, one.record.queue_id)
                found.append(one)
        # The index goes by hashes: what has another id slipped through.
        return [one for one in found if message_id_of(one) == message_id]
