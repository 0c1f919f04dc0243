"""Headers about topics and statistics, sent to a broker: codes 17, 26, 52, 202, 208, 215, 300, 303,
315, 317, 351.

Source: CreateTopicRequestHeader.java and its neighbors.
"""

from ledgermq.protocol.headers.header import Header, Int32


class CreateTopicRequestHeader(Header, frozen=True, kw_only=True):
    """CreateTopicRequestHeader (17)."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    # 4 read, 2 write, 1 inherit.
    perm: Int32
    # SINGLE_TAG or MULTI_TAG.
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    # 5.x
    attributes: str | None = None
    force: bool | None = None


class DeleteTopicRequestHeader(Header, frozen=True, kw_only=True):
    """DeleteTopicRequestHeader (215)."""

    topic: str


class GetTopicStatsInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GetTopicStatsInfoRequestHeader (202)."""

    topic: str


class GetConsumeStatsRequestHeader(Header, frozen=True, kw_only=True):
    """GetConsumeStatsRequestHeader (208)."""

    consumer_group: str
    topic: str | None = None
    # 5.x
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(Header, frozen=True, kw_only=True):
    """GetConsumeStatsInBrokerHeader (317)."""

    is_order: bool = False


class QueryTopicConsumeByWhoRequestHeader(Header, frozen=True, kw_only=True):
    """QueryTopicConsumeByWhoRequestHeader (300)."""

    topic: str


class QueryConsumeTimeSpanRequestHeader(Header, frozen=True, kw_only=True):
    """QueryConsumeTimeSpanRequestHeader (303)."""

    topic: str
    group: str


class ViewBrokerStatsDataRequestHeader(Header, frozen=True, kw_only=True):
    """ViewBrokerStatsDataRequestHeader (315)."""

    stats_name: str
    stats_key: str


class GetTopicConfigRequestHeader(Header, frozen=True, kw_only=True):
    """GetTopicConfigRequestHeader (351, 5.x)."""

    topic: str


class GetBrokerConfigResponseHeader(Header, frozen=True, kw_only=True):
    """GetBrokerConfigResponseHeader (26)."""

    # Data version as JSON.
    version: str
