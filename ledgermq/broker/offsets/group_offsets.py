"""Where groups stand, for tools: time spans (303), corrections (308), clones (314), all groups
(317).

Source: `AdminBrokerProcessor.java`, `ConsumerOffsetManager.java`.
"""

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.committed_answers import answer_when_committed
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.sight import Eyes, visible_groups, visible_topics
from ledgermq.broker.stand_bodies import (
    QUEUES_A_PIECE,
    batched,
    encode_group,
    encode_members,
    encode_stats,
    encode_stats_list,
)
from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import ConsumeOffsets, MessageQueue
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsInBrokerHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
)
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.protocol.transport.sliced_answers import NAMES_A_PIECE, Pieces, SlicedAnswers
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import ServiceUnavailableError
from ledgermq.state.topics import TopicConfig

_OFFSET_MAX: Final = 2**63 - 1


class QueueTimes(Protocol):
    """What is needed of a message store."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int | None: ...


class GroupOffsetProcessor:
    """Answers tools about the offsets of groups."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        state: BrokerState,
        clients: ClientTable,
        store: QueueTimes,
        *,
        get_rate: Callable[[str, str], float],
        sliced: SlicedAnswers,
        address: str,
        now_ms: Callable[[], int],
    ) -> None:
        """Binds the parts.

        Args:
            get_rate: the messages a second that a group gets of a topic.
            sliced: makes long answers.
            address: of this broker, for tools.
            now_ms: wall clock.
        """
        self._config = config
        self._leadership = leadership
        self._state = state
        self._clients = clients
        self._store = store
        self._get_rate = get_rate
        self._sliced = sliced
        self._address = address
        self._now_ms = now_ms

    def time_span(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """QUERY_CONSUME_TIME_SPAN (303): store times of a topic's ends and of a group's place."""
        header = command.header(QueryConsumeTimeSpanRequestHeader)
        topic = self._state.topics.get(header.topic)
        return self._sliced.answer(connection, self._time_span(command, topic, header.group))

    def _time_span(self, command: RemotingCommand, topic: TopicConfig, group: str) -> Pieces:
        spans: list[bytes] = []
        for queue_ids in batched(range(topic.write_queue_count), QUEUES_A_PIECE):
            piece = [self._span(topic.name, group, queue_id) for queue_id in queue_ids]
            spans.append(lenient_json.write(piece)[1:-1])
            yield
        body = b'{"consumeTimeSpanSet":[%b]}' % b",".join(spans)
        return command.response(ResponseCode.SUCCESS, body=body)

    def _span(self, topic: str, group: str, queue_id: int) -> dict[str, Any]:
        end = self._store.max_offset(topic, queue_id)
        first = self._time_of(topic, queue_id, self._store.min_offset(topic, queue_id))
        last = self._time_of(topic, queue_id, end - 1)
        stored = self._state.offsets.find(group, topic, queue_id) or 0
        consumed = self._time_of(topic, queue_id, stored - 1) if stored > 0 else first
        delay = 0
        if stored < end:
            delay = self._now_ms() - self._time_of(topic, queue_id, stored)
        return {
            "consumeTimeStamp": consumed,
            "consumeTimeStampStr": time_text(consumed),
            "delayTime": delay,
            "maxTimeStamp": last,
            "maxTimeStampStr": time_text(last),
            "messageQueue": MessageQueue(topic, self._config.broker_name, queue_id),
            "minTimeStamp": first,
            "minTimeStampStr": time_text(first),
        }

    def _time_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        stored = self._store.store_time(topic, queue_id, queue_offset) if queue_offset >= 0 else 0
        return stored or 0

    def corrections(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """QUERY_CORRECTION_OFFSET (308): the least offsets of a topic's groups.

        A queue in which the compared group is behind all others has the greatest number there is.
        Upstream deletes the offsets of the groups that the tool wants left out; here they stay.
        """
        header = command.header(QueryCorrectionOffsetHeader)
        return self._sliced.answer(connection, self._corrections(command, header))

    def _corrections(self, command: RemotingCommand, header: QueryCorrectionOffsetHeader) -> Pieces:
        left_out = set((header.filter_groups or "").split(","))
        topic = header.topic
        offsets, table = self._state.offsets, dict[int, int]()
        group = ""
        # They may come and go meanwhile.
        while group := next(offsets.groups_behind(topic, group), ""):
            yield
            if group in left_out:
                continue
            for number, (queue_id, offset) in enumerate(offsets.of_topic(group, topic).items(), 1):
                if offset >= self._store.min_offset(topic, queue_id):
                    table[queue_id] = min(table.get(queue_id, _OFFSET_MAX), offset)
                if number % NAMES_A_PIECE == 0:
                    yield
        compared = offsets.of_topic(header.compare_group, topic)
        for number, (queue_id, offset) in enumerate(compared.items(), 1):
            if table.get(queue_id, _OFFSET_MAX) > offset:
                table[queue_id] = _OFFSET_MAX
            if number % NAMES_A_PIECE == 0:
                yield
        rows: list[bytes] = []
        for queue_id, offset in table.items():
            rows.append(b"%d:%d" % (queue_id, offset))
            if len(rows) % NAMES_A_PIECE == 0:
                yield
        body = b'{"correctionOffsets":{%b}}' % b",".join(rows)
        return command.response(ResponseCode.SUCCESS, body=body)

    def clone(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """CLONE_GROUP_OFFSET (314): one group takes the offsets of another; answered when it has
        them. Topics that the account may not see are left out.
        """
        self._leadership.check_serving()
        header = command.header(CloneGroupOffsetRequestHeader)
        offsets = self._state.offsets
        names = [header.topic] if header.topic else offsets.topics_of(header.src_group)
        eyes = Eyes(connection.sight)
        pieces = self._clone(connection, command, header, eyes, names)
        return self._sliced.answer(connection, pieces)

    def _clone(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: CloneGroupOffsetRequestHeader,
        eyes: Eyes,
        names: list[str],
    ) -> Pieces:
        state, leadership = self._state, self._leadership
        term = leadership.term
        live = self._clients.find_group(header.dest_group)
        for number, topic in enumerate(names, 1):
            if number % NAMES_A_PIECE == 0:
                yield
            if not visible_topics(eyes, (topic,)) or state.topics.find(topic) is None:
                continue
            is_wanted = live is None or topic in live.subscriptions
            if not header.offline and not is_wanted:
                continue
            taken = list(state.offsets.of_topic(header.src_group, topic).items())
            for first in range(0, len(taken), QUEUES_A_PIECE):
                _check_leads_still(leadership, term)
                for queue_id, offset in taken[first : first + QUEUES_A_PIECE]:
                    state.check_offset(header.dest_group, topic, queue_id, connection)
                    state.commits.tell(header.dest_group, topic, queue_id, offset)
                yield
        _check_leads_still(leadership, term)
        return answer_when_committed(command, state.commits.wait)

    def all_stats(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_BROKER_CONSUME_STATS (317): where all groups stand that the account may see."""
        is_order_only = command.header(GetConsumeStatsInBrokerHeader).is_order
        eyes = Eyes(connection.sight)
        return self._sliced.answer(connection, self._all_stats(command, eyes, is_order_only))

    def _all_stats(self, command: RemotingCommand, eyes: Eyes, is_order_only: bool) -> Pieces:
        rows: list[bytes] = []
        behind = 0
        for number, group in enumerate(self._state.groups.names()):
            if number % NAMES_A_PIECE == 0:
                yield
            if not visible_groups(eyes, (group,)):
                continue
            stats: list[bytes] = []
            live = self._clients.find_group(group)
            for topic_number, name in enumerate(self._state.offsets.topics_of(group), 1):
                if topic_number % NAMES_A_PIECE == 0:
                    yield
                topic = self._state.topics.find(name)
                if topic is None or (is_order_only and not topic.is_ordered):
                    continue
                if not visible_topics(eyes, (name,)):
                    continue
                if live is not None and name not in live.subscriptions:
                    continue
                members: list[bytes] = []
                for queue_ids in batched(range(topic.write_queue_count), QUEUES_A_PIECE):
                    table = self._stands_of(group, name, queue_ids)
                    behind += sum(
                        ends.broker_offset - ends.consumer_offset for ends in table.values()
                    )
                    members.append(encode_members(table))
                    yield
                stats.append(encode_stats(members, self._get_rate(name, group)))
            rows.append(encode_group(group, stats))
            yield
        body = encode_stats_list(rows, self._address, behind)
        return command.response(ResponseCode.SUCCESS, body=body)

    def _stands_of(
        self, group: str, topic: str, queue_ids: range
    ) -> dict[MessageQueue, ConsumeOffsets]:
        table: dict[MessageQueue, ConsumeOffsets] = {}
        for queue_id in queue_ids:
            consumed = self._state.offsets.find(group, topic, queue_id) or 0
            table[MessageQueue(topic, self._config.broker_name, queue_id)] = ConsumeOffsets(
                max(self._store.max_offset(topic, queue_id), 0),
                consumed,
                self._time_of(topic, queue_id, consumed - 1),
                max(consumed, self._state.pulled.find(group, topic, queue_id)),
            )
        return table


def _check_leads_still(leadership: Leadership, term: int) -> None:
    """Checks that nobody else led since a term: what was told then is forgotten.

    Raises:
        ServiceUnavailableError: somebody did, or does.
    """
    leadership.check_serving()
    if leadership.term != term:
        raise ServiceUnavailableError(
            f"the leadership changed from term {term} to {leadership.term} while offsets were"
            " cloned: send the request again"
        )


def time_text(timestamp_ms: int) -> str:
    """Returns a time as upstream prints it, in this machine's zone."""
    seconds, ms = divmod(timestamp_ms, 1000)
    return time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(seconds)) + f":{ms:03d}"
