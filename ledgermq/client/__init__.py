"""The Python client: asyncio producers and consumers, and the same faces without an event loop.

Contract: a send that returns is stored as safely as the broker is set up to; a consumer sees every
message at least once; errors say whether another try may help. The room imports no Twisted, so it
lives inside any program. A Client makes producers and consumers that share its connections; by
themselves all classes take the name servers first, then the group. Read client.py, producer.py or
push_consumer.py first; connection.py is the edge, and retry.py, selection.py, allocation.py and
process_queue.py decide without I/O.
"""

from ledgermq.client.admin.admin_client import AdminClient
from ledgermq.client.client import Client
from ledgermq.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from ledgermq.client.errors import (
    ClientError,
    ClosedError,
    ConfigError,
    LaneFullError,
    MessageError,
    NameServerError,
    NoReplyError,
    NoRouteError,
    NotFoundError,
    RefusedError,
    SendError,
    UnreachableError,
)
from ledgermq.client.lite_pull_consumer import LitePullConsumer
from ledgermq.client.messages import Message, ReceivedMessage, SendResult, SendStatus
from ledgermq.client.outcome import BURY, DONE, Outcome, retry
from ledgermq.client.producer import Producer
from ledgermq.client.pull_consumer import PullConsumer
from ledgermq.client.push_consumer import PushConsumer
from ledgermq.client.queue_requests import PullResult, PullStatus
from ledgermq.client.serializers import Serializer, json_serializer, text_serializer
from ledgermq.client.transactions import TransactionalProducer, TransactionState
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.signature import Credentials
from ledgermq.protocol.tls.contexts import load_client_tls

__all__ = [
    "BURY",
    "DONE",
    "Outcome",
    "retry",
    "AdminClient",
    "Client",
    "ClientConfig",
    "ClientError",
    "ClosedError",
    "ConfigError",
    "ConsumerConfig",
    "Credentials",
    "LaneFullError",
    "LitePullConsumer",
    "Message",
    "MessageError",
    "MessageQueue",
    "NameServerError",
    "NoReplyError",
    "NoRouteError",
    "NotFoundError",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "RefusedError",
    "SendError",
    "SendResult",
    "SendStatus",
    "Serializer",
    "TransactionState",
    "TransactionalProducer",
    "UnreachableError",
    "json_serializer",
    "load_client_tls",
    "text_serializer",
]
