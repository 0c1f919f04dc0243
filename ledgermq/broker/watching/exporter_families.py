"""The names of Apache's rocketmq-exporter, for dashboards and rules that were made for it.

They stand on a page of their own, `/metrics/exporter`: all are gauges there, and some would clash
with RocketMQ 5's. Six of the 89 are missing: those that only a consumer itself knows
(`rocketmq_client_*`).
"""

from typing import Final, NamedTuple

from ledgermq.broker.watching.families import Family

_BROKER: Final = ("cluster", "brokerIP", "broker")
_TOPIC: Final = ("cluster", "broker", "topic")
_GROUP: Final = ("cluster", "broker", "group")
_PAIR: Final = ("cluster", "broker", "topic", "group")
_DIFF: Final = ("group", "topic", "countOfOnlineConsumers", "msgModel")
RUNTIME_LABELS: Final = (
    "cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version",
)  # fmt: skip


class Runtime(NamedTuple):
    """Where a number of the runtime information stands.

    Attributes:
        key: of the runtime information (code 28).
        place: of the number among the words of its text.
    """

    key: str
    place: int = 0


_WINDOWS: Final = ("10", "60", "600")
_SPANS: Final = (
    "0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s", "1to2s",
    "2to3s", "3to4s", "4to5s", "5to10s", "10stomore",
)  # fmt: skip

# Behind `rocketmq_brokeruntime_`.
RUNTIME: Final[dict[str, Runtime]] = {
    "msg_put_total_today_now": Runtime("msgPutTotalTodayNow"),
    "msg_gettotal_today_now": Runtime("msgGetTotalTodayNow"),
    "msg_puttotal_todaymorning": Runtime("msgPutTotalTodayMorning"),
    "msg_gettotal_todaymorning": Runtime("msgGetTotalTodayMorning"),
    "msg_puttotal_yesterdaymorning": Runtime("msgPutTotalYesterdayMorning"),
    "msg_gettotal_yesterdaymorning": Runtime("msgGetTotalYesterdayMorning"),
    **{
        f"{name}_tps{window}": Runtime(key, place)
        for name, key in (
            ("put", "putTps"),
            ("gettotal", "getTotalTps"),
            ("getfound", "getFoundTps"),
            ("getmiss", "getMissTps"),
            ("gettransfered", "getTransferedTps"),
        )
        for place, window in enumerate(_WINDOWS)
    },
    "put_latency_99": Runtime("putLatency99"),
    "put_latency_999": Runtime("putLatency999"),
    "put_message_average_size": Runtime("putMessageAverageSize"),
    "put_message_size_total": Runtime("putMessageSizeTotal"),
    "putmessage_times_total": Runtime("putMessageTimesTotal"),
    "putmessage_entire_time_max": Runtime("putMessageEntireTimeMax"),
    "getmessage_entire_time_max": Runtime("getMessageEntireTimeMax"),
    "send_threadpool_queue_size": Runtime("sendThreadPoolQueueSize"),
    "send_threadpoolqueue_capacity": Runtime("sendThreadPoolQueueCapacity"),
    "send_threadpoolqueue_headwait_timemills": Runtime("sendThreadPoolQueueHeadWaitTimeMills"),
    "pull_threadpoolqueue_size": Runtime("pullThreadPoolQueueSize"),
    "pull_threadpoolqueue_capacity": Runtime("pullThreadPoolQueueCapacity"),
    "pull_threadpoolqueue_headwait_timemills": Runtime("pullThreadPoolQueueHeadWaitTimeMills"),
    "query_threadpoolqueue_size": Runtime("queryThreadPoolQueueSize"),
    "query_threadpool_queue_capacity": Runtime("queryThreadPoolQueueCapacity"),
    "query_threadpoolqueue_headwait_timemills": Runtime("queryThreadPoolQueueHeadWaitTimeMills"),
    "dispatch_behind_bytes": Runtime("dispatchBehindBytes"),
    "dispatch_maxbuffer": Runtime("dispatchMaxBuffer"),
    "commitlog_maxoffset": Runtime("commitLogMaxOffset"),
    "commitlog_minoffset": Runtime("commitLogMinOffset"),
    "commitlog_disk_ratio": Runtime("commitLogDiskRatio"),
    "consumequeue_disk_ratio": Runtime("consumeQueueDiskRatio"),
    "earliest_message_timestamp": Runtime("earliestMessageTimeStamp"),
    "remain_howmanydata_toflush": Runtime("remainHowManyDataToFlush"),
    "remain_transientstore_buffer_numbs": Runtime("remainTransientStoreBufferNumbs"),
    "pagecache_lock_time_mills": Runtime("pageCacheLockTimeMills"),
    "start_accept_sendrequest_time": Runtime("startAcceptSendRequestTimeStamp"),
    **{f"pmdt_{span}": Runtime("putMessageDistributeTime", i) for i, span in enumerate(_SPANS)},
}
# These two are given in bytes, which the text of the runtime information is not.
CAPACITIES: Final = ("commitlogdir_capacity_free", "commitlogdir_capacity_total")


