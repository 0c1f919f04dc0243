"""Definitions: topics and consumer groups of a cluster as one document, to keep or take elsewhere.

What is the system's own, and retry topics and dead letters, are no part of it: brokers make those.
"""

from typing import Annotated

from msgspec import Meta

from ledgermq.console.shapes.elements import Name, Shape

_Queues = Annotated[int, Meta(ge=0, le=65_535)]
DEFINITIONS_MAX = 10_000


class TopicDefinition(Shape, frozen=True, kw_only=True):
    """A topic of the broker groups that have it alike."""

    topic: Name
    # Empty, in an import: all.
    brokers: list[Name]
    read_queues: _Queues
    write_queues: _Queues
    # 4 read, 2 write, 1 inherit.
    perm: Annotated[int, Meta(ge=0, le=7)]
    order: bool
    # Of 5.x; empty: none. It is set where the topic is made, and not changed.
    message_type: Annotated[str, Meta(max_length=64)]


class GroupDefinition(Shape, frozen=True, kw_only=True):
    """A consumer group of the broker groups that have it alike."""

    group: Name
    # Empty, in an import: all.
    brokers: list[Name]
    consume_enabled: bool
    from_min_enabled: bool
    broadcast_enabled: bool
    retry_queues: _Queues
    retry_max: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    notify_members: bool


class Definitions(Shape, frozen=True, kw_only=True):
    """Topics and consumer groups, by name."""

    topics: Annotated[list[TopicDefinition], Meta(max_length=DEFINITIONS_MAX)]
    groups: Annotated[list[GroupDefinition], Meta(max_length=DEFINITIONS_MAX)]
