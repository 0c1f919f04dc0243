"""Clients and their groups: heart beats (34, 35), members (38), notices (40), locks (41, 42),
checks (46), lists (203, 204, 328).

A heart beat makes the group and its retry topic before it is answered, because the client looks
for both right afterwards. It may name a thousand groups, so it is taken over piece by piece, a
large one in several turns; what its connection says meanwhile is taken over behind it. Who changes
the membership of a group has all its members told, behind that (`member_notices.py`); who closes is
taken out of a thousand groups in several turns (`departures.py`). Sources:
`ClientManageProcessor.java`, `ConsumerManageProcessor.java`,
`DefaultConsumerIdsChangeListener.java`.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ledgermq.broker.clients.client_table import Client, ClientTable, GoesOn
from ledgermq.broker.clients.departures import Departures
from ledgermq.broker.clients.member_notices import MemberNotices
from ledgermq.broker.clients.request_limits import check_heart_beat, check_locks
from ledgermq.broker.committed_answers import answer_when_committed
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.selectors.filters import (
    ALL_TAGS,
    TAG_TYPE,
    Subscription,
    codes_of,
    expression_type_of,
    split_tags,
    subscription_of,
)
from ledgermq.broker.sight import Eyes, visible_groups
from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import (
    CheckClientRequestBody,
    ClientConnection,
    ConsumerConnection,
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    ProducerConnection,
    UnlockBatchRequestBody,
)
from ledgermq.protocol.codes import LanguageCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetProducerConnectionListRequestHeader,
    UnregisterClientRequestHeader,
)
from ledgermq.protocol.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from ledgermq.protocol.networks import network_of
from ledgermq.protocol.plain_text import escaped
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.protocol.transport.sliced_answers import (
    NAMES_A_PIECE,
    Pieces,
    SlicedAnswers,
    finished,
)
from ledgermq.state import names
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import (
    AccessDeniedError,
    BrokerError,
    ConsumerOfflineError,
    GroupNotFoundError,
    InvalidRequestError,
    SystemBusyError,
    TopicNotFoundError,
)
from ledgermq.state.queue_locks import QueueKey
from ledgermq.state.topics import TOPIC_UNIT_SUBSCRIPTION

_MINUTE_MS: Final = 60_000
# Pairs of topic and group named in a line of the log.
_EXPIRED_SHOWN: Final = 3
_LANGUAGES: Final = {int(language): language.name for language in LanguageCode}

# Of a group whose members want different things: how much is told, and how often.
_NAME_CHARS_SHOWN: Final = 128
_WANTS_SHOWN: Final = 4
_DIVIDED_TOLD_MS: Final = 10 * _MINUTE_MS
_DIVIDED_MAX: Final = 1000

# A heart beat of so many bytes is taken over at once: it names a few groups.
_SMALL_BYTES: Final = 2048

_log = Logger()


@dataclass(frozen=True, slots=True)
class _Sender:
    """Who sent a heart beat; its connection tells it for the request at hand only."""

    account: str | None
    context: Any
    peer: str
    peer_host: str


class ClientProcessor:
    """Answers what clients tell about themselves and ask about each other."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        state: BrokerState,
        clients: ClientTable,
        now_ms: Callable[[], int],
        clock_ms: Callable[[], float],
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """Binds the parts.

        Args:
            config: limits and times.
            leadership: whether this member leads.
            state: topics, groups, locks and offsets.
            clients: who is here.
            now_ms: the wall clock, for people.
            clock_ms: monotonic time.
            soon: has a function called in another turn.
        """
        self._config = config
        self._leadership = leadership
        self._state = state
        self._clients = clients
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        # Groups whose members want different things -> when the log tells it again.
        self._divided: dict[str, int] = {}
        # A look for who is silent that is under way.
        self._silent: Iterator[list[Hashable]] | None = None
        self._soon = soon
        # Large heart beats and what comes behind them, and lists of all producers.
        self._sliced = SlicedAnswers(soon, clock_ms, SystemBusyError)
        self._notices = MemberNotices(self._members_to_tell, soon, clock_ms)
        self._departures = Departures(self._leave_some, soon, clock_ms)

    def heart_beat(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """HEART_BEAT (34): registers the client in its groups."""
        sender = _Sender(
            connection.account, connection.context, connection.peer, connection.peer_host
        )
        pieces = self._take_over(connection, sender, command)
        size_bytes = len(command.body)
        if size_bytes <= _SMALL_BYTES and not self._sliced.has_of(connection):
            return finished(pieces)
        return self._sliced.answer(connection, pieces, size_bytes)

    def _take_over(
        self, connection: CommandProtocol, sender: _Sender, command: RemotingCommand
    ) -> Pieces:
        data = command.body_as(HeartbeatData)
        check_heart_beat(data, self._config.heart_beat_groups_max)
        client = Client(
            data.client_id,
            command.language,
            command.version,
            sender.peer,
            int(self._clock_ms()),
            sender.account,
        )
        refused: SystemBusyError | AccessDeniedError | None = None
        remark = None
        for consumer in data.consumer_data_set:
            wanted = []
            for one in consumer.subscription_data_set:
                wanted.append(_subscription(one))
                yield
            try:
                self._register_consumer(connection, sender, client, consumer, wanted)
                remark = remark or self._division(connection, sender, client, consumer)
            except (SystemBusyError, AccessDeniedError) as error:
                # The others are members all the same.
                refused = refused or error
            yield
        for producer in data.producer_data_set:
            try:
                self._clients.register_producer(connection, client, producer.group_name)
            except (SystemBusyError, AccessDeniedError) as error:
                refused = refused or error
            yield
        if refused is not None:
            raise refused
        answer = command.response(ResponseCode.SUCCESS, remark)
        if not self._state.is_making:
            return answer
        # The group is there for everybody when its first member hears that it belongs to it; one
        # that cannot be made now is made by its next use.
        made: Deferred[Any] = Deferred()
        self._state.when_made(lambda _: made.callback(answer))
        return made

    def _division(
        self,
        connection: CommandProtocol,
        sender: _Sender,
        client: Client,
        consumer: ConsumerData,
    ) -> str | None:
        """Returns what a member is told when another one of its group wants other things."""
        group = self._clients.find_group(consumer.group_name)
        other = None if group is None else group.find_other(connection)
        if other is None:
            return None
        wants = ", ".join(
            f"{one.topic[:_NAME_CHARS_SHOWN]} {one.sub_string[:_NAME_CHARS_SHOWN]!r}"
            for one in consumer.subscription_data_set[:_WANTS_SHOWN]
            if not one.topic.startswith(names.RETRY_PREFIX)
        )
        clock_ms = int(self._clock_ms())
        text = (
            f"members of group {consumer.group_name[:_NAME_CHARS_SHOWN]} subscribe to different"
            f" things, so messages are not delivered: {client.client_id[:_NAME_CHARS_SHOWN]} wants"
            f" {wants}, {other.client_id[:_NAME_CHARS_SHOWN]} does not want the same"
        )
        if clock_ms >= self._divided.get(consumer.group_name, clock_ms):
            # At its end, for the oldest go first: a group that is one again meanwhile, and divided
            # once more, is told when its time is over, or a client could fill the disk with lines.
            self._divided.pop(consumer.group_name, None)
            if len(self._divided) >= _DIVIDED_MAX:
                del self._divided[next(iter(self._divided))]
            self._divided[consumer.group_name] = clock_ms + _DIVIDED_TOLD_MS
            of = sender.account or network_of(sender.peer_host)
            _log.warn("{text}", text=escaped(text), repeats_as=f"divided groups of {of}")
        return text

    def _register_consumer(
        self,
        connection: CommandProtocol,
        sender: _Sender,
        client: Client,
        consumer: ConsumerData,
        wanted: list[Subscription],
    ) -> None:
        name = consumer.group_name
        try:
            group = self._state.group_for_use(name, sender)
        except GroupNotFoundError:
            # Upstream registers the client all the same; its pulls are refused.
            pass
        else:
            if group.retry_queue_count > 0 and len(name) <= (
                names.TOPIC_CHARS_MAX - len(names.RETRY_PREFIX)
            ):
                unit_flag = TOPIC_UNIT_SUBSCRIPTION if consumer.unit_mode else 0
                topic_name = names.RETRY_PREFIX + name
                self._state.topic_for_group(topic_name, group.retry_queue_count, unit_flag, sender)
        has_changed = self._clients.register_consumer(
            connection,
            client,
            name,
            consume_type=consumer.consume_type.value,
            message_model=consumer.message_model.value,
            consume_from_where=consumer.consume_from_where.value,
            subscriptions=wanted,
        )
        if has_changed:
            self._notices.tell(name)

    def unregister(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """UNREGISTER_CLIENT (35): takes the client out of the named groups."""
        pieces = self._unregister(connection, command)
        if self._sliced.has_of(connection):
            return self._sliced.answer(connection, pieces)
        return finished(pieces)

    def _unregister(self, connection: CommandProtocol, command: RemotingCommand) -> Pieces:
        header = command.header(UnregisterClientRequestHeader)
        yield
        if header.producer_group:
            self._clients.unregister_producer(connection, header.producer_group)
        if header.consumer_group and self._clients.unregister_consumer(
            connection, header.consumer_group
        ):
            self._notices.tell(header.consumer_group)
        return command.response(ResponseCode.SUCCESS)

    def connection_lost(self, connection: CommandProtocol) -> None:
        """Takes a closed connection out of all groups and has the rest told."""
        self._departures.add(connection)

    def _leave_some(self, connection: CommandProtocol) -> bool:
        for group in self._clients.connection_lost(connection, NAMES_A_PIECE):
            self._notices.tell(group)
        return self._clients.has_groups(connection)

    def close_others(self, goes_on: GoesOn) -> None:
        """Closes connections of clients that do not go on as their accounts: they would go on to
        be members, and be asked and told what their groups are.
        """
        for connection in self._clients.connections_of_others(goes_on):
            assert isinstance(connection, CommandProtocol)
            connection.close("its account is gone, or has another secret, or no right to its group")

    def close_silent(self) -> None:
        """Closes connections without a heart beat, and forgets locks that nobody renewed, pulls of
        groups that are not there, and offsets that nobody uses.
        """
        clock_ms = int(self._clock_ms())
        silence_ms = self._config.client_expiry_ms
        if self._silent is None:
            self._silent = self._clients.silent_connections(clock_ms, silence_ms)
            self._close_some()
        state = self._state
        state.pulled.forget_unknown(lambda group: state.groups.find(group) is not None)
        if self._leadership.is_serving:
            state.lock_requests.expire()
            retention_ms = self._offsets_retention_ms()
            state.expiry.step(self._is_live, retention_ms, self._report_expired)

    def _close_some(self) -> None:
        """Closes the silent ones among some connections; the next ones in another turn."""
        found = None if self._silent is None else next(self._silent, None)
        if found is None:
            self._silent = None
            return
        for connection in found:
            assert isinstance(connection, CommandProtocol)
            connection.close(f"no heart beat for {self._config.client_expiry_ms} ms")
        self._soon(self._close_some)

    def _is_live(self, group: str) -> bool:
        return self._clients.find_group(group) is not None

    def _report_expired(self, keys: Sequence[str]) -> None:
        _log.info(
            "offsets of {count} pairs of topic and group expired, nobody used them for"
            " {minutes} min (key offsetsRetentionMinutes): {shown}",
            count=len(keys),
            minutes=self._offsets_retention_ms() // _MINUTE_MS,
            shown=", ".join(keys[:_EXPIRED_SHOWN]) + " ..." * (len(keys) > _EXPIRED_SHOWN),
        )

    def _offsets_retention_ms(self) -> int:
        """How long offsets stay that nobody uses: at least as long as messages, so that no group
        loses its place before those that it had not consumed.
        """
        minutes = self._config.offsets_retention_minutes
        hours = self._config.retention_hours
        return max(minutes * _MINUTE_MS, hours * 60 * _MINUTE_MS) if minutes else 0

    def _members_to_tell(self, group_name: str) -> Iterable[CommandProtocol]:
        """Returns the connections of a group whose members are told who came or went."""
        group = self._clients.find_group(group_name)
        settings = self._state.groups.find(group_name)
        if group is None or not self._config.notifies_members:
            return ()
        if settings is not None and not settings.notifies_members:
            return ()
        # Here clients are on connections of this broker.
        return cast(Iterable[CommandProtocol], group.members)

    def list_members(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_CONSUMER_LIST_BY_GROUP (38): the client ids of a group; an empty list is an error."""
        name = command.header(GetConsumerListByGroupRequestHeader).consumer_group
        group = self._clients.find_group(name)
        if group is None:
            raise InvalidRequestError(f"no consumer for this group, {name}")
        ids = list(dict.fromkeys(client.client_id for client in group.members.values()))
        body = GetConsumerListByGroupResponseBody(ids).encode()
        return command.response(ResponseCode.SUCCESS, body=body)

    # Locks for consumption in order.

    def lock(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """LOCK_BATCH_MQ (41): locks queues for one client; the answer names those it holds.

        It comes when the next leader would know of it, too.
        """
        self._leadership.check_serving()
        request = command.body_as(LockBatchRequestBody)
        check_locks(request, self._config.lock_queues_max)
        self._check_client_id(connection, request.consumer_group, request.client_id)
        names.check_group_name(request.consumer_group)
        queues = self._known_queues(request.mq_set)
        answer: Deferred[Any] = Deferred()

        def locked(held: list[QueueKey], error: BrokerError | None) -> None:
            if error is not None:
                answer.errback(error)
                return
            locks = [MessageQueue(key.topic, key.broker_name, key.queue_id) for key in held]
            body = LockBatchResponseBody(locks).encode()
            answer.callback(command.response(ResponseCode.SUCCESS, body=body))

        self._state.lock_requests.lock(request.consumer_group, queues, request.client_id, locked)
        return answer

    def _check_client_id(self, connection: CommandProtocol, group: str, client_id: str) -> None:
        live = self._clients.find_group(group)
        if live is not None:
            live.ids.check(client_id, connection.account)

    def _known_queues(self, asked: list[MessageQueue]) -> list[QueueKey]:
        """Returns the queues that are there: nobody gets the lock of another one.

        Raises:
            TopicNotFoundError: there are no such topics at all.
        """
        known = [key for key in _keys(asked) if self._state.find_topic(key.topic) is not None]
        if asked and not known:
            raise TopicNotFoundError(f"no lock: topic[{asked[0].topic[:255]}] not exist")
        return [key for key in known if self._has_queue(key)]

    def _has_queue(self, key: QueueKey) -> bool:
        """Tells whether a topic has a queue of this number. Its broker name may be any: whoever
        wants something done by one client at a time has a lock under a name of their own.
        """
        topic = self._state.find_topic(key.topic)
        return topic is not None and key.queue_id < max(
            topic.read_queue_count, topic.write_queue_count
        )

    def unlock(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """UNLOCK_BATCH_MQ (42): gives locks back."""
        self._leadership.check_serving()
        request = command.body_as(UnlockBatchRequestBody)
        check_locks(request, self._config.lock_queues_max)
        self._check_client_id(connection, request.consumer_group, request.client_id)
        group, queues = request.consumer_group, _keys(request.mq_set)
        return answer_when_committed(
            command,
            lambda done: self._state.lock_requests.unlock(group, queues, request.client_id, done),
        )

    # Questions.

    def check_client(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """CHECK_CLIENT_CONFIG (46): whether this broker can apply a subscription."""
        subscription = command.body_as(CheckClientRequestBody).subscription_data
        subscription_of(
            subscription.topic,
            subscription.sub_string,
            subscription.expression_type,
            subscription.sub_version,
            is_sql_on=self._config.filters_by_properties,
        )
        return command.response(ResponseCode.SUCCESS)

    def list_consumers(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_CONSUMER_CONNECTION_LIST (203): the live members of a group and what they want."""
        name = command.header(GetConsumerConnectionListRequestHeader).consumer_group
        group = self._clients.find_group(name)
        if group is None:
            raise ConsumerOfflineError(f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=[_connection(client) for client in group.members.values()],
            subscription_table={
                topic: subscription_data(subscription)
                for topic, subscription in group.subscriptions.items()
            },
            consume_type=ConsumeType(group.consume_type),
            message_model=MessageModel(group.message_model),
            consume_from_where=ConsumeFromWhere(group.consume_from_where),
        )
        return command.response(ResponseCode.SUCCESS, body=body.encode())

    def list_producers(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_PRODUCER_CONNECTION_LIST (204): the live members of a producer group."""
        name = command.header(GetProducerConnectionListRequestHeader).producer_group
        clients = self._clients.producers_of(name)
        if not clients:
            raise InvalidRequestError(f"the producer group[{name}] not exist")
        body = ProducerConnection([_connection(client) for client in clients])
        return command.response(ResponseCode.SUCCESS, body=body.encode())

    def list_all_producers(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_ALL_PRODUCER_INFO (328, 4.9.8): the live members of all producer groups."""
        return self._sliced.answer(connection, self._producers(command, Eyes(connection.sight)))

    def _producers(self, command: RemotingCommand, eyes: Eyes) -> Pieces:
        # What the wall clock would say of a time on the other one.
        ahead_ms = self._now_ms() - int(self._clock_ms())
        rows: list[bytes] = []
        for number, name in enumerate(self._clients.producer_group_names):
            if number % NAMES_A_PIECE == 0:
                yield
            if not visible_groups(eyes, (name,)):
                continue
            members: list[bytes] = []
            for client in self._clients.producers_of(name):
                member = {
                    "clientId": client.client_id,
                    "language": _LANGUAGES.get(client.language, "OTHER"),
                    "lastUpdateTimestamp": client.seen_ms + ahead_ms,
                    "remoteIP": f"/{client.address}",
                    "version": client.version,
                }
                members.append(lenient_json.write_plain(member))
                if len(members) % NAMES_A_PIECE == 0:
                    yield
            if members:
                rows.append(b"%b:[%b]" % (lenient_json.write_plain(name), b",".join(members)))
                yield
        body = b'{"data":{%b}}' % b",".join(rows)
        return command.response(ResponseCode.SUCCESS, body=body)


def _keys(queues: list[MessageQueue]) -> list[QueueKey]:
    return [QueueKey(queue.topic, queue.broker_name, queue.queue_id) for queue in queues]


def _subscription(data: SubscriptionData) -> Subscription:
    """A subscription of a heart beat; the C++ client leaves tags and codes out."""
    kind = expression_type_of(data.expression_type)
    expression = data.sub_string or ALL_TAGS
    tags = tuple(sorted(data.tags_set))
    codes = frozenset(data.code_set)
    if kind == TAG_TYPE and expression != ALL_TAGS and not codes:
        tags = split_tags(expression)
        codes = codes_of(tags)
    return Subscription(
        data.topic,
        expression,
        kind,
        data.sub_version,
        tags,
        codes,
        data.class_filter_mode,
    )


def subscription_data(subscription: Subscription) -> SubscriptionData:
    """Returns a subscription as tools are told it."""
    return SubscriptionData(
        topic=subscription.topic,
        sub_string=subscription.expression,
        sub_version=subscription.version,
        tags_set=frozenset(subscription.tags),
        code_set=subscription.tags_codes,
        expression_type=subscription.expression_type,
        class_filter_mode=subscription.is_class_filter,
    )


def _connection(client: Client) -> ClientConnection:
    language: Any = _LANGUAGES.get(client.language, "OTHER")
    return ClientConnection(client.client_id, client.address, language, client.version)
