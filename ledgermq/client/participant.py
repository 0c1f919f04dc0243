"""Participants: the producers and consumers that stand on one instance, as brokers hear of them.

To a broker a client is an id, a connection and a heartbeat. The heartbeat of an instance names the
groups of all who joined it; a request of a broker goes to whom it is meant for.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ledgermq.client.connection import Answer, OnRequest
from ledgermq.client.endless import loudness
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.heartbeat import ConsumerData, HeartbeatData, ProducerData

_PASSING_CODES: Final = frozenset(
    {int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.SERVICE_NOT_AVAILABLE)}
)

_log = logging.getLogger("ledgermq.client")


def ignore(address: str, request: RemotingCommand) -> Answer:
    """Answers no request of a broker."""
    return None


@dataclass(slots=True, eq=False, kw_only=True)
class Participant:
    """One producer or consumer. Groups are named as they stand on the wire."""

    producer_group: str | None = None
    consumer_group: str | None = None
    # Gets the requests of brokers; None says that it is not meant.
    on_request: OnRequest = ignore
    # Makes what the next heartbeat says of it; None where brokers need not hear of it.
    heartbeat: Callable[[], ProducerData | ConsumerData | None] | None = None
    # True for whom brokers ask: a connection that is lost is made again.
    stays_connected: bool = False
    # Queues of a topic that its sends create; None for who sends nothing.
    default_queue_nums: int | None = None
    # Set for good when it quits.
    has_quit: bool = False


class _HeartbeatAnswers:
    """Takes the answers to heartbeats: most say nothing."""

    def answered(self, answer: RemotingCommand) -> None:
        """Tells what a broker says: what is wrong with a group, or why it does not take a member.

        LedgerMQ adds a word to SUCCESS when members of a group want different things.
        """
        if answer.remark and answer.code not in _PASSING_CODES:
            _log.log(loudness(answer.remark), "answer to the heart beat: %s", answer.remark)

    def failed(self, error: ProtocolError) -> None:
        """Leaves it to the next heartbeat."""


HEARTBEAT_ANSWERS: Final = _HeartbeatAnswers()


def heartbeat_of(client_id: str, participants: Iterable[Participant]) -> HeartbeatData | None:
    """Returns the heartbeat of a client; None when brokers need not hear of any of its groups."""
    producers: dict[str, ProducerData] = {}
    consumers: list[ConsumerData] = []
    is_wanted = False
    for participant in participants:
        if participant.heartbeat is None:
            continue
        is_wanted = True
        data = participant.heartbeat()
        if isinstance(data, ProducerData):
            producers[data.group_name] = data
        elif data is not None:
            consumers.append(data)
    if not is_wanted:
        return None
    return HeartbeatData(
        client_id=client_id,
        producer_data_set=list(producers.values()),
        consumer_data_set=consumers,
    )
