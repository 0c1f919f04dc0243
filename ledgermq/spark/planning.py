"""Where a read begins and ends: offsets of options, resolved against what the queues hold now."""

import logging
from typing import Final

from ledgermq.client import MessageQueue
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import OffsetRangeError, OffsetsRemovedError, OptionError
from ledgermq.spark.offsets import FORM
from ledgermq.spark.options import ReadOptions
from ledgermq.spark.partitions import queue_name

_log = logging.getLogger("ledgermq.spark")
_LATEST: Final = "latest"
# A queue is not strictly in the order of its store times: brokers take the time before their turn
# to append, and the next leader's clock may be behind. Messages that are out of order by less than
# this are found; of several with the same time a stock broker may answer with any.
_DISORDER_MS: Final = 10_000


def find_queues(cluster: Cluster, options: ReadOptions) -> list[MessageQueue]:
    """Returns the queues of a read, in order.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    return sorted(cluster.queues(cluster.topics(options.topics, options.topic_pattern)))


def start_offsets(
    cluster: Cluster, options: ReadOptions, queues: list[MessageQueue]
) -> dict[MessageQueue, int]:
    """Returns where each queue begins.

    Raises:
        OptionError: the option names a queue that is none of these.
        OffsetsRemovedError: a start that was asked for is gone, and data loss is an error.
        OffsetRangeError: a start lies behind the last message.
    """
    wanted = options.starting_offsets
    if options.starting_ms is not None:
        # Rows are compared with the time; this only finds where to begin.
        before_ms = max(0, options.starting_ms - _DISORDER_MS)
        return {queue: cluster.offset_at(queue, before_ms) for queue in queues}
    if wanted == _LATEST:
        return {queue: cluster.max_offset(queue) for queue in queues}
    starts = {queue: cluster.min_offset(queue) for queue in queues}
    if isinstance(wanted, dict):
        _check_known("startingOffsets", wanted, queues)
        for queue, offset in sorted(wanted.items()):
            starts[queue] = _checked_start(cluster, options, queue, offset, starts[queue])
    return starts


def _checked_start(
    cluster: Cluster, options: ReadOptions, queue: MessageQueue, offset: int, first_offset: int
) -> int:
    if offset < first_offset:
        error = OffsetsRemovedError(queue_name(queue), offset, first_offset)
        if options.fails_on_data_loss:
            raise error
        _log.warning("skipped: %s", error)
        return first_offset
    end = cluster.max_offset(queue)
    if offset > end:
        raise OffsetRangeError(queue_name(queue), offset, end, "the queue ends before the start")
    return offset


def end_offsets(
    cluster: Cluster, options: ReadOptions, queues: list[MessageQueue]
) -> dict[MessageQueue, int]:
    """Returns where each queue ends, now and for good.

    Raises:
        OptionError: the option names a queue that is none of these.
        OffsetRangeError: an end lies behind the last message.
    """
    wanted = options.ending_offsets
    if wanted == "earliest":
        return {queue: cluster.min_offset(queue) for queue in queues}
    ends = {queue: cluster.max_offset(queue) for queue in queues}
    if options.ending_ms is not None:
        # Java answers with the last message when all are older than the time: one more is read.
        after_ms = options.ending_ms + _DISORDER_MS
        return {
            queue: min(end, cluster.offset_at(queue, after_ms) + 1) for queue, end in ends.items()
        }
    if isinstance(wanted, dict):
        _check_known("endingOffsets", wanted, queues)
        for queue, offset in sorted(wanted.items()):
            if offset > ends[queue]:
                raise OffsetRangeError(
                    queue_name(queue), offset, ends[queue], "the queue ends before the end"
                )
            ends[queue] = offset
    return ends


def _check_known(option: str, wanted: dict[MessageQueue, int], queues: list[MessageQueue]) -> None:
    unknown = sorted(set(wanted) - set(queues))
    if unknown:
        known = "; ".join(queue_name(queue) for queue in queues)
        raise OptionError(option, queue_name(unknown[0]), f"{FORM} with {known}")
