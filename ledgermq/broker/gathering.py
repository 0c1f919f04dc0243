"""Plain sends become messages of this turn: the checks that they still need, in one pass.

Part of the kernel (`ledgermq/kernel.py`): compiled with the types of `gathering.pxd`, or run as it
stands. What a send must pass here is what `processors/send.py` asks of it; a send that does not
pass is left to that, which says why.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ledgermq.broker.waiting import Request
from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.plain_sends import PlainSend
from ledgermq.protocol.properties import PROPERTIES_BYTES_MAX
from ledgermq.protocol.record import RECORD_FIXED_BYTES, Host
from ledgermq.protocol.sysflag import TRANSACTION_MASK

# What a plain send needs to know of a topic that has passed all checks: name, number of queues,
# and the bits that are set in the sysFlag of each of its messages.
OpenTopic = tuple[str, int, int]


class Gathered(NamedTuple):
    """Sends of one chunk, as what is appended and who waits for it."""

    messages: list[AppendMessage]
    requests: list[Request]
    # About what the records will take.
    bytes: int


_FIXED = RECORD_FIXED_BYTES
_PROPERTIES_MAX = PROPERTIES_BYTES_MAX
_TRANSACTION = TRANSACTION_MASK
_ONE_WAY = 2
_new_tuple = tuple.__new__


def gather(
    sends: Sequence[PlainSend],
    topics: Mapping[bytes, OpenTopic],
    puts: Mapping[str, list[int]],
    connection: Any,
    store_host: Host,
    last_property: bytes,
    record_bytes_max: int,
) -> Gathered:
    """Return the sends, in order, up to one that is to be looked at by itself.

    Args:
        topics: those that need no more checks.
        puts: counters of messages and bytes by topic; those of the sends are advanced.
        connection: who sends; its context is the host that bore the messages.
        store_host: of this broker.
        last_property: put behind the properties of each.
        record_bytes_max: of a record with the longest addresses.
    """
    messages: list[AppendMessage] = []
    requests: list[Request] = []
    total = 0
    born_host = connection.context
    for opaque, flag, name, queue_id, own_flag, sys_flag, born, times, properties, body in sends:
        topic = topics.get(name)
        if topic is None or queue_id < 0 or queue_id >= topic[1] or sys_flag & _TRANSACTION:
            break
        topic_name = topic[0]
        counter = puts.get(topic_name)
        text = properties + last_property
        size = _FIXED + len(body) + len(name) + len(text)
        if counter is None or size > record_bytes_max or len(text) > _PROPERTIES_MAX:
            break
        fields = (
            topic_name, queue_id, own_flag, sys_flag | topic[2], born, born_host, store_host, times,
            0, body, text,
        )  # fmt: skip
        messages.append(_new_tuple(AppendMessage, fields))
        receiver = None if flag & _ONE_WAY else connection
        requests.append((receiver, opaque, 0, queue_id, 1, size, None))
        counter[0] += 1
        counter[1] += size
        total += size
    return Gathered(messages, requests, total)
