"""Messages by key and by place (12, 33), and where topics and groups stand (202, 208, 300).

Everything is read from committed messages. Sources: `QueryMessageProcessor.java`,
`AdminBrokerProcessor.java`.
"""

from collections.abc import Callable, Generator
from itertools import islice
from typing import Final, Protocol

from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.records.visible_records import VisibleRecords, visible_parts
from ledgermq.broker.sight import Eyes, visible_groups, visible_topics
from ledgermq.broker.stand_bodies import QUEUES_A_PIECE, batched, encode_members, encode_stats
from ledgermq.commitlog import KeyChainTooLongError, QueryResult
from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import ConsumeOffsets, MessageQueue, TopicOffset
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewMessageRequestHeader,
)
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.protocol.transport.sliced_answers import NAMES_A_PIECE, Pieces, SlicedAnswers
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import InvalidRequestError
from ledgermq.state.topics import TopicConfig

_KEY_CHARS_MAX: Final = 4096


class Archive(Protocol):
    """What is needed of a message store."""

    def query_in_pieces(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, QueryResult]: ...

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int | None: ...


class QueryProcessor:
    """Answers questions about stored messages."""

    def __init__(
        self,
        config: BrokerConfig,
        state: BrokerState,
        clients: ClientTable,
        store: Archive,
        records: VisibleRecords,
        get_rate: Callable[[str, str], float],
        sliced: SlicedAnswers,
    ) -> None:
        """Binds the parts; `get_rate` knows the messages a second that a group gets of a topic."""
        self._sliced = sliced
        self._records = records
        self._get_rate = get_rate
        self._config = config
        self._state = state
        self._clients = clients
        self._store = store

    def query(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """QUERY_MESSAGE (12): the newest messages that may have a key."""
        header = command.header(QueryMessageRequestHeader)
        if len(header.key) > _KEY_CHARS_MAX:
            raise InvalidRequestError(
                f"the key has {len(header.key)} characters, allowed are {_KEY_CHARS_MAX}"
            )
        wanted = header.max_num
        if header.unique_key_query:
            wanted = self._config.unique_key_hits_max
        count = min(max(wanted, 0), self._config.query_hits_max)
        return self._sliced.answer(connection, self._query(command, header, count))

    def _query(
        self, command: RemotingCommand, header: QueryMessageRequestHeader, count: int
    ) -> Pieces:
        try:
            result = yield from self._store.query_in_pieces(
                header.topic, header.key, count, header.begin_timestamp, header.end_timestamp
            )
        except KeyChainTooLongError as error:
            raise InvalidRequestError(str(error)) from error
        fields = QueryMessageResponseHeader(
            index_last_update_timestamp=result.last_update_timestamp,
            index_last_update_phyoffset=result.last_update_physical_offset,
        )
        parts = visible_parts(result.parts)
        if not parts:
            return command.response(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                fields,
            )
        return command.response(ResponseCode.SUCCESS, header=fields, body=b"".join(parts))

    def view(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """VIEW_MESSAGE_BY_ID (33): the message at a place in the log."""
        offset = command.header(ViewMessageRequestHeader).offset
        found = self._records.find(offset)
        if found is None:
            raise InvalidRequestError(f"can not find message by the offset, {offset}")
        return command.response(ResponseCode.SUCCESS, body=found.raw)

    def topic_stats(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_TOPIC_STATS_INFO (202): the ends of each write queue."""
        name = command.header(GetTopicStatsInfoRequestHeader).topic
        topic = self._state.topics.get(name)
        return self._sliced.answer(connection, self._topic_stats(command, topic))

    def _topic_stats(self, command: RemotingCommand, topic: TopicConfig) -> Pieces:
        name, rows = topic.name, list[bytes]()
        for queue_ids in batched(range(topic.write_queue_count), QUEUES_A_PIECE):
            table: dict[MessageQueue, TopicOffset] = {}
            for queue_id in queue_ids:
                high = max(self._store.max_offset(name, queue_id), 0)
                low = max(self._store.min_offset(name, queue_id), 0)
                last_ms = self._time_of(name, queue_id, high - 1)
                queue = MessageQueue(name, self._config.broker_name, queue_id)
                table[queue] = TopicOffset(low, high, last_ms)
            rows.append(encode_members(table))
            yield
        body = b'{"offsetTable":{%b}}' % b",".join(rows)
        return command.response(ResponseCode.SUCCESS, body=body)

    def consume_stats(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_CONSUME_STATS (208): where a group stands in each read queue of its topics."""
        header = command.header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        names = [header.topic] if header.topic else self._state.offsets.topics_of(group)
        eyes = Eyes(connection.sight)
        return self._sliced.answer(connection, self._consume_stats(command, eyes, header, names))

    def _consume_stats(
        self,
        command: RemotingCommand,
        eyes: Eyes,
        header: GetConsumeStatsRequestHeader,
        names: list[str],
    ) -> Pieces:
        group = header.consumer_group
        live = self._clients.find_group(group)
        rows: list[bytes] = []
        rate = 0.0
        for number, name in enumerate(names, 1):
            if number % NAMES_A_PIECE == 0:
                yield
            topic = self._state.topics.find(name)
            if topic is None or not visible_topics(eyes, (name,)):
                continue
            if live is not None and name not in live.subscriptions and not header.topic:
                continue
            rate += self._get_rate(name, group)
            committed = self._state.offsets.of_topic(group, name)
            for queue_ids in batched(range(topic.read_queue_count), QUEUES_A_PIECE):
                table = {
                    MessageQueue(name, self._config.broker_name, queue_id): self._stand(
                        group, name, queue_id, committed.get(queue_id, 0)
                    )
                    for queue_id in queue_ids
                }
                rows.append(encode_members(table))
                yield
        return command.response(ResponseCode.SUCCESS, body=encode_stats(rows, rate))

    def _stand(self, group: str, topic: str, queue_id: int, consumed: int) -> ConsumeOffsets:
        return ConsumeOffsets(
            max(self._store.max_offset(topic, queue_id), 0),
            consumed,
            self._time_of(topic, queue_id, consumed - 1),
            max(consumed, self._state.pulled.find(group, topic, queue_id)),
        )

    def consumers_of(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """QUERY_TOPIC_CONSUME_BY_WHO (300): groups that want a topic or have offsets for it."""
        topic = command.header(QueryTopicConsumeByWhoRequestHeader).topic
        eyes = Eyes(connection.sight)
        return self._sliced.answer(connection, self._consumers_of(command, eyes, topic))

    def _consumers_of(self, command: RemotingCommand, eyes: Eyes, topic: str) -> Pieces:
        # Each once, however it comes.
        shown: dict[str, None] = {}
        after = ""
        # They may come and go meanwhile.
        while some := list(islice(self._state.offsets.groups_behind(topic, after), NAMES_A_PIECE)):
            shown |= dict.fromkeys(visible_groups(eyes, some))
            after = some[-1]
            yield
        for number, group in enumerate(self._clients.consumer_group_names, 1):
            if self._clients.wants(group, topic):
                shown |= dict.fromkeys(visible_groups(eyes, (group,)))
            if number % NAMES_A_PIECE == 0:
                yield
        rows: list[bytes] = []
        for group in shown:
            rows.append(lenient_json.write_plain(group))
            if len(rows) % NAMES_A_PIECE == 0:
                yield
        body = b'{"groupList":[%b]}' % b",".join(rows)
        return command.response(ResponseCode.SUCCESS, body=body)

    def _time_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        if queue_offset < 0:
            return 0
        stored = self._store.store_time(topic, queue_id, queue_offset)
        return 0 if stored is None or stored < 0 else stored
