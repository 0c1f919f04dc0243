"""Changes: wanted, looked at, confirmed, carried out item by item.

    POST .../actions          what is wanted -> what it would do (nothing is done), and a token
    POST .../actions/{id}     the token -> it begins; the same token twice is one and the same run
    GET  .../actions/{id}     how far it is, item by item
    DELETE .../actions/{id}   stops it before its next item

A preview is kept for ten minutes. What it showed is looked at again before each item: an item that
somebody changed meanwhile is left alone and says so.
"""

from typing import Annotated, Literal

from msgspec import Meta

from ledgermq.console.shapes.definitions import Definitions
from ledgermq.console.shapes.elements import Moment, Name, QueueId, QueueOffset, Shape

_Queues = Annotated[int, Meta(ge=1, le=65_535)]
_Perm = Literal[2, 4, 6]
_Text = Annotated[str, Meta(max_length=4096)]
# As many as an account has at a broker.
_Rules = Annotated[list[_Text], Meta(max_length=10_000)]


class _Wanted(Shape, frozen=True, kw_only=True, tag_field="kind"):
    """What is wanted."""


class CreateTopic(_Wanted, frozen=True, kw_only=True, tag="create_topic"):
    """Creates a topic on broker groups."""

    topic: Name
    # Empty: on all.
    brokers: list[Name] = []
    read_queues: _Queues = 8
    write_queues: _Queues = 8
    perm: _Perm = 6
    order: bool = False
    # Of 5.x: NORMAL, FIFO, DELAY, TRANSACTION; empty: none.
    message_type: Literal["", "NORMAL", "FIFO", "DELAY", "TRANSACTION"] = ""


class UpdateTopic(_Wanted, frozen=True, kw_only=True, tag="update_topic"):
    """Changes a topic; what is null stays."""

    topic: Name
    brokers: list[Name] = []
    read_queues: _Queues | None = None
    write_queues: _Queues | None = None
    perm: _Perm | None = None
    order: bool | None = None


class DeleteTopic(_Wanted, frozen=True, kw_only=True, tag="delete_topic"):
    """Deletes a topic with its messages."""

    topic: Name


class SendMessage(_Wanted, frozen=True, kw_only=True, tag="send_message"):
    """Sends one message, to try a topic."""

    topic: Name
    body: Annotated[str, Meta(max_length=1024 * 1024)]
    keys: _Text = ""
    tags: _Text = ""
    properties: Annotated[dict[str, _Text], Meta(max_length=1000)] = {}
    delay_level: Annotated[int, Meta(ge=0, le=64)] = 0


class CreateGroup(_Wanted, frozen=True, kw_only=True, tag="create_group"):
    """Creates or changes a consumer group on broker groups."""

    group: Name
    brokers: list[Name] = []
    consume_enabled: bool = True
    from_min_enabled: bool = False
    broadcast_enabled: bool = True
    retry_queues: _Queues = 1
    retry_max: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = 16
    notify_members: bool = True


class DeleteGroup(_Wanted, frozen=True, kw_only=True, tag="delete_group"):
    """Deletes a consumer group."""

    group: Name
    # Its offsets, too.
    offsets: bool = True
    # Its retry topic and its dead letters, too.
    topics: bool = False


class ResetOffset(_Wanted, frozen=True, kw_only=True, tag="reset_offset"):
    """Makes a group go on elsewhere."""

    group: Name
    topic: Name
    to: Literal["time", "earliest", "latest", "offset", "shift"]
    # With time.
    moment_ms: Moment | None = None
    # With offset the offset, with shift how far, backwards when negative.
    value: Annotated[int, Meta(ge=-(2**62), le=2**62)] | None = None
    # One queue only; null: all.
    broker: Annotated[str, Meta(max_length=255)] = ""
    queue: QueueId | None = None


class CloneOffsets(_Wanted, frozen=True, kw_only=True, tag="clone_offsets"):
    """Gives a group the offsets of another."""

    group: Name
    target: Name
    topic: Name


class MessagePlace(Shape, frozen=True, kw_only=True):
    """Where a message lies."""

    broker: Name
    queue: QueueId
    offset: QueueOffset


class _DeadLetterChoice(_Wanted, frozen=True, kw_only=True):
    """Some dead letters of a group."""

    group: Name
    # Those chosen; empty: all there are now that fit the rest.
    messages: Annotated[list[MessagePlace], Meta(max_length=10_000)] = []
    begin_ms: Moment | None = None
    end_ms: Moment | None = None
    tag: Annotated[str, Meta(max_length=255)] = ""
    text: Annotated[str, Meta(max_length=1024)] = ""
    per_s: Annotated[float, Meta(gt=0, le=10_000)] = 100.0
    count_max: Annotated[int, Meta(ge=1, le=100_000)] = 10_000


class ResendDeadLetters(_DeadLetterChoice, frozen=True, kw_only=True, tag="resend_dead_letters"):
    """Sends dead letters anew: to the topic they come from, each once.

    A message that was sent anew names the dead letter that it was; so whatever was sent before, by
    whomever and from wherever, is left out. What was dropped is sent only where it is chosen.
    """


