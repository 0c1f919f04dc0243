"""Namespaces: tenants of one cluster use the same names without meeting.

A name goes onto the wire with the namespace in front of it, behind the prefix of a retry or dead
letter topic; programs see their own names only:

    orders  -> shop%orders          %RETRY%billing -> %RETRY%shop%billing

Topics and groups of the system have no namespace. Both functions leave a name alone that has the
form wanted already.

Source: NamespaceUtil.java, TopicValidator.java and MixAll.java of 4.9.3.
"""

from typing import Final

from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, DEFAULT_TOPIC, RETRY_PREFIX

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SEPARATOR: Final = "%"
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "CID_RMQ_SYS_")
_SYSTEM_TOPICS: Final = frozenset(
    (DEFAULT_TOPIC, TRACE_TOPIC, "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "SELF_TEST_TOPIC")
    + ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC")
    + ("OFFSET_MOVED_EVENT",)
)


def is_system_name(name: str) -> bool:
    """Tells whether a topic or group is one that brokers and clients make for themselves."""
    return name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES)


def with_namespace(namespace: str, name: str) -> str:
    """Returns a topic or group as it goes onto the wire; an empty namespace changes nothing."""
    if not namespace or not name or is_system_name(name):
        return name
    prefix, own = _split(name)
    if own.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{own}"


def without_namespace(namespace: str, name: str) -> str:
    """Returns a topic or group as programs see it."""
    if not namespace:
        return name
    prefix, own = _split(name)
    return prefix + own.removeprefix(namespace + SEPARATOR)


def queue_with_namespace(namespace: str, queue: MessageQueue) -> MessageQueue:
    """Returns a queue as it goes onto the wire."""
    if not namespace:
        return queue
    return MessageQueue(with_namespace(namespace, queue.topic), queue.broker_name, queue.queue_id)


def queue_without_namespace(namespace: str, queue: MessageQueue) -> MessageQueue:
    """Returns a queue as programs see it."""
    if not namespace:
        return queue
    topic = without_namespace(namespace, queue.topic)
    return MessageQueue(topic, queue.broker_name, queue.queue_id)


def _split(name: str) -> tuple[str, str]:
    """Returns the prefix of a retry or dead letter topic, and the rest."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
