"""OncePlan: what all tries of all tasks of a write know before the first row is sent."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from ledgermq.client import MessageQueue
from ledgermq.protocol.names import DEFAULT_TOPIC
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import OptionError, UnknownTopicError
from ledgermq.spark.offsets import Offsets
from ledgermq.spark.options import WriteOptions


@dataclass(slots=True, frozen=True, kw_only=True)
class OncePlan:
    """Made on the driver; it travels to the tasks."""

    # Names the write; its tasks' turns are called by it.
    write_id: str
    # All that a row may be sent to.
    topics: tuple[str, ...]
    # Where their queues ended: no row of the write is before.
    since: Offsets
    # The queue whose broker keeps the turns.
    turns_at: MessageQueue


def plan_once(options: WriteOptions) -> OncePlan | None:
    """Returns what a write that stores each row once begins with; None for any other write.

    Raises:
        OptionError: it is not said which topics rows may be sent to.
        ClusterError: the cluster does not answer.
    """
    if not options.is_once:
        return None
    topics = options.once_topics or (() if options.topic is None else (options.topic,))
    if not topics:
        raise OptionError("onceTopics", None, "the topics of the rows, or the option topic")
    with Cluster(options.name_servers, options.timeout_s, options.access) as cluster:
        since = options.once_since
        if since is None:
            since = end_offsets_of(cluster, topics, unknown_s=0)
        return OncePlan(
            write_id=options.write_id or uuid.uuid4().hex,
            topics=topics,
            since=since,
            turns_at=place_of_turns(cluster, since),
        )


def end_offsets_of(
    cluster: Cluster, topics: Iterable[str], *, unknown_s: float
) -> dict[MessageQueue, int]:
    """Returns where topics end now; those that are not there have no queues.

    Args:
        cluster: is asked.
        topics: their names.
        unknown_s: how long one may be unknown before that is believed.
    """
    ends = {}
    for topic in topics:
        try:
            queues = cluster.queues([topic], unknown_s=unknown_s)
        except UnknownTopicError:
            continue
        ends.update({queue: cluster.max_offset(queue) for queue in queues})
    return ends


def place_of_turns(cluster: Cluster, since: Offsets) -> MessageQueue:
    """Returns the queue whose broker keeps the turns of a write: the first of its topics.

    Where none of its topics is there yet, it is one of the topic from which brokers make others.

    Raises:
        OptionError: that one is not there either.
    """
    if since:
        return min(since)
    try:
        return min(cluster.queues([DEFAULT_TOPIC], unknown_s=0))
    except UnknownTopicError as error:
        raise OptionError("once", "true", "only for topics that are there") from error
