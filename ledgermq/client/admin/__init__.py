"""The administration of a cluster from a program: topics, groups, lag, offsets, dead letters.

Contract: every call asks the brokers that lead now, one request each, and returns typed results;
a call that cannot say everything fails rather than leave a broker out. Names are those on the wire.
Read admin_client.py first; results.py is what its methods return, asking.py the edge.
"""

from ledgermq.client.admin.admin_client import AdminClient
from ledgermq.client.admin.results import (
    BrokerState,
    DeadLetter,
    DeadLetterOutcome,
    GroupDescription,
    GroupLag,
    GroupSummary,
    Member,
    MemberQueue,
    OffsetChange,
    QueueEnds,
    QueueLag,
    TopicDescription,
    TopicOnBroker,
    TopicSummary,
)

__all__ = [
    "AdminClient",
    "BrokerState",
    "DeadLetter",
    "DeadLetterOutcome",
    "GroupDescription",
    "GroupLag",
    "GroupSummary",
    "Member",
    "MemberQueue",
    "OffsetChange",
    "QueueEnds",
    "QueueLag",
    "TopicDescription",
    "TopicOnBroker",
    "TopicSummary",
]
