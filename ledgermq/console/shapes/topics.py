"""Topics: the list, one topic, its queues and its groups."""

from typing import Annotated, Literal

from msgspec import Meta

from ledgermq.console.shapes.elements import Answers, ListQuery, Shape

TopicKind = Literal[
    "normal", "fifo", "delay", "transaction", "mixed", "retry", "dead_letter", "system"
]


class TopicsQuery(ListQuery, frozen=True, kw_only=True):
    """Which topics, in which order, and what is to be asked about each that is shown.

    `name` and `queues` cost nothing; the other orders ask about all topics that fit, at most 2,000.
    """

    # Joined by commas; empty: all but retry, dead_letter and system.
    kinds: Annotated[str, Meta(max_length=200)] = ""
    sort: Literal["name", "kind", "queues", "in_per_s", "last_write", "messages"] = "name"
    # Joined by commas, of: rates, span, groups. Empty: nothing is asked for a row.
    columns: Annotated[str, Meta(max_length=200)] = ""


class TopicRow(Shape, frozen=True, kw_only=True):
    """A topic in the list; what was not asked is null."""

    topic: str
    kind: TopicKind
    # Names of broker groups.
    brokers: list[str]
    read_queues: int
    write_queues: int
    # 2 write, 4 read, 6 both; 0 when brokers differ.
    perm: int
    order: bool
    # Column rates.
    in_per_s: float | None
    in_bytes_per_s: float | None
    # Column span: messages that are kept, when the last was stored.
    messages: int | None
    last_write_ms: int | None
    # Column groups.
    groups: int | None


class Topics(Shape, frozen=True, kw_only=True):
    """A page of topics."""

    rows: list[TopicRow]
    total: int
    # Rows of each kind, whatever is filtered.
    kinds: dict[str, int]
    answers: Answers


class TopicConfig(Shape, frozen=True, kw_only=True):
    """A topic as one broker group has it."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    # SINGLE_TAG or MULTI_TAG
    filter_type: str
    sys_flag: int


class RouteRow(Shape, frozen=True, kw_only=True):
    """A topic as name servers tell it to clients."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int
    # Broker id -> address.
    addresses: dict[str, str]


class Topic(Shape, frozen=True, kw_only=True):
    """One topic."""

    topic: str
    kind: TopicKind
    config: list[TopicConfig]
    # True: broker groups have different settings of it.
    differs: bool
    route: list[RouteRow]
    in_per_s: float | None
    in_bytes_per_s: float | None
    in_today: int | None
    messages: int | None
    last_write_ms: int | None
    # Of an ordered topic, as name servers have it; null when there is none.
    order_conf: str | None
    answers: Answers


class QueueRow(Shape, frozen=True, kw_only=True):
    """One queue of a topic."""

    broker: str
    queue: int
    min_offset: int
    max_offset: int
    messages: int
    oldest_ms: int | None
    last_write_ms: int | None


class TopicQueues(Shape, frozen=True, kw_only=True):
    """All queues of a topic, at most 2,000."""

    rows: list[QueueRow]
    total: int
    # Messages of the fullest queue over those of the mean; null for an empty topic.
    skew: float | None
    answers: Answers


class TopicGroupRow(Shape, frozen=True, kw_only=True):
    """A group that consumes a topic."""

    group: str
    lag_messages: int | None
    lag_ms: int | None
    out_per_s: float | None


class TopicGroups(Shape, frozen=True, kw_only=True):
    """A page of the groups that have offsets of a topic."""

    rows: list[TopicGroupRow]
    total: int
    answers: Answers
