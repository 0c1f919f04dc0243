"""What a broker holds, read from its tables and put there: a test needs no client for it."""

from typing import Final

from twisted.internet.defer import Deferred

from ledgermq.broker.service import BrokerService
from ledgermq.client import ReceivedMessage
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.record import decode_record
from ledgermq.state.errors import BrokerError
from ledgermq.state.names import check_topic_name
from ledgermq.state.topics import TopicConfig

_UNITS: Final = 1024
# Bodies were taken by a broker, which has limits of its own.
_BODY_BYTES_MAX: Final = 64 * 1024 * 1024


def stored_messages(broker: BrokerService, topic: str) -> list[ReceivedMessage]:
    """Returns the committed messages of a topic in the order in which they were stored."""
    store, found = broker.messages, []
    for queue_id in store.queues(topic):
        queue = MessageQueue(topic, broker.config.broker_name, queue_id)
        offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while offset < end:
            units = store.queue_units(topic, queue_id, offset, _UNITS)
            for physical_offset, _, _ in units:
                raw = store.record_at(physical_offset)
                if raw is not None:
                    found.append(ReceivedMessage(decode_record(raw), queue, _BODY_BYTES_MAX))
            offset += max(len(units), 1)
    return sorted(found, key=lambda message: message.record.physical_offset)


def committed_offsets(broker: BrokerService, group: str) -> dict[str, dict[int, int]]:
    """Returns what a group has committed: topic -> queue id -> offset of its next message."""
    offsets = broker.state.offsets
    return {topic: offsets.of_topic(group, topic) for topic in offsets.topics_of(group)}


def known_clients(broker: BrokerService, group: str) -> set[str]:
    """Returns the ids of the producers and consumers of a group that have sent heart beats."""
    consumers = broker.clients.find_group(group)
    members = [] if consumers is None else consumers.members.values()
    return {client.client_id for client in (*broker.clients.producers_of(group), *members)}


def put_topic(broker: BrokerService, topic: str, queues: int) -> Deferred[None]:
    """Creates a topic, or changes its number of queues.

    Returns:
        A Deferred that fires when that is committed; it fails with what went wrong.

    Raises:
        BrokerError: the name is wrong, there are too many topics, or the broker does not lead.
    """
    broker.leadership.check_serving()
    check_topic_name(topic)
    config = TopicConfig(topic, queues, queues)
    broker.state.check_topic(config, None)
    committed: Deferred[None] = Deferred()

    def done(error: BrokerError | None) -> None:
        if error is None:
            committed.callback(None)
        else:
            committed.errback(error)

    broker.state.put_topic(config, done)
    return committed
