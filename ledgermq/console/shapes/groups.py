"""Consumer groups: the list, one group, where it stands, its clients."""

from typing import Annotated, Literal

from msgspec import Meta

from ledgermq.console.shapes.elements import Answers, Event, ListQuery, Shape

# fine: keeps up; behind: lag, and it moves; stuck: lag, somebody is there, and nothing moves;
# offline: lag or not, nobody is there; differs: members want different things; outside: an offset
# lies before the oldest message; unknown: not asked
GroupState = Literal["fine", "behind", "stuck", "offline", "differs", "outside", "unknown"]


class GroupsQuery(ListQuery, frozen=True, kw_only=True):
    """Which groups, in which order, and what is to be asked about each that is shown.

    Orders but that by name, and states, take figures of all groups that are up to 90 s old.
    """

    state: Literal["", "fine", "behind", "stuck", "offline", "differs", "outside"] = ""
    sort: Literal["name", "lag_messages", "lag_ms", "out_per_s"] = "name"
    # Joined by commas, of: lag, clients, dead_letters. Empty: nothing is asked for a row.
    columns: Annotated[str, Meta(max_length=200)] = ""


class GroupRow(Shape, frozen=True, kw_only=True):
    """A consumer group in the list; what was not asked is null."""

    group: str
    state: GroupState
    is_system: bool
    lag_messages: int | None
    lag_ms: int | None
    out_per_s: float | None
    online: int | None
    # push, pull; clustering, broadcasting
    mode: str | None
    model: str | None
    retry_messages: int | None
    dead_letters: int | None


class ConsumerGroups(Shape, frozen=True, kw_only=True):
    """A page of consumer groups."""

    rows: list[GroupRow]
    total: int
    # Age of the figures that the order or the filter stands on; null when they are new.
    age_s: float | None
    answers: Answers


class GroupConfig(Shape, frozen=True, kw_only=True):
    """A consumer group as one broker group has it."""

    broker: str
    consume_enabled: bool
    from_min_enabled: bool
    broadcast_enabled: bool
    retry_queues: int
    retry_max: int
    notify_members: bool


class Subscription(Shape, frozen=True, kw_only=True):
    """What a group wants of a topic."""

    topic: str
    # TAG or SQL92
    kind: str
    expression: str


class ConsumerGroup(Shape, frozen=True, kw_only=True):
    """One consumer group."""

    group: str
    state: GroupState
    # Why, in a sentence.
    state_text: str
    config: list[GroupConfig]
    # True: broker groups have different settings of it.
    differs: bool
    online: int
    mode: str | None
    model: str | None
    from_where: str | None
    subscriptions: list[Subscription]
    lag_messages: int | None
    lag_ms: int | None
    out_per_s: float | None
    retry_messages: int | None
    dead_letters: int | None
    # Members that came and went while somebody looked, the newest first, at most 100.
    timeline: list[Event]
    answers: Answers


class GroupQueueRow(Shape, frozen=True, kw_only=True):
    """Where a group stands in a queue."""

    topic: str
    broker: str
    queue: int
    max_offset: int
    committed: int
    lag_messages: int
    # Age of the last message consumed, where some are left; null when there is none.
    lag_ms: int | None
    # Pulled and not committed; 5.x tells it.
    in_flight: int | None
    # Client that has the queue; null when unknown.
    owner: str | None


class GroupQueuesQuery(ListQuery, frozen=True, kw_only=True):
    """Which queues; the filter is about topics."""

    sort: Literal["queue", "lag_messages", "lag_ms"] = "queue"
    # True: clients are asked which queues they have (at most 20 clients).
    owners: bool = False


class GroupQueues(Shape, frozen=True, kw_only=True):
    """A page of the queues of a group."""

    rows: list[GroupQueueRow]
    total: int
    answers: Answers


class GroupClient(Shape, frozen=True, kw_only=True):
    """A member of a consumer group."""

    client_id: str
    address: str
    language: str
    # e.g. V4_9_3
    version: str
    # Names of the brokers that know it.
    brokers: list[str]


class GroupClients(Shape, frozen=True, kw_only=True):
    """The members of a group, at most 2,000."""

    rows: list[GroupClient]
    total: int
    answers: Answers


class RunningQuery(Shape, frozen=True, kw_only=True):
    """What a client is to tell."""

    stacks: bool = False


class RunningQueue(Shape, frozen=True, kw_only=True):
    """A queue that a client has."""

    topic: str
    broker: str
    queue: int
    committed: int
    cached: int
    cached_mib: int
    locked: bool
    dropped: bool
    last_pull_ms: int | None
    last_consume_ms: int | None


class RunningTopic(Shape, frozen=True, kw_only=True):
    """How a client gets on with a topic."""

    topic: str
    consume_ms: float
    ok_per_s: float
    failed_per_s: float
    failed_last_hour: int


class Running(Shape, frozen=True, kw_only=True):
    """What a client tells about itself."""

    client_id: str
    properties: dict[str, str]
    queues: list[RunningQueue]
    topics: list[RunningTopic]
    # Stacks of its threads, at most 1 MiB; null when not asked or not told.
    stacks: str | None
    stacks_cut: bool


class ClientsQuery(ListQuery, frozen=True, kw_only=True):
    """Which clients; the filter is about ids, addresses and groups."""

    kind: Literal["", "consumer", "producer"] = ""
    sort: Literal["client_id", "address", "language", "version"] = "client_id"


class ClientRow(Shape, frozen=True, kw_only=True):
    """A client of the cluster."""

    client_id: str
    address: str
    language: str
    version: str
    # True: older than 4.9.0.
    outdated: bool
    # consumer, producer or both
    kinds: list[str]
    groups: list[str]


class Clients(Shape, frozen=True, kw_only=True):
    """A page of clients."""

    rows: list[ClientRow]
    total: int
    # Groups that were asked for their members, of all; producers are told by brokers of 4.9.8 on.
    groups_asked: int
    groups: int
    producers_told: bool
    age_s: float
    answers: Answers
