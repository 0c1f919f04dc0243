"""The same producers and consumers for code without an event loop: scripts, threads, notebooks.

The names are those of the asyncio face, without `await`. Each object runs its asyncio twin on an
event loop in a daemon thread of its own, which begins with the ``with`` block and ends with it
(what a Client makes runs on the Client's);
calls from any number of threads are safe. An object must not be used in a child after a fork. Read
twin.py first.
"""

from ledgermq.client.blocking.admin import AdminClient
from ledgermq.client.blocking.client import Client
from ledgermq.client.blocking.consumers import LitePullConsumer, PullConsumer, PushConsumer
from ledgermq.client.blocking.producers import Producer, TransactionalProducer

__all__ = [
    "AdminClient",
    "Client",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionalProducer",
]