class DropDeadLetters(_DeadLetterChoice, frozen=True, kw_only=True, tag="drop_dead_letters"):
    """Notes that dead letters are dealt with: they are sent to nobody, and stay until retention.

    What was sent anew or dropped before is left out.
    """


class ResendMessage(_Wanted, frozen=True, kw_only=True, tag="resend_message"):
    """Sends a copy of a message to a topic."""

    topic: Name
    message: MessagePlace
    target: Name


class DeliverMessage(_Wanted, frozen=True, kw_only=True, tag="deliver_message"):
    """Has one member of a group consume a message now."""

    topic: Name
    message: MessagePlace
    group: Name
    client_id: Name


class ResumeCheck(_Wanted, frozen=True, kw_only=True, tag="resume_check"):
    """Has a producer group asked again about a half message that was put aside."""

    # In TRANS_CHECK_MAX_TIME_TOPIC.
    message: MessagePlace


class ImportDefinitions(_Wanted, frozen=True, kw_only=True, tag="import_definitions"):
    """Makes topics and consumer groups as a document of `definitions` has them; deletes none."""

    definitions: Definitions


class PutAccount(_Wanted, frozen=True, kw_only=True, tag="put_account"):
    """Creates or changes an account on all brokers; what is null stays."""

    access_key: Name
    secret_key: Annotated[str, Meta(min_length=6, max_length=4096)] | None = None
    is_admin: bool = False
    addresses: _Text | None = None
    default_topic: Literal["DENY", "PUB", "SUB", "PUB|SUB"] | None = None
    default_group: Literal["DENY", "PUB", "SUB", "PUB|SUB"] | None = None
    # topic=PUB|SUB
    topics: _Rules | None = None
    groups: _Rules | None = None


class DeleteAccount(_Wanted, frozen=True, kw_only=True, tag="delete_account"):
    """Deletes an account on all brokers."""

    access_key: Name


class ChangeSetting(_Wanted, frozen=True, kw_only=True, tag="change_setting"):
    """Changes a setting of running brokers."""

    # Addresses of members; empty: all.
    members: list[Name] = []
    # logLevel.NAMESPACE holds for a quarter of an hour.
    key: Name
    value: _Text


class SetWritable(_Wanted, frozen=True, kw_only=True, tag="set_writable"):
    """Takes the permission to write from a broker group at all name servers, or gives it back."""

    broker: Name
    writable: bool


class TransferLeader(_Wanted, frozen=True, kw_only=True, tag="transfer_leader"):
    """Hands the lead of a ledger group to another member."""

    broker: Name
    # n0, n1, ...; it must be there and not behind.
    member: Name


class CleanFiles(_Wanted, frozen=True, kw_only=True, tag="clean_files"):
    """Has a broker group delete what retention no longer keeps, now."""

    broker: Name
    what: Literal["expired_log", "expired_queues", "unused_topics"]


Wanted = (
    CreateTopic
    | UpdateTopic
    | DeleteTopic
    | SendMessage
    | CreateGroup
    | DeleteGroup
    | ResetOffset
    | CloneOffsets
    | ResendDeadLetters
    | DropDeadLetters
    | ResendMessage
    | DeliverMessage
    | ResumeCheck
    | ImportDefinitions
    | PutAccount
    | DeleteAccount
    | ChangeSetting
    | SetWritable
    | TransferLeader
    | CleanFiles
)


class Confirm(Shape, frozen=True, kw_only=True):
    """The token of the preview that was looked at."""

    token: Annotated[str, Meta(min_length=1, max_length=128)]


class Item(Shape, frozen=True, kw_only=True):
    """One thing that an action does."""

    # What it is done to: a queue, a broker, a message.
    target: str
    # What is, and what will be; empty when there is nothing to tell.
    before: str
    after: str
    # Of a preview: will; then waiting, done, skipped (with the reason), failed, unknown (no answer:
    # it may have been done)
    state: Literal["will", "waiting", "done", "skipped", "failed", "unknown"]
    reason: str


class ItemsQuery(Shape, frozen=True, kw_only=True):
    """Which items."""

    offset: Annotated[int, Meta(ge=0, le=100_000)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200
    state: Literal["", "will", "waiting", "done", "skipped", "failed", "unknown"] = ""


class Action(Shape, frozen=True, kw_only=True):
    """A change: what it will do, or has done."""

    id: str
    # As in what is wanted.
    kind: str
    # In a sentence.
    summary: str
    state: Literal["preview", "running", "done", "stopped"]
    # What to know before it is confirmed.
    warnings: list[str]
    # Confirms it; empty when it was confirmed, or is none of yours.
    token: str
    # The preview is kept until then.
    expires_ms: int
    # Who wanted it; empty where no account is asked for.
    account: str
    begun_ms: int | None
    ended_ms: int | None
    # Number of items in each state.
    counts: dict[str, int]
    # A page of them.
    items: list[Item]
    total: int


class ActionRow(Shape, frozen=True, kw_only=True):
    """An action in the list."""

    id: str
    kind: str
    summary: str
    state: Literal["preview", "running", "done", "stopped"]
    account: str
    begun_ms: int | None
    ended_ms: int | None
    counts: dict[str, int]


class Actions(Shape, frozen=True, kw_only=True):
    """What was confirmed lately, the newest first, at most 100."""

    rows: list[ActionRow]