def _gauge(name: str, labels: tuple[str, ...], text: str) -> Family:
    return Family(f"rocketmq_{name}", "gauge", labels, text)


_ROWS: Final = (
    _gauge("broker_tps", _BROKER, "Messages put a second."),
    _gauge("broker_qps", _BROKER, "Messages got a second."),
    _gauge("broker_commitlog_diff", _BROKER, "Bytes that the slowest follower is behind."),
    _gauge("producer_tps", _TOPIC, "Messages a second put to a topic."),
    _gauge("producer_message_size", _TOPIC, "Bytes a second put to a topic."),
    _gauge("producer_offset", _TOPIC, "Ends of a topic's queues, added up."),
    _gauge("topic_retry_offset", _TOPIC, "The same of a retry topic."),
    _gauge("topic_dlq_offset", _GROUP, "The same of a group's dead letters."),
    _gauge("producer_count", _GROUP, "Producers of a group."),
    _gauge("consumer_tps", _PAIR, "Messages a second that a group got."),
    _gauge("consumer_message_size", _PAIR, "Bytes a second that a group got."),
    _gauge("consumer_offset", _PAIR, "Ends of the queues that a group reads, added up."),
    _gauge("group_consume_tps", _PAIR, "Messages a second that a group got."),
    _gauge("group_consume_total_offset", _PAIR, "Committed offsets of a group, added up."),
    _gauge("send_back_nums", _PAIR, "Messages a second that a group gave back."),
    _gauge("group_get_latency_by_storetime", _PAIR, "Age in ms of what a group has to consume."),
    _gauge("group_diff", _DIFF, "Messages that a group has to consume."),
    _gauge("group_retrydiff", _DIFF, "The same in its retry topic."),
    _gauge("group_dlqdiff", _DIFF, "The same in its dead letters."),
    _gauge("group_count", ("caddr", "localaddr", "group"), "Consumers of a group."),
    *(
        _gauge(f"brokeruntime_{name}", RUNTIME_LABELS, f"As {where.key} of the broker's status.")
        for name, where in RUNTIME.items()
    ),
    *(_gauge(f"brokeruntime_{name}", RUNTIME_LABELS, "Bytes of the disk.") for name in CAPACITIES),
)

EXPORTER_FAMILIES: Final = {row.name: row for row in _ROWS}
assert len(EXPORTER_FAMILIES) == len(_ROWS)


def number_at(text: str, place: int) -> float | None:
    """Returns a number of a text of the runtime information; None when it is none.

    Words are divided by blanks; of `[0~10ms]:3` the number is behind the colon.
    """
    words = text.split()
    try:
        return float(words[place].rpartition(":")[2])
    except (IndexError, ValueError):
        return None
