"""How the queues of a topic are divided among the members of a group: pure functions.

Every member computes the same division by itself from the same two sorted lists, so nobody has to
hand queues out. While members see different lists, a queue may have two readers or none for a
moment; the next round mends it.

Source: AllocateMessageQueueAveragely of 4.9.3.
"""

from collections.abc import Iterable

from ledgermq.protocol.bodies import MessageQueue


def allocate(
    queues: Iterable[MessageQueue], members: Iterable[str], member: str
) -> list[MessageQueue]:
    """Returns the queues of one member: a contiguous block; the first members get one more.

    Args:
        queues: all queues of the topic, in any order.
        members: client ids of the group, in any order.
        member: the client id whose part is wanted.

    Returns:
        Sorted queues; none when the member is not in the group, or there are more members than
        queues.
    """
    ordered = sorted(set(queues))
    ids = sorted(set(members))
    if member not in ids:
        return []
    number = ids.index(member)
    share, rest = divmod(len(ordered), len(ids))
    start = number * share + min(number, rest)
    return ordered[start : start + share + (1 if number < rest else 0)]
