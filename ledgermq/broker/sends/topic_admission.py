"""TopicAdmission: the checks that a send passes before its topic counts as open.

Name, permission and limits; a topic that is missing is created when that is allowed, and the retry
topic of a group gives way to its dead letters when a message was delivered often enough. Source:
`AbstractSendMessageProcessor.msgCheck`, `SendMessageProcessor.handleRetryAndDLQ`.
"""

from collections.abc import Callable
from typing import Final

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.protocol.codes import VERSION_3_4_9
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import SendMessageRequestHeader
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state import names
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import NoPermissionError, ServiceUnavailableError
from ledgermq.state.topics import (
    PERM_WRITE,
    TOPIC_UNIT,
    TOPIC_UNIT_SUBSCRIPTION,
    TopicConfig,
    topic_for_send,
)

_DEAD_LETTER_QUEUES: Final = 1
_RETRY_QUEUES_MIN: Final = 1


class TopicAdmission:
    """Says which topic a send goes to, or why to none."""

    def __init__(self, config: BrokerConfig, state: BrokerState, now_ms: Callable[[], int]) -> None:
        """Binds the parts; `now_ms` is the wall clock."""
        self._config = config
        self._state = state
        self._topics = state.topics
        self._now_ms = now_ms

    def admit(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
    ) -> TopicConfig:
        """Returns the topic of a send, which may be new, or that of dead letters.

        Raises:
            BrokerError: the topic is not open for this send.
        """
        config = self._config
        if self._now_ms() < config.accept_sends_from_ms:
            raise ServiceUnavailableError(
                f"broker unable to service, until {config.accept_sends_from_ms} ms since 1970"
                " (key startAcceptSendRequestTimeStamp)"
            )
        name = header.topic
        topic = self._state.find_topic(name)
        if not config.broker_permission & PERM_WRITE and topic is not None and topic.is_ordered:
            raise NoPermissionError(
                f"the broker[{config.address_host}] sending message is forbidden:"
                f" brokerPermission is {config.broker_permission} and topic[{name}] is ordered"
            )
        names.check_topic_name(name)
        if names.is_closed_for_sends(name):
            raise NoPermissionError(f"Sending message to topic[{name}] is forbidden.")
        if name.startswith(names.RETRY_PREFIX):
            return self._retry_topic(connection, command, header)
        return topic or self._new_topic(connection, header)

    def _new_topic(
        self, connection: CommandProtocol, header: SendMessageRequestHeader
    ) -> TopicConfig:
        topic = topic_for_send(
            self._topics,
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            TOPIC_UNIT if header.unit_mode else 0,
        )
        self._state.make_topic(topic, connection)
        return topic

    def _retry_topic(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
    ) -> TopicConfig:
        """The retry topic of a group, or its dead letters when the message was delivered often
        enough.
        """
        group = self._state.group_for_use(header.topic[len(names.RETRY_PREFIX) :], connection)
        retries_max = group.retries_max
        if command.version >= VERSION_3_4_9 and header.max_reconsume_times is not None:
            retries_max = header.max_reconsume_times
        if (header.reconsume_times or 0) >= retries_max:
            name = names.DEAD_LETTER_PREFIX + group.name
            return self._state.topic_for_group(name, _DEAD_LETTER_QUEUES, 0, connection)
        return self._state.topic_for_group(
            header.topic,
            max(group.retry_queue_count, _RETRY_QUEUES_MIN),
            TOPIC_UNIT_SUBSCRIPTION if header.unit_mode else 0,
            connection,
        )
