"""The overview, broker groups, settings, logs, and figures of the last hour."""

from typing import Annotated, Literal

from msgspec import Meta

from ledgermq.console.shapes.elements import Answers, Event, ListQuery, Shape

Severity = Literal["info", "warning", "critical"]
State = Literal["ok", "warning", "critical"]
# ledger: a DLedger group; plain: a master and its slaves
GroupKind = Literal["ledger", "plain", "unknown"]


class Reason(Shape, frozen=True, kw_only=True):
    """Why a cluster is not healthy; `code` and `values` are for translations."""

    # no_leader, member_gone, behind, disk_high, alarm, name_server_gone, lag_high, dead_letters
    code: str
    severity: Severity
    subject: str
    text: str
    values: dict[str, str]


class Disk(Shape, frozen=True, kw_only=True):
    """The disk that is fullest."""

    member: str
    used_ratio: float
    free_bytes: int | None
    # At the pace of the last hour; null when it does not fill, or too little is known.
    days_left: float | None


class TopicRate(Shape, frozen=True, kw_only=True):
    """How much a topic takes."""

    topic: str
    in_per_s: float


class GroupLag(Shape, frozen=True, kw_only=True):
    """How far a consumer group is behind."""

    group: str
    lag_messages: int
    lag_ms: int | None


class Overview(Shape, frozen=True, kw_only=True):
    """Is the cluster healthy, and what does it do?"""

    cluster: str
    at_ms: int
    health: State
    # Empty when it is healthy; the worst first.
    reasons: list[Reason]
    in_per_s: float | None
    out_per_s: float | None
    in_bytes_per_s: float | None
    out_bytes_per_s: float | None
    # Over all consumer groups, and how old that figure is.
    lag_messages: int | None
    lag_age_s: float | None
    topics: int | None
    consumer_groups: int | None
    broker_groups: int
    members: int
    members_answering: int
    groups_without_leader: list[str]
    disk: Disk | None
    # At most ten. Topics are asked in turn: `topics_asked` of `topics` stand behind the list.
    top_topics: list[TopicRate]
    topics_asked: int
    top_lags: list[GroupLag]
    # Of the last hour, the newest first, at most 50.
    events: list[Event]
    answers: Answers


class Member(Shape, frozen=True, kw_only=True):
    """One broker process of a broker group."""

    # As the name server numbers it, 0 the one that takes writes; null when it is not registered.
    broker_id: int | None
    # n0, n1, ... of a ledger; the broker id otherwise.
    member: str
    address: str
    # LEADER, FOLLOWER, CANDIDATE, FAILED, ... of a ledger; MASTER or SLAVE without one; UNKNOWN
    role: str
    is_answering: bool
    # Why not; empty when it answers.
    reason: str
    # When it last answered this console; null: never.
    last_answer_ms: int | None
    # How long its answer took.
    answer_ms: float | None
    term: int | None
    # Bytes of the log, its beginning and its end.
    log_begin: int | None
    log_end: int | None
    # Behind the leader: bytes, and the span of time at the leader's pace.
    behind_bytes: int | None
    behind_s: float | None
    # Bytes of the log that are not yet in queues.
    dispatch_behind_bytes: int | None
    in_per_s: float | None
    out_per_s: float | None
    disk_used_ratio: float | None
    disk_free_bytes: int | None
    # Storing time of the oldest message.
    oldest_ms: int | None
    version: str
    started_ms: int | None
    # whole, or what it repairs, or why it failed.
    repair: str
    # Alarms of ledger, state and access; empty when there are none.
    alarms: list[str]


class Durability(Shape, frozen=True, kw_only=True):
    """What an acknowledgement means now, and what a power cut of all members at once would lose."""

    # majority_synced, majority_memory, one_synced, one_memory, unknown
    code: str
    text: str
    # SYNC_FLUSH or ASYNC_FLUSH; null when unknown.
    flush: str | None
    members: int
    majority: int
    # Members that have all of the leader's log.
    complete: int
    # How many more may fail while the group still takes messages; negative: it takes none now.
    may_lose: int


