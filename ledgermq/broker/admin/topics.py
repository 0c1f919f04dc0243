"""Topics and groups by hand: create and delete (17, 215, 200, 207), show (305, 351, 352).

A change is answered when its record is committed, so that what a tool was told survives any
member. Source: `AdminBrokerProcessor.java`.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred

from ledgermq.broker.committed_answers import answer_when_committed
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import SubscriptionGroupConfig
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.group_settings import SETTINGS_BYTES_MAX, GroupSettings
from ledgermq.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
)
from ledgermq.protocol.route import TopicList
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state import names
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import GroupNotFoundError, InvalidRequestError
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topic_attributes import change_attributes
from ledgermq.state.topics import QUEUES_MAX, TopicConfig

_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


class TopicProcessor:
    """Changes and shows topics and subscription groups."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        state: BrokerState,
        system_topics: frozenset[str],
        told: Callable[[], Deferred[None]],
    ) -> None:
        """Binds the parts.

        Args:
            config: what topics may have.
            leadership: who may change them.
            state: the tables.
            system_topics: those that this broker makes at every start.
            told: returns what fires when name servers know the topics of the moment.
        """
        self._told = told
        self._config = config
        self._leadership = leadership
        self._state = state
        self._system_topics = system_topics | names.SYSTEM_TOPICS

    # Topics.

    def put_topic(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """UPDATE_AND_CREATE_TOPIC (17): answered when name servers know it, too."""
        self._leadership.check_serving()
        header = command.header(CreateTopicRequestHeader)
        name = header.topic
        names.check_topic_name(name)
        self._check_not_system(name)
        for field, count in (
            ("readQueueNums", header.read_queue_nums),
            ("writeQueueNums", header.write_queue_nums),
        ):
            if not 0 <= count <= QUEUES_MAX:
                raise InvalidRequestError(f"{field} is {count}, allowed are 0 to {QUEUES_MAX}")
        if not 0 <= header.perm <= 7:
            raise InvalidRequestError(f"perm is {header.perm}, allowed are 0 to 7")
        if header.topic_filter_type not in _FILTER_TYPES:
            raise InvalidRequestError(
                f"topicFilterType is {header.topic_filter_type[:32]},"
                f" allowed are {' and '.join(_FILTER_TYPES)}"
            )
        known = self._state.topics.find(name)
        attributes = change_attributes(
            {} if known is None else known.attributes,
            header.attributes or "",
            is_new=known is None,
            allows_mixed=self._config.allows_mixed_types,
        )
        topic = TopicConfig(
            name=name,
            read_queue_count=header.read_queue_nums,
            write_queue_count=header.write_queue_nums,
            permission=header.perm,
            filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            is_ordered=header.order,
            attributes=attributes,
        )
        self._state.check_topic(topic, connection)
        done = answer_when_committed(command, lambda done: self._state.put_topic(topic, done))
        return done.addCallback(self._when_told)

    def _when_told(self, answer: RemotingCommand) -> Deferred[RemotingCommand]:
        return self._told().addCallback(lambda _: answer)

    def delete_topic(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """DELETE_TOPIC_IN_BROKER (215): the topic, its queues and the offsets for it go.

        Tools ask every broker of the cluster, one after the other, and give up at the first that
        refuses. So a follower of a leader agrees: it removes the topic when the leader does.
        """
        name = command.header(DeleteTopicRequestHeader).topic
        names.check_topic_name(name)
        self._check_not_system(name)
        leadership = self._leadership
        if leadership.leader_id is not None and not leadership.is_leader:
            return command.response(
                ResponseCode.SUCCESS,
                f"removed here when the leader {leadership.leader_id} removes it",
            )
        leadership.check_serving()
        done = answer_when_committed(command, lambda done: self._state.remove_topic(name, done))
        # What is on its way to a name server would come behind the tool's word that it is gone.
        return done.addCallback(self._when_told)

    def _check_not_system(self, name: str) -> None:
        if name in self._system_topics or names.is_system_topic(name):
            raise InvalidRequestError(f"The topic[{name}] is conflict with system topic.")

    def list_system_topics(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
        body = TopicList(sorted(self._system_topics)).encode()
        return command.response(ResponseCode.SUCCESS, body=body)

    def show_topic(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_TOPIC_CONFIG (351, 5.x)."""
        topic = self._state.topics.get(command.header(GetTopicConfigRequestHeader).topic)
        body = lenient_json.write({"attributes": {}, **topic.to_json()})
        return command.response(ResponseCode.SUCCESS, body=body)

    # Groups.

    def put_group(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
        self._leadership.check_serving()
        body = SubscriptionGroupConfig.decode(command.body)
        names.check_group_name(body.group_name)
        if not 0 <= body.retry_queue_nums <= QUEUES_MAX:
            raise InvalidRequestError(
                f"retryQueueNums is {body.retry_queue_nums}, allowed are 0 to {QUEUES_MAX}"
            )
        settings = self._settings(body.group_name, GroupSettings.decode(command.body))
        group = SubscriptionGroup(
            name=body.group_name,
            can_consume=body.consume_enable,
            can_consume_from_min=body.consume_from_min_enable,
            can_broadcast=body.consume_broadcast_enable,
            retry_queue_count=body.retry_queue_nums,
            retries_max=body.retry_max_times,
            broker_id=body.broker_id,
            slow_reader_broker_id=body.which_broker_when_consume_slowly,
            notifies_members=body.notify_consumer_ids_changed_enable,
            settings=settings,
        )
        self._state.check_group(group, connection)
        return answer_when_committed(command, lambda done: self._state.put_group(group, done))

    def _settings(self, group: str, told: GroupSettings) -> GroupSettings:
        """Checks what a tool of 5.x sets; attributes it can only change, all else is replaced."""
        if told.attributes:
            # As in upstream: so far groups have none that could be set.
            raise InvalidRequestError(
                f"attributes: unsupported key: {min(told.attributes)[:64]}; groups have none"
            )
        if told.json_bytes > SETTINGS_BYTES_MAX:
            raise InvalidRequestError(
                f"subscription group[{group}] not changed: its settings of 5.x have"
                f" {told.json_bytes} bytes, allowed are {SETTINGS_BYTES_MAX}"
            )
        known = self._state.groups.find(group)
        return told if known is None else replace(told, attributes=known.settings.attributes)

    def delete_group(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """DELETE_SUBSCRIPTIONGROUP (207): the group, and its offsets when asked for."""
        self._leadership.check_serving()
        header = command.header(DeleteSubscriptionGroupRequestHeader)
        name, removes_offsets = header.group_name, header.remove_offset
        return answer_when_committed(
            command, lambda done: self._state.remove_group(name, removes_offsets, done)
        )

    def show_group(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_SUBSCRIPTIONGROUP_CONFIG (352, 5.x)."""
        name = command.header(GetSubscriptionGroupConfigRequestHeader).group
        group = self._state.groups.find(name)
        if group is None:
            raise GroupNotFoundError(f"subscription group [{name}] does not exist")
        return command.response(
            ResponseCode.SUCCESS,
            body=lenient_json.write({**group.settings.to_plain(), **group.to_json()}),
        )
