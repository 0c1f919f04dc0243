"""What tools ask of consumers through the broker (307, 309, 221 for 223), and offsets that online
consumers are told to take (220 for 222).

The broker finds the consumer by group and client id, asks it on its own connection, and hands the
answer back as it is. Source: `Broker2Client.java`, `AdminBrokerProcessor.java`.
"""

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, gatherResults
from twisted.python.failure import Failure

from ledgermq.broker.clients.client_table import Client, ClientTable, ConsumerGroup
from ledgermq.broker.clients.open_questions import OpenQuestions
from ledgermq.broker.clients.told_offsets import ToldOffsets
from ledgermq.broker.committed_answers import answer_when_committed
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.dispatch import UNSENT_BYTES_MAX, Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.records.visible_records import VisibleRecords
from ledgermq.protocol.bodies import MessageQueue, ResetOffsetBody
from ledgermq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RequestTimeoutError
from ledgermq.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from ledgermq.protocol.signature import unsigned
from ledgermq.protocol.transport import CommandProtocol, payer_of
from ledgermq.protocol.transport.sliced_answers import Pieces, SlicedAnswers
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import (
    ConsumerOfflineError,
    GroupNotFoundError,
    InvalidRequestError,
    SystemBusyError,
)

_CLIENT_ANSWER_MS: Final = 10_000
_STATUS_ANSWER_MS: Final = 5000
# Members that are asked or told between two looks at the clock, some ten microseconds each.
_ASKED_A_PIECE: Final = 8
# Ordinals of the client versions that brought these requests.
_VERSION_3_0_7: Final = 28
_VERSION_3_1_8: Final = 62