class BrokerGroup(Shape, frozen=True, kw_only=True):
    """The brokers of one name, which hold one log."""

    name: str
    kind: GroupKind
    state: State
    # Member that takes writes; null when there is none.
    leader: str | None
    term: int | None
    members: list[Member]
    durability: Durability
    # Changes of the leader and of members as seen since the console started, the newest first, at
    # most 100.
    timeline: list[Event]


class BrokerGroups(Shape, frozen=True, kw_only=True):
    """All broker groups of a cluster."""

    broker_groups: list[BrokerGroup]
    answers: Answers


class SettingValue(Shape, frozen=True, kw_only=True):
    """A setting at one member."""

    member: str
    # Null: this member does not tell it. A secret is shown as asterisks.
    value: str | None


class Setting(Shape, frozen=True, kw_only=True):
    """One key of the configuration."""

    key: str
    # One for each member that answered, in the order of `members`.
    values: list[SettingValue]
    # True: members of a group have different values where equal ones are to be expected.
    differs: bool
    # True: it may be changed while the broker runs.
    changeable: bool


class ConfigurationQuery(ListQuery, frozen=True, kw_only=True):
    """Which settings."""

    broker_group: Annotated[str, Meta(max_length=255)] = ""
    differs: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 500


class Configuration(Shape, frozen=True, kw_only=True):
    """Settings in force, by key."""

    members: list[str]
    settings: list[Setting]
    total: int
    answers: Answers


class LogQuery(Shape, frozen=True, kw_only=True):
    """Which lines."""

    # One program, e.g. n0; empty: all.
    node: Annotated[str, Meta(max_length=255)] = ""
    level: Literal["", "debug", "info", "warn", "error", "critical"] = ""
    filter: Annotated[str, Meta(max_length=255)] = ""
    limit: Annotated[int, Meta(ge=1, le=2000)] = 500


class LogLine(Shape, frozen=True, kw_only=True):
    """One line of a program's log."""

    node: str
    # As the line says it; empty when it says none.
    time: str
    level: str
    text: str


class Log(Shape, frozen=True, kw_only=True):
    """The last lines, the newest last."""

    # False: the console cannot read the logs of this cluster (see --log-dir).
    available: bool
    nodes: list[str]
    lines: list[LogLine]


class AuditQuery(ListQuery, frozen=True, kw_only=True):
    """Which entries; the newest first."""

    outcome: Literal["", "done", "refused", "failed"] = ""


class AuditEntry(Shape, frozen=True, kw_only=True):
    """Something that was done or tried through this console."""

    at_ms: int
    # Empty where no account is asked for.
    account: str
    address: str
    cluster: str
    # A kind of action, sign_in, sign_out or view_message.
    action: str
    object: str
    outcome: Literal["done", "refused", "failed"]
    detail: str
    # Number of the action; empty when it was none.
    action_id: str


class Audit(Shape, frozen=True, kw_only=True):
    """What was done through this console since it started."""

    entries: list[AuditEntry]
    total: int


class HistoryQuery(Shape, frozen=True, kw_only=True):
    """Which figures."""

    # Joined by commas; empty: those of the cluster as a whole.
    series: Annotated[str, Meta(max_length=1000)] = ""
    # Not older than so many seconds.
    span_s: Annotated[int, Meta(ge=10, le=3600)] = 3600


class Series(Shape, frozen=True, kw_only=True):
    """One figure over time."""

    # in_per_s, out_per_s, in_bytes_per_s, out_bytes_per_s, lag_messages, put_p99_ms, answer_ms,
    # disk_used_ratio, behind_bytes; of the whole cluster put_p99_ms is that of its slowest leader;
    # of a consumer group lag_messages and lag_ms
    name: str
    # Member it is about; empty: the whole cluster.
    member: str
    # "1/s", "B/s", "1", "ms", "ratio", "B"
    unit: str
    # In order of time, at most 360.
    at_ms: list[int]
    # As many; null where nobody answered.
    values: list[float | None]


class History(Shape, frozen=True, kw_only=True):
    """Figures of the last hour, from memory."""

    series: list[Series]
    # Seconds between two points; of a consumer group they may be more.
    step_s: float
    # Where figures of a longer time are, as the console was told; empty: nowhere.
    longer: str
