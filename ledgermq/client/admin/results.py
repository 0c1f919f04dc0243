"""What an AdminClient returns: values that stay as they are.

Times are ms since 1970; None where nothing is known.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ledgermq.client.messages import ReceivedMessage
from ledgermq.protocol.bodies import MessageQueue, SubscriptionGroupConfig
from ledgermq.protocol.properties import UNIQUE_KEY

# Of 64 bits.
_DIGITS_MAX: Final = 19


@dataclass(slots=True, frozen=True, kw_only=True)
class BrokerState:
    """One broker as the name server lists it, and what it told about itself."""

    cluster: str
    broker_name: str
    # 0 is the one that takes writes.
    broker_id: int
    address: str
    # Why it did not tell; None when it did.
    failure: str | None = None
    # What it told (28), by upstream's names and ours; empty when it did not.
    figures: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_leader(self) -> bool:
        """True when the name server sends producers to it."""
        return self.broker_id == 0

    def rate(self, name: str) -> float | None:
        """Returns the latest of the rates in a figure such as putTps, a second."""
        words = self.figures.get(name, "").split()
        try:
            rate = float(words[0]) if words else None
        except ValueError:
            return None
        return rate if rate is not None and math.isfinite(rate) else None

    def number(self, name: str) -> int | None:
        """Returns a figure that is a whole number, and None for what is below zero: unknown."""
        text = self.figures.get(name, "")
        is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
        return int(text) if is_number else None


@dataclass(slots=True, frozen=True, kw_only=True)
class TopicSummary:
    """A topic in a list."""

    name: str
    # "normal", "retry", "dead letters" or "system".
    kind: str


@dataclass(slots=True, frozen=True, kw_only=True)
class TopicOnBroker:
    """The settings of a topic on one broker name."""

    cluster: str
    broker_name: str
    # Where it takes writes; None while it has no leader.
    leader: str | None
    read_queue_count: int
    write_queue_count: int
    # 4 read, 2 write.
    permission: int


@dataclass(slots=True, frozen=True, kw_only=True)
class QueueEnds:
    """What a queue holds: messages of min_offset up to and without max_offset."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    # When its last message was stored.
    updated_ms: int | None

    @property
    def message_count(self) -> int:
        """Messages in it."""
        return self.max_offset - self.min_offset


@dataclass(slots=True, frozen=True, kw_only=True)
class TopicDescription:
    """All about one topic."""

    name: str
    kind: str
    brokers: tuple[TopicOnBroker, ...]
    queues: tuple[QueueEnds, ...]
    # Groups that want it or have offsets in it.
    groups: tuple[str, ...]

    @property
    def message_count(self) -> int:
        """Messages in all its queues."""
        return sum(queue.message_count for queue in self.queues)


@dataclass(slots=True, frozen=True, kw_only=True)
class QueueLag:
    """Where a group stands in one queue."""

    queue: MessageQueue
    # The offset that the next message will have.
    end_offset: int
    # The next message that the group has not consumed.
    committed_offset: int
    # When the last consumed message was stored.
    consumed_ms: int | None

    @property
    def behind(self) -> int:
        """Messages that the group has not consumed."""
        return max(self.end_offset - self.committed_offset, 0)


@dataclass(slots=True, frozen=True, kw_only=True)
class GroupLag:
    """How far a group is behind; its retry topic counts, too."""

    group: str
    queues: tuple[QueueLag, ...]
    # Messages a second that it takes now.
    rate: float = 0.0

    @property
    def behind(self) -> int:
        """Messages that the group has not consumed."""
        return sum(queue.behind for queue in self.queues)


@dataclass(slots=True, frozen=True, kw_only=True)
class GroupSummary:
    """A group in a list."""

    name: str
    # Topics that it has offsets in.
    topics: tuple[str, ...]
    # Members that are connected now; None when that was not asked for.
    member_count: int | None
    behind: int


@dataclass(slots=True, frozen=True, kw_only=True)
class MemberQueue:
    """A queue that a member has, as the member tells."""

    queue: MessageQueue
    # The next message that it has not consumed.
    committed_offset: int
    # Messages that are pulled and not consumed.
    cached_count: int
    is_locked: bool
    pulled_ms: int | None
    consumed_ms: int | None


@dataclass(slots=True, frozen=True, kw_only=True)
class Member:
    """A consumer that is connected now."""

    client_id: str
    address: str
    language: str
    # What it wants by topic, as an expression; None when it did not tell.
    subscriptions: Mapping[str, str] | None
    queues: tuple[MemberQueue, ...] = ()
    # Why it did not tell about itself; None when it did.
    failure: str | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class GroupDescription:
    """All about one group."""

    name: str
    # By broker name; empty when no broker has settings for it.
    settings: Mapping[str, SubscriptionGroupConfig]
    # CLUSTERING or BROADCASTING; None when nobody is connected.
    mode: str | None
    members: tuple[Member, ...]
    lag: GroupLag
    # Messages that were given up and neither sent again nor dropped, at most.
    dead_letter_count: int
    # What is wrong with it, in sentences; empty when nothing is.
    problems: tuple[str, ...]


@dataclass(slots=True, frozen=True, kw_only=True)
class OffsetChange:
    """Where a group goes on in one queue: what was, and what is or would be."""

    queue: MessageQueue
    # None when nothing was committed, or that is not known.
    before: int | None
    after: int

    @property
    def repeated_count(self) -> int:
        """Messages that are delivered again; below zero: that are left out."""
        return 0 if self.before is None else self.before - self.after


@dataclass(slots=True, frozen=True, kw_only=True)
class DeadLetter:
    """A message that a group gave up on."""

    # Its place: broker/queue/offset.
    id: str
    group: str
    # The topic that it was sent to; None when it does not say.
    origin: str | None
    # "waiting", "resent", "dropped", or "unknown" where its broker keeps no key index.
    state: str
    # As it is stored; `legible()` gives one that can be shown, whatever its producer put into it.
    message: ReceivedMessage

    @property
    def message_id(self) -> str:
        """The id its producer gave it, as far as it can be read."""
        own = self.message.readable_properties
        return own.get(UNIQUE_KEY) or self.message.offset_message_id


@dataclass(slots=True, frozen=True, kw_only=True)
class DeadLetterOutcome:
    """What became of one dead letter that was to be sent again or dropped."""

    # As it was asked for when it was not found, else its place.
    id: str
    # "resent", "dropped"; "already resent", "already dropped": nothing was done; "failed": nothing
    # was sent; "unknown": there was no answer, so that it may have been sent, and the next call
    # looks; "not found"; "not tried".
    outcome: str
    message_id: str = ""
    origin: str | None = None
    # Where it lies now, of one that was sent.
    queue: MessageQueue | None = None
    queue_offset: int | None = None
    # Why, of one that was neither done nor done before.
    reason: str = ""

    @property
    def is_done(self) -> bool:
        """True when nothing is left to do with it."""
        return self.outcome in ("resent", "dropped", "already resent", "already dropped")