class Queues(Protocol):
    """What is needed of a message store."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int: ...


class ForwardingProcessor:
    """Asks consumers for those who administrate."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        state: BrokerState,
        clients: ClientTable,
        questions: OpenQuestions,
        store: Queues,
        records: VisibleRecords,
        sliced: SlicedAnswers,
    ) -> None:
        """Binds the parts; `questions` asks one consumer, `sliced` makes long answers."""
        self._questions = questions
        self._records = records
        self._sliced = sliced
        self._config = config
        self._leadership = leadership
        self._state = state
        self._clients = clients
        self._store = store
        # For whom members of a group are just asked, by payer; closed ones go with the next one.
        self._asking: dict[str, CommandProtocol] = {}

    # One consumer.

    def running_info(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_CONSUMER_RUNNING_INFO (307): what a consumer tells about itself."""
        header = command.header(GetConsumerRunningInfoRequestHeader)
        return self._forward(connection, command, header.consumer_group, header.client_id, b"")

    def consume_directly(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """CONSUME_MESSAGE_DIRECTLY (309): one consumer consumes one stored message now."""
        header = command.header(ConsumeMessageDirectlyResultRequestHeader)
        found = self._records.find_by_id(header.msg_id or "")
        if found is None:
            raise InvalidRequestError(f"can not find message by the id {header.msg_id}")
        return self._forward(
            connection, command, header.consumer_group, header.client_id, found.raw
        )

    def _forward(
        self,
        asker: CommandProtocol,
        command: RemotingCommand,
        group_name: str,
        client_id: str | None,
        body: bytes,
    ) -> Answer:
        member = self._find_member(group_name, client_id)
        if member is None:
            raise InvalidRequestError(f"The Consumer <{group_name}> <{client_id}> not online")
        connection, client = member
        _check_reads(connection, client, len(body))
        if client.version < _VERSION_3_1_8:
            raise InvalidRequestError(
                f"The Consumer <{group_name}> <{client_id}> has version {client.version}, too low"
                " to finish, please upgrade it to V3_1_8_SNAPSHOT"
            )
        # Any account of the group may be the consumer: the signature of who asks is not for it.
        fields = {**unsigned(command.ext_fields or {}), "brokerName": self._config.broker_name}
        question = RemotingCommand(code=command.code, ext_fields=fields, body=body)
        answered = self._questions.ask(asker, command, connection, question, _CLIENT_ANSWER_MS)

        def told(answer: RemotingCommand) -> RemotingCommand:
            response = command.response(answer.code, answer.remark, body=answer.body)
            response.ext_fields = answer.ext_fields
            return response

        def failed(failure: Failure) -> RemotingCommand:
            if failure.check(RequestTimeoutError) is None:
                raise InvalidRequestError(
                    f"The Consumer <{group_name}> <{client_id}> went offline: {failure.value}"
                )
            return command.response(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group_name}> <{client_id}> Timeout: {_CLIENT_ANSWER_MS} ms",
            )

        return answered.addCallbacks(told, failed)

    def _find_member(
        self, group_name: str, client_id: str | None
    ) -> tuple[CommandProtocol, Client] | None:
        group = self._clients.find_group(group_name)
        for connection, client in _members(group):
            if client.client_id == client_id:
                return connection, client
        return None

    # All consumers of a group.

    def reset_offsets(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """INVOKE_BROKER_TO_RESET_OFFSET (222): online consumers take the offsets of a time.

        The stored offsets stay; the consumers commit what they were told. With nobody online the
        tool is told so (206) and writes offsets itself. A tool of 5.x may name one queue, which is
        set to an offset whoever is online.
        """
        self._leadership.check_serving()
        header = command.header(ResetOffsetRequestHeader)
        if header.queue_id is not None and header.queue_id >= 0:
            return self._reset_queue(command, header, header.queue_id)
        return self._sliced.answer(connection, self._reset(command, header))

    def _reset(self, command: RemotingCommand, header: ResetOffsetRequestHeader) -> Pieces:
        topic, group_name = header.topic, header.group
        table = yield from self._offsets_at(header)
        members = _members(self._clients.find_group(group_name))
        if not members:
            raise ConsumerOfflineError(
                f"Consumer not online, so can not reset offset, Group: {group_name} Topic: {topic}"
                f" Timestamp: {header.timestamp}"
            )
        _check_members(members)
        body = ResetOffsetBody(table)
        yield from _tell_members(members, header, body)
        return command.response(ResponseCode.SUCCESS, body=body.encode())

    def _reset_queue(
        self, command: RemotingCommand, header: ResetOffsetRequestHeader, queue_id: int
    ) -> Answer:
        """Sets one queue to an offset, or to that of a time; answered when it is committed."""
        topic = self._state.topics.get(header.topic)
        group = header.group
        stored = self._state.offsets.find(group, topic.name, queue_id)
        if stored is None and self._state.groups.find(group) is None:
            raise GroupNotFoundError(f"Group {group} does not exist")
        if queue_id >= topic.queue_count:
            raise InvalidRequestError(
                f"queueId is {queue_id}, topic[{topic.name}] has {topic.queue_count} queues"
            )
        low = max(self._store.min_offset(topic.name, queue_id), 0)
        high = max(self._store.max_offset(topic.name, queue_id), 0)
        wanted = -1 if header.offset is None else header.offset
        if wanted == -1:
            wanted = high
            if header.timestamp != -1:
                wanted = self._store.offset_by_time(topic.name, queue_id, header.timestamp)
        elif not low <= wanted <= high:
            raise InvalidRequestError(
                f"Target offset {wanted} not in consume queue range [{low}-{high}]"
            )
        wanted = max(wanted, 0)
        queue = MessageQueue(topic.name, self._config.broker_name, queue_id)
        body = ResetOffsetBody({queue: wanted})
        members = _members(self._clients.find_group(group))
        _check_members(members)
        answer = answer_when_committed(
            command,
            lambda done: self._state.commits.commit(group, topic.name, queue_id, wanted, done),
            body.encode(),
        )
        # A member that is not told would commit its own place again. One queue is told at once.
        deque(_tell_members(members, header, body), maxlen=0)
        return answer

    def _offsets_at(
        self, header: ResetOffsetRequestHeader
    ) -> Generator[None, None, dict[MessageQueue, int]]:
        topic = self._state.topics.find(header.topic)
        if topic is None:
            raise InvalidRequestError(
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            )
        table: dict[MessageQueue, int] = {}
        for queue_id in range(topic.write_queue_count):
            stored = self._state.offsets.find(header.group, topic.name, queue_id)
            if stored is None:
                raise InvalidRequestError(f"THe consumer group <{header.group}> not exist")
            if header.timestamp == -1:
                wanted = self._store.max_offset(topic.name, queue_id)
            else:
                wanted = self._store.offset_by_time(topic.name, queue_id, header.timestamp)
            wanted = max(wanted, 0)
            queue = MessageQueue(topic.name, self._config.broker_name, queue_id)
            table[queue] = wanted if header.is_force or wanted < stored else stored
            # A time is looked for in some twenty records.
            yield
        return table

    def consumer_status(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): what offsets the consumers hold."""
        header = command.header(GetConsumerStatusRequestHeader)
        group = header.group
        payer = payer_of(connection)
        asking = self._asking.get(payer)
        if asking is not None and asking.is_open:
            raise SystemBusyError(
                f"system busy: members of a group are still being asked for {payer[:128]}, one"
                " question to all at a time"
            )
        members = _members(self._clients.find_group(group))
        if not members:
            raise InvalidRequestError(f"No Any Consumer online in the consumer group: [{group}]")
        told = self._sliced.answer(connection, self._ask(command, header, members))
        if isinstance(told, Deferred):
            self._asking = {name: one for name, one in self._asking.items() if one.is_open}
            self._asking[payer] = connection
            told.addBoth(self._was_told, payer, connection)
        return told

    def _was_told(self, result: object, payer: str, connection: CommandProtocol) -> object:
        if self._asking.get(payer) is connection:
            del self._asking[payer]
        return result

    def _ask(
        self,
        command: RemotingCommand,
        header: GetConsumerStatusRequestHeader,
        members: Sequence[tuple[CommandProtocol, Client]],
    ) -> Pieces:
        questions: list[Deferred[Any]] = []
        told = ToldOffsets()
        for number, (member, client) in enumerate(members):
            if header.client_addr and header.client_addr != client.client_id:
                continue
            if number % _ASKED_A_PIECE == _ASKED_A_PIECE - 1:
                yield
            if not member.has_room(UNSENT_BYTES_MAX):
                continue
            question = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
            answered = member.request(question, _STATUS_ANSWER_MS)
            answered.addCallback(told.add, client.client_id)
            # One that does not answer, or not so that it can be used, is left out.
            answered.addErrback(lambda _: None)
            questions.append(answered)

        def all_told(_: object) -> RemotingCommand:
            return command.response(ResponseCode.SUCCESS, body=told.encode())

        return gatherResults(questions).addCallback(all_told)


def _members(group: ConsumerGroup | None) -> list[tuple[CommandProtocol, Client]]:
    members: list[tuple[CommandProtocol, Client]] = []
    for connection, client in group.members.items() if group is not None else ():
        assert isinstance(connection, CommandProtocol)
        members.append((connection, client))
    return members


def _check_reads(member: CommandProtocol, client: Client, body_bytes: int = 0) -> None:
    """Refuses to put more behind what a member has not read: whoever asks is not who pays for it,
    with memory of the broker and with the connection of the member.
    """
    if not member.has_room(UNSENT_BYTES_MAX - body_bytes):
        raise InvalidRequestError(
            f"the consumer {client.client_id} has {member.unsent_bytes} bytes unread and would have"
            f" {body_bytes} more, allowed are {UNSENT_BYTES_MAX}: it reads too slowly to be asked"
        )


def _check_members(members: Sequence[tuple[CommandProtocol, Client]]) -> None:
    """Refuses a reset that some member would not understand, or does not read."""
    for member, client in members:
        _check_reads(member, client)
        if client.version < _VERSION_3_0_7:
            raise InvalidRequestError(
                f"the client does not support this feature. version={client.version}"
            )


def _tell_members(
    members: Sequence[tuple[CommandProtocol, Client]],
    header: ResetOffsetRequestHeader,
    body: ResetOffsetBody,
) -> Generator[None, None, None]:
    """Has the members of a group take other offsets (220), some of them a piece."""
    usual, for_cpp = body.encode(), body.encode_list()
    for number, (member, client) in enumerate(members, 1):
        notice = RemotingCommand.request(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            header,
            body=for_cpp if client.language == LanguageCode.CPP else usual,
            one_way=True,
        )
        member.send_one_way(notice)
        if number % _ASKED_A_PIECE == 0:
            yield
