"""Headers about clients and groups: codes 35, 38, 40, 203, 204, 207, 307, 309, 352.

Source: UnregisterClientRequestHeader.java and its neighbors.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ledgermq.protocol.headers.header import Header


class UnregisterClientRequestHeader(Header, frozen=True, kw_only=True):
    """UnregisterClientRequestHeader (35)."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(Header, frozen=True, kw_only=True):
    """GetConsumerListByGroupRequestHeader (38)."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(Header, frozen=True, kw_only=True):
    """NotifyConsumerIdsChangedRequestHeader (40, broker to client)."""

    consumer_group: str


class GetConsumerConnectionListRequestHeader(Header, frozen=True, kw_only=True):
    """GetConsumerConnectionListRequestHeader (203)."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(Header, frozen=True, kw_only=True):
    """GetProducerConnectionListRequestHeader (204)."""

    producer_group: str


class DeleteSubscriptionGroupRequestHeader(Header, frozen=True, kw_only=True):
    """DeleteSubscriptionGroupRequestHeader (207)."""

    other_keys: ClassVar[Mapping[str, str]] = {"remove_offset": "cleanOffset"}

    group_name: str
    # 5.x sends it as cleanOffset.
    remove_offset: bool = False


class GetConsumerRunningInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GetConsumerRunningInfoRequestHeader (307, admin to broker to client)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(Header, frozen=True, kw_only=True):
    """ConsumeMessageDirectlyResultRequestHeader (309, admin to broker to client)."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


class GetSubscriptionGroupConfigRequestHeader(Header, frozen=True, kw_only=True):
    """GetSubscriptionGroupConfigRequestHeader (352, 5.x)."""

    group: str
