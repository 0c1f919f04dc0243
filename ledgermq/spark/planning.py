"""Where a read begins and ends: offsets of options, resolved against what the queues hold now."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql.datasource import Filter

from ledgermq.client import MessageQueue
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import OffsetRangeError, OffsetsRemovedError, OptionError
from ledgermq.spark.filters import offset_bounds, passing_queues, time_bounds_ms
from ledgermq.spark.offsets import FORM, Offsets
from ledgermq.spark.options import ReadOptions
from ledgermq.spark.partitions import queue_name

_log = logging.getLogger("ledgermq.spark")
_LATEST: Final = "latest"
# A queue is not strictly in the order of its store times: brokers take the time before their turn
# to append, and the next leader's clock may be behind. Messages that are out of order by less than
# this are found; of several with the same time a stock broker may answer with any.
_DISORDER_MS: Final = 10_000
Moments = int | Mapping[MessageQueue, int] | None


def find_queues(cluster: Cluster, options: ReadOptions) -> list[MessageQueue]:
    """Returns the queues of a read, in order; none where no topic fits a pattern.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    topics = cluster.topics(options.topics, options.topic_pattern)
    # Of a pattern, one topic that is closed for reading does not end the read of all others.
    return sorted(cluster.queues(topics, are_found=bool(options.topic_pattern)))


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
    if not queues:
        _log.warning("no topic that can be read fits topicPattern %r", options.topic_pattern)
    if options.starting_ms is not None:
        # Rows are compared with the time; this only finds where to begin.
        moments = _moments("startingTimestamp", options.starting_ms, queues)
        return {
            queue: cluster.min_offset(queue)
            if (moment_ms := moments[queue]) is None
            else cluster.offset_at(queue, max(0, moment_ms - _slack_ms(options)))
            for queue in queues
        }
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
        moments = _moments("endingTimestamp", options.ending_ms, queues)
        return {
            queue: end
            if (moment_ms := moments[queue]) is None
            else min(end, _offset_after(cluster, queue, moment_ms + _slack_ms(options)))
            for queue, end in ends.items()
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


def narrowed(
    cluster: Cluster,
    options: ReadOptions,
    starts: Offsets,
    ends: Offsets,
    filters: Sequence[Filter],
) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
    """Returns what conditions of a query leave of the ranges of a read, their starts and ends.

    Args:
        cluster: asked for offsets by time.
        options: of the read.
        starts: where each queue begins, not behind its end.
        ends: where it ends.
        filters: conditions that can be judged; a row that passes them all is in what is left.
    """
    queues = sorted(passing_queues(filters, sorted(ends)))
    first, end = offset_bounds(filters)
    first_ms, end_ms = (
        time_bounds_ms(filters) if options.time_slack_ms is not None else (None, None)
    )
    begun, ended = {}, {}
    for queue in queues:
        low, high = max(starts[queue], first), min(ends[queue], end)
        if low < high and first_ms is not None:
            low = max(low, cluster.offset_at(queue, max(0, first_ms - _slack_ms(options))))
        if low < high and end_ms is not None:
            high = min(high, _offset_after(cluster, queue, max(0, end_ms + _slack_ms(options))))
        begun[queue], ended[queue] = min(low, high), high
    return begun, ended


def is_by_time(options: ReadOptions) -> bool:
    """Tells whether an end of a read is looked for by time."""
    return options.starting_ms is not None or options.ending_ms is not None


def moment_of(moments: Moments, queue: MessageQueue) -> int | None:
    """Returns the time at which the read of a queue begins or ends; None for no such time."""
    return moments.get(queue) if isinstance(moments, Mapping) else moments


def _moments(
    option: str, moments: Moments, queues: list[MessageQueue]
) -> dict[MessageQueue, int | None]:
    if isinstance(moments, Mapping):
        _check_known(option, moments, queues)
    return {queue: moment_of(moments, queue) for queue in queues}


def _slack_ms(options: ReadOptions) -> int:
    return _DISORDER_MS if options.time_slack_ms is None else options.time_slack_ms


def _offset_after(cluster: Cluster, queue: MessageQueue, after_ms: int) -> int:
    """Returns an offset before which all messages lie that are older than a time.

    Java answers with the last message when all are older than the time: one more is read.
    """
    return cluster.offset_at(queue, after_ms) + 1


def _check_known(option: str, wanted: Offsets, queues: list[MessageQueue]) -> None:
    unknown = sorted(set(wanted) - set(queues))
    if unknown:
        known = "; ".join(queue_name(queue) for queue in queues)
        raise OptionError(option, queue_name(unknown[0]), f"{FORM} with {known}")
