"""Messages: search, one message, dead letters, what waits, traces."""

from typing import Annotated, Literal

from msgspec import Meta

from ledgermq.console.shapes.elements import (
    Answers,
    ListQuery,
    Moment,
    Name,
    QueueId,
    QueueOffset,
    Shape,
)

MessageState = Literal["consumed", "waiting", "filtered", "offline", "unknown"]
BodyKind = Literal["json", "text", "binary", "empty", "broken"]


class MessageRow(Shape, frozen=True, kw_only=True):
    """A message in a list."""

    topic: str
    broker: str
    queue: int
    offset: int
    # The id its producer gave it, or else the one of its place.
    message_id: str
    # The id of its place.
    offset_id: str
    keys: str
    tags: str
    stored_ms: int
    born_ms: int
    body_bytes: int
    # The beginning of the body where it is text, else empty.
    preview: str
    reconsume_times: int
    # Of a retry or a dead letter: where it comes from; else null.
    origin_topic: str | None
    origin_id: str | None


class SearchRequest(Shape, frozen=True, kw_only=True):
    """What to look for; all that is given must fit.

    `offset_id`, `key`, `unique_key` and `queue` with `at_offset` go by indexes; all else reads the
    queues of the topic, within the budget.
    """

    topic: Annotated[str, Meta(max_length=255)] = ""
    offset_id: Annotated[str, Meta(max_length=64)] = ""
    key: Annotated[str, Meta(max_length=1024)] = ""
    unique_key: Annotated[str, Meta(max_length=1024)] = ""
    broker: Annotated[str, Meta(max_length=255)] = ""
    queue: QueueId | None = None
    at_offset: QueueOffset | None = None
    begin_ms: Moment | None = None
    end_ms: Moment | None = None
    tag: Annotated[str, Meta(max_length=255)] = ""
    sql: Annotated[str, Meta(max_length=1024)] = ""
    # Stands in the body, which is decompressed for that.
    text: Annotated[str, Meta(max_length=1024)] = ""
    # The budget: rows, messages read, seconds.
    found_max: Annotated[int, Meta(ge=1, le=1000)] = 100
    scan_max: Annotated[int, Meta(ge=1, le=10_000_000)] = 1_000_000
    seconds_max: Annotated[float, Meta(gt=0, le=3600)] = 600.0


class SearchQuery(Shape, frozen=True, kw_only=True):
    """Which of the rows found so far."""

    # Leave out so many.
    after: Annotated[int, Meta(ge=0, le=1000)] = 0


class Search(Shape, frozen=True, kw_only=True):
    """A search, which goes on by itself until it is through, stopped, or out of its budget, and as
    long as somebody looks how far it is.
    """

    id: str
    # running, done (all was looked at), full (found_max), budget (scan_max or seconds_max),
    # stopped, failed
    state: Literal["running", "done", "full", "budget", "stopped", "failed"]
    reason: str
    # Messages looked at, of how many that lie in the range.
    scanned: int
    total: int
    found: int
    took_ms: int
    # From `after` on, in the order in which they were found.
    rows: list[MessageRow]
    answers: Answers


class Body(Shape, frozen=True, kw_only=True):
    """The body of a message, decompressed."""

    # json, text, binary or empty; broken: it cannot be decompressed, `reason` says why
    kind: BodyKind
    # Of text: utf-8.
    encoding: str
    # zlib, lz4, zstd or empty.
    compression: str
    stored_bytes: int
    bytes: int
    # The text, of JSON indented; null of a binary body.
    text: str | None
    # At most the first 4,096 bytes, as hexadecimal digits.
    hex: str
    # True: text shows a part only.
    text_cut: bool
    hex_cut: bool
    reason: str


class MessageAtGroup(Shape, frozen=True, kw_only=True):
    """What became of a message at a group, as its offsets and its subscription tell."""

    group: str
    # consumed, waiting, filtered, offline (waiting, and nobody is there), unknown
    state: MessageState
    committed: int | None


class MessageDetail(Shape, frozen=True, kw_only=True):
    """One message, whole."""

    row: MessageRow
    properties: dict[str, str]
    # False: they are not UTF-8 and shown with replacements.
    properties_readable: bool
    body: Body
    physical_offset: int
    record_bytes: int
    flag: int
    sys_flag: int
    # not, prepared, committed or rolled_back
    transaction: Literal["not", "prepared", "committed", "rolled_back"]
    # 0 when it is not delayed.
    delay_level: int
    deliver_ms: int | None
    born_host: str
    store_host: str
    # At most 100 groups of the topic, and how many there are.
    groups: list[MessageAtGroup]
    groups_total: int
    answers: Answers


