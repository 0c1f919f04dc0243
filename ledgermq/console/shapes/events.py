"""The stream of a tab: one connection by which all parts of a page stay fresh.

`data` of an event is the answer of the address that its name stands for:

    event: overview         GET .../overview
    event: broker_groups    GET .../broker-groups
    event: topics           GET .../topics with the query of the parameter `topics`
    event: consumer_groups  GET .../consumer-groups with the query of `consumer_groups`
    event: consumer_group   GET .../consumer-groups/{group}, the group of the parameter
    event: history          GET .../history of the last 30 s
    event: problem          {"part", "code", "message"}: why a part has no news
    event: session          {}, when the session has ended; the stream ends then, too
"""

from typing import Annotated

from msgspec import Meta

from ledgermq.console.shapes.elements import Shape


class StreamQuery(Shape, frozen=True, kw_only=True):
    """Which parts of the page, joined by commas: overview, broker_groups, topics, ..."""

    parts: Annotated[str, Meta(max_length=200)] = "overview"
    # Queries of the lists that are shown, e.g. filter=orders&limit=50
    topics: Annotated[str, Meta(max_length=1000)] = ""
    consumer_groups: Annotated[str, Meta(max_length=1000)] = ""
    # The group that is shown.
    consumer_group: Annotated[str, Meta(max_length=255)] = ""
    # Seconds between two events of a part.
    every_s: Annotated[float, Meta(ge=1, le=60)] = 5.0
