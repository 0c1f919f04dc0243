"""Which queue a message goes to: pure functions over the queues of a route.

Messages with an ordering key always go to the queue of that key, whether its broker has a leader
now or not. All others go round robin over the queues that can take them now, a retry prefers
another broker than the one that failed, and a broker that answers slowly gets fewer: one on which
far more requests wait than on another is passed over until it has caught up. So a slow broker takes
its own part of the room for sends, and not that of the others.
"""

import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ledgermq.protocol.bodies import MessageQueue

# A broker is crowded with so many times the requests of the one with the fewest, and so many more.
_CROWDED_TIMES: Final = 2
_CROWDED_COUNT: Final = 8


def crowded_brokers(waiting: Mapping[str, int]) -> frozenset[str]:
    """Returns the names of brokers that had better get nothing for a while.

    Args:
        waiting: broker name -> requests that wait there for their answer; connected ones only.
    """
    if len(waiting) < 2:
        return frozenset()
    limit = _CROWDED_TIMES * min(waiting.values()) + _CROWDED_COUNT
    return frozenset(name for name, count in waiting.items() if count > limit)


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
    crowded: Collection[str] = (),
) -> MessageQueue | None:
    """Returns the queue whose turn it is.

    Args:
        queues: all writable queues of the topic, sorted.
        masters: broker names that have a leader now.
        turn: number of the send; counts up by one.
        avoided_broker: name of a broker that failed; it is taken only when there is no other.
        crowded: names of brokers that are taken only when there is no other but that one.

    Returns:
        None when no queue has a leader now.
    """
    count = len(queues)
    second_best: MessageQueue | None = None
    third_best: MessageQueue | None = None
    for step in range(count):
        queue = queues[(turn + step) % count]
        if queue.broker_name not in masters:
            continue
        if queue.broker_name == avoided_broker:
            third_best = third_best or queue
        elif queue.broker_name in crowded:
            second_best = second_best or queue
        else:
            return queue
    return second_best or third_best