class DeadLetterRow(Shape, frozen=True, kw_only=True):
    """A group that has dead letters."""

    group: str
    topic: str
    # False: its dead letters may not be read before the topic's permission is 6.
    readable: bool
    messages: int
    oldest_ms: int | None
    newest_ms: int | None


class DeadLettersQuery(ListQuery, frozen=True, kw_only=True):
    """Which groups."""

    sort: Literal["name", "messages", "newest"] = "name"
    # True: also groups without dead letters.
    empty: bool = False


class DeadLetters(Shape, frozen=True, kw_only=True):
    """A page of groups with dead letters."""

    rows: list[DeadLetterRow]
    total: int
    messages: int
    answers: Answers


class BrowseQuery(Shape, frozen=True, kw_only=True):
    """A part of a list of messages: the newest first, going on at a cursor."""

    # What the part before told as `next`; empty: from the newest on.
    cursor: Annotated[str, Meta(max_length=4096)] = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class Browsed(Shape, frozen=True, kw_only=True):
    """A part of a list of messages."""

    rows: list[MessageRow]
    # Of the whole list.
    total: int
    # Null: that was all.
    next: str | None
    answers: Answers


class TailRequest(Shape, frozen=True, kw_only=True):
    """Asks what came to a topic since the look before."""

    # What the look before told; empty: from now on.
    cursor: Annotated[str, Meta(max_length=1_048_576)] = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    tag: Annotated[str, Meta(max_length=255)] = ""
    # In the body.
    text: Annotated[str, Meta(max_length=1024)] = ""


class Tail(Shape, frozen=True, kw_only=True):
    """What came to a topic, the newest first."""

    rows: list[MessageRow]
    # For the next look.
    cursor: str
    # Messages that came and were not read: more than the limit, or than 1 MiB of bodies.
    passed: int
    read_bytes: int
    answers: Answers


class LettersQuery(BrowseQuery, frozen=True, kw_only=True):
    """A part of the dead letters of a group."""

    # "state": what became of each, which is asked for one by one; empty: not asked.
    columns: Annotated[str, Meta(max_length=200)] = ""


class Letter(MessageRow, frozen=True, kw_only=True):
    """A dead letter."""

    # Null: not asked, or not known because a broker did not answer. "unknown": its broker does not
    # find it by its id.
    state: Literal["waiting", "resent", "dropped", "unknown"] | None


class Letters(Shape, frozen=True, kw_only=True):
    """A part of the dead letters of a group."""

    rows: list[Letter]
    # Of the whole list; those that say that a letter is dropped are counted, and not shown.
    total: int
    # Those of them that are not known to be dealt with, at most.
    waiting_max: int
    # Null: that was all.
    next: str | None
    answers: Answers


class DelayLevel(Shape, frozen=True, kw_only=True):
    """Messages of one delay."""

    level: int
    # e.g. "10s"
    delay: str
    delay_ms: int | None
    waiting: int
    delivered: int


class Half(Shape, frozen=True, kw_only=True):
    """Half messages: transactions that wait for their end."""

    # At most: ends that have come are still counted until the broker has gone past them.
    waiting: int
    oldest_ms: int | None


class Delayed(Shape, frozen=True, kw_only=True):
    """What waits for its time or for its end."""

    levels: list[DelayLevel]
    half: Half | None
    answers: Answers


class TraceStep(Shape, frozen=True, kw_only=True):
    """One step on a message's way."""

    # sent, stored, delivered, ended
    kind: Literal["sent", "stored", "delivered", "ended"]
    group: str
    client: str
    at_ms: int
    cost_ms: int | None
    # success, failed, commit, rollback, unknown
    status: str
    # Of a delivery: how often it was tried before.
    retries: int | None


class TraceQuery(Shape, frozen=True, kw_only=True):
    """Where the traces are, and the topic of the message if it is known."""

    trace_topic: Name = "RMQ_SYS_TRACE_TOPIC"
    topic: Annotated[str, Meta(max_length=255)] = ""


class Trace(Shape, frozen=True, kw_only=True):
    """The way of a message, in order of time."""

    message_id: str
    message: MessageRow | None
    steps: list[TraceStep]
    answers: Answers
