"""Which queue a message goes to: pure functions over the queues of a route.

Messages with an ordering key always go to the queue of that key, whether its broker has a leader
now or not. All others go round robin over the queues that can take them now, and a retry prefers
another broker than the one that failed.
"""

import zlib
from collections.abc import Mapping, Sequence

from ledgermq.protocol.bodies import MessageQueue


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Returns the queue of an ordering key: the same in every process, as long as the queues are.

    Args:
        queues: all writable queues of the topic, sorted; not empty.
        key: any text.
    """
    return queues[zlib.crc32(key.encode("utf-8", "surrogatepass")) % len(queues)]


def next_queue(
    queues: Sequence[MessageQueue],
    masters: Mapping[str, str],
    turn: int,
    avoided_broker: str | None = None,
) -> MessageQueue | None:
    """Returns the queue whose turn it is.

    Args:
        queues: all writable queues of the topic, sorted.
        masters: broker names that have a leader now.
        turn: number of the send; counts up by one.
        avoided_broker: name of a broker that failed; it is taken only when there is no other.

    Returns:
        None when no queue has a leader now.
    """
    count = len(queues)
    second_best: MessageQueue | None = None
    for step in range(count):
        queue = queues[(turn + step) % count]
        if queue.broker_name not in masters:
            continue
        if queue.broker_name != avoided_broker:
            return queue
        second_best = second_best or queue
    return second_best
