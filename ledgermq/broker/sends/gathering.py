"""Quick sends become messages of this turn: the checks that they still need, in one pass.

Part of the kernel (`ledgermq/kernel.py`): compiled with the types of `gathering.pxd`, or run as it
stands. What a send must pass here is what `send.py` asks of it; a send that does not
pass is left to that, which says why.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ledgermq.broker.sends.waiting import Request
from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.batch import BATCH_COUNT_MAX
from ledgermq.protocol.properties import KEYS_COUNT_MAX, PROPERTIES_BYTES_MAX
from ledgermq.protocol.quick_frames import QuickSend
from ledgermq.protocol.record import RECORD_FIXED_BYTES, Host
from ledgermq.protocol.sysflag import INNER_BATCH_MASK, TRANSACTION_MASK

# Whether this is the compiled form: the path is that of a library.
COMPILED: Final = not __file__.endswith(".py")

_FIXED = RECORD_FIXED_BYTES
# Of an element of a batch: 4 size, 4 magic, 4 crc, 4 flag, 4 body length, 2 properties length.
_ELEMENT_FIXED = 22
_COUNT_MAX = BATCH_COUNT_MAX
_PROPERTIES_MAX = PROPERTIES_BYTES_MAX
_KEYS_MAX = KEYS_COUNT_MAX
# Bits of a message that needs a closer look.
_MARKED = TRANSACTION_MASK | INNER_BATCH_MASK
_ONE_WAY = 2
_new_tuple = tuple.__new__


class OpenTopic:
    """What a quick send needs to know of a topic that has passed all checks, and what was sent."""

    __slots__ = ("_bytes", "_messages", "_name", "_queue_count", "_sys_flag")

    def __init__(self, name: str, queue_count: int, sys_flag: int) -> None:
        """Begins with nothing sent; `sys_flag` has bits that are set in each of its messages."""
        self._name = name
        self._queue_count = queue_count
        self._sys_flag = sys_flag
        # Since the last `take_count`.
        self._messages = 0
        self._bytes = 0

    def take_count(self) -> tuple[str, int, int]:
        """Returns name, messages and bytes since it was asked last."""
        count = (self._name, self._messages, self._bytes)
        self._messages = self._bytes = 0
        return count


def gather(
    sends: Sequence[QuickSend],
    topics: Mapping[bytes, OpenTopic],
    connection: Any,
    store_host: Host,
    last_property: bytes,
    record_bytes_max: int,
    messages: list[AppendMessage],
    requests: list[Request],
) -> int:
    """Gather sends, in order, up to one that is to be looked at by itself.

    Args:
        topics: those that need no more checks; they count what is gathered.
        connection: who sends; its context is the host that bore the messages.
        store_host: of this broker.
        last_property: put behind the properties of each.
        record_bytes_max: of a record with the longest addresses.
        messages: get what is appended.
        requests: get who waits for it.

    Returns:
        About what the records will take.
    """
    total = 0
    born_host = connection.context
    for opaque, flag, name, queue_id, own_flag, sys_flag, born, times, properties, body in sends:
        topic = topics.get(name)
        if topic is None or not 0 <= queue_id < topic._queue_count or sys_flag & _MARKED:
            break
        text = properties + last_property
        size = _FIXED + len(body) + len(name) + len(text)
        if size > record_bytes_max or len(text) > _PROPERTIES_MAX:
            break
        fields = (
            topic._name, queue_id, own_flag, sys_flag | topic._sys_flag, born, born_host,
            store_host, times, 0, body, text,
        )  # fmt: skip
        messages.append(_new_tuple(AppendMessage, fields))
        receiver = None if flag & _ONE_WAY else connection
        requests.append((receiver, opaque, 0, queue_id, 1, size, None))
        topic._messages += 1
        topic._bytes += size
        total += size
    return total


def gather_batch(
    body: bytes,
    topic: str,
    queue_id: int,
    sys_flag: int,
    born: int,
    born_host: Host,
    store_host: Host,
    times: int,
    record_bytes_max: int,
) -> tuple[list[AppendMessage], int] | None:
    """Return the messages of a batch and about what their records take.

    None when one of them is to be looked at by itself, or the batch cannot be read: the long road
    says why. Source of the layout: `protocol/batch.py`.

    Args:
        body: of the send.
        topic: as all below but the last, of each message.
        record_bytes_max: of a record with the longest addresses.
    """
    messages: list[AppendMessage] = []
    data = body
    total = at = 0
    topic_bytes, end = len(topic), len(body)
    while at < end:
        if at + _ELEMENT_FIXED > end or len(messages) >= _COUNT_MAX:
            return None
        size, flag, inner_bytes = _int32(data, at), _int32(data, at + 12), _int32(data, at + 16)
        stop, text_at = at + size, at + _ELEMENT_FIXED + inner_bytes
        if inner_bytes < 0 or stop > end or text_at > stop:
            return None
        text_bytes = data[text_at - 2] << 8 | data[text_at - 1]
        record_bytes = _FIXED + topic_bytes + inner_bytes + text_bytes
        if text_at + text_bytes != stop or text_bytes > _PROPERTIES_MAX:
            return None
        if record_bytes > record_bytes_max:
            return None
        text = body[text_at:stop]
        if text.count(b" ") >= _KEYS_MAX:
            return None
        if b"DELAY\x01" in text or b"TRAN_MSG\x01" in text or b"INNER_MULTI_" in text:
            return None
        if b"TIMER_DEL" in text:
            return None
        inner = body[at + _ELEMENT_FIXED - 2 : text_at - 2]
        fields = (
            topic, queue_id, flag, sys_flag, born, born_host, store_host, times, 0, inner, text
        )  # fmt: skip
        messages.append(_new_tuple(AppendMessage, fields))
        total += record_bytes
        at = stop
    return (messages, total) if messages else None


def _int32(data: bytes, at: int) -> int:
    value = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return value - 0x100000000 if value > 0x7FFFFFFF else value
