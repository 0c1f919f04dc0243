"""Headers of consumer offsets and queue offsets: codes 14, 15, 29 to 32, 220 to 223, 308, 314.

Source: QueryConsumerOffsetRequestHeader.java and its neighbors.
"""

from ledgermq.protocol.headers.header import Header, Int32, Int64


class QueryConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """QueryConsumerOffsetRequestHeader (14)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    # 5.x: False asks for 22 in place of 0 when nothing is stored.
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """QueryConsumerOffsetResponseHeader."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """UpdateConsumerOffsetRequestHeader (15)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class GetMaxOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """GetMaxOffsetRequestHeader (30)."""

    topic: str
    queue_id: Int32
    # 5.x; every offset this broker tells is a committed one.
    committed: bool | None = None


class GetMaxOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """GetMaxOffsetResponseHeader: offset of the next message."""

    offset: Int64


class GetMinOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """GetMinOffsetRequestHeader (31)."""

    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """GetMinOffsetResponseHeader: offset of the oldest message."""

    offset: Int64


class SearchOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """SearchOffsetRequestHeader (29)."""

    topic: str
    queue_id: Int32
    # Store time, ms since 1970.
    timestamp: Int64
    # 5.x: LOWER or UPPER, in any case.
    boundary_type: str | None = None


class SearchOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """SearchOffsetResponseHeader."""

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(Header, frozen=True, kw_only=True):
    """GetEarliestMsgStoretimeRequestHeader (32)."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(Header, frozen=True, kw_only=True):
    """GetEarliestMsgStoretimeResponseHeader: ms since 1970, -1 when there is no message."""

    timestamp: Int64


class ResetOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """ResetOffsetRequestHeader (220, 222)."""

    topic: str
    group: str
    # Store time in ms; -1 means the end of each queue.
    timestamp: Int64
    is_force: bool = False
    # 5.x
    queue_id: Int32 | None = None
    offset: Int64 | None = None


class GetConsumerStatusRequestHeader(Header, frozen=True, kw_only=True):
    """GetConsumerStatusRequestHeader (221, 223)."""

    topic: str
    group: str
    client_addr: str | None = None


class QueryCorrectionOffsetHeader(Header, frozen=True, kw_only=True):
    """QueryCorrectionOffsetHeader (308)."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """CloneGroupOffsetRequestHeader (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
