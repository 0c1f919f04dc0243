"""The same producers and consumers for code without an event loop: scripts, threads, notebooks.

The names are those of the asyncio face, without `await`. Each object runs its asyncio twin on an
event loop in a daemon thread of its own, which begins with the ``with`` block and ends with it;
calls from any number of threads are safe. An object must not be used in a child after a fork. Read
twin.py first.
"""

from ledgermq.client.blocking.consumers import PullConsumer, PushConsumer
from ledgermq.client.blocking.lite_pull import LitePullConsumer
from ledgermq.client.blocking.producers import Producer, TransactionalProducer

__all__ = ["LitePullConsumer", "Producer", "PullConsumer", "PushConsumer", "TransactionalProducer"]
