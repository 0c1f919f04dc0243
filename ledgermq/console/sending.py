"""Messages that the console sends: each once; a second try could be a second message."""

from collections.abc import Mapping, Sequence
from typing import Final, overload

from ledgermq.client.errors import RefusedError
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.retry import UNSAFE_STORE_CODES
from ledgermq.client.selection import queue_of_key
from ledgermq.console.cluster import ClusterView
from ledgermq.http.replies import RequestError
from ledgermq.protocol import properties as names
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.errors import LocalProtocolError
from ledgermq.protocol.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from ledgermq.protocol.names import DEFAULT_TOPIC
from ledgermq.protocol.properties import PROPERTIES_BYTES_MAX, format_properties

_WRITABLE: Final = 2
_SENDER_GROUP: Final = "ledgermq_console"
_STORED: Final = UNSAFE_STORE_CODES | {int(ResponseCode.SUCCESS)}
_LEFT_OUT: Final = names.OF_A_DELIVERY | {*names.TIMERS, names.RESENT}


def new_properties(
    own: Mapping[str, str], keys: str, tags: str, delay_level: int
) -> dict[str, str]:
    """Returns the properties of a new message."""
    found = {name: value for name, value in own.items() if name and value}
    if keys:
        found[names.KEYS] = keys
    if tags:
        found[names.TAGS] = tags
    if delay_level:
        found[names.DELAY_TIME_LEVEL] = str(delay_level)
    return found


def copied_properties(message: ReceivedMessage) -> dict[str, str]:
    """Returns the properties that a copy of a message has."""
    return {name: value for name, value in message.properties.items() if name not in _LEFT_OUT}


def text_of_properties(properties: Mapping[str, str]) -> str:
    """Returns properties as a request has them.

    Raises:
        RequestError: they cannot be sent.
    """
    try:
        text = format_properties(properties)
    except LocalProtocolError as error:
        raise RequestError(400, str(error), field="properties") from error
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > PROPERTIES_BYTES_MAX:
        message = f"properties of {size} bytes; allowed: {PROPERTIES_BYTES_MAX}"
        raise RequestError(400, message, field="properties", limit=PROPERTIES_BYTES_MAX)
    return text


class _Queues(Sequence[MessageQueue]):
    """The queues of a topic, by their numbers at brokers: each is made as it is asked for."""

    def __init__(self, topic: str, counts: Mapping[str, int]) -> None:
        self._topic, self._counts = topic, counts

    def __len__(self) -> int:
        return sum(self._counts.values())

    @overload
    def __getitem__(self, index: int) -> MessageQueue: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MessageQueue]: ...

    def __getitem__(self, index: int | slice) -> MessageQueue | Sequence[MessageQueue]:
        assert isinstance(index, int)
        for broker, count in self._counts.items():
            if index < count:
                return MessageQueue(self._topic, broker, index)
            index -= count
        raise IndexError(index)


async def send_once(
    view: ClusterView,
    topic: str,
    body: bytes,
    properties: Mapping[str, str],
    sys_flag: int = 0,
    flag: int = 0,
) -> str:
    """Sends a message; returns where it lies.

    Raises:
        RequestError: it cannot be sent as it is, or nobody takes it now.
        RefusedError: the broker refuses it.
        UnreachableError: no answer came: it may be stored.
    """
    # As brokers have the topic: name servers may not know a new one yet.
    entries = (await view.topics()).by_name.get(topic, {})
    masters = {target.name: target.address for target in (await view.writers())[0]}
    ready = {
        broker: entry.config.write_queue_nums
        for broker, entry in sorted(entries.items())
        if broker in masters and entry.config.perm & _WRITABLE and entry.config.write_queue_nums
    }
    if not ready:
        raise RequestError(409, f"no queue of {topic} takes messages now", code="no_leader")
    key = properties.get(names.SHARDING_KEY)
    unique = view.remote.new_message_id()
    queue = queue_of_key(_Queues(topic, ready), key or unique)
    properties = {names.UNIQUE_KEY: unique, **properties, names.WAIT_STORE_MSG_OK: "true"}
    text = text_of_properties(properties)
    header = SendMessageRequestHeaderV2(
        producer_group=_SENDER_GROUP,
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=1,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=view.now_ms(),
        flag=flag,
        properties=text,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    address = masters[queue.broker_name]
    answer = await view.remote.ask(address, RequestCode.SEND_MESSAGE_V2, header, body)
    if answer.code not in _STORED:
        raise RefusedError(answer.code, answer.remark, broker=address, topic=topic)
    stored = answer.header(SendMessageResponseHeader)
    return f"{topic}/{queue.broker_name}/{stored.queue_id}/{stored.queue_offset}"
