"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): committed messages of one queue, or a wait for
the next one.

A pull that finds nothing is parked, when its client wants that, and run again when a message comes
or its time is over. When it filters by properties and the message is not wanted, it is parked
again behind that message, with the deadline it had. The answer always has its four header fields.
On a follower a pull sees what is committed there; offsets outside of its queue are not corrected,
because the queue may only be behind. Source: `PullMessageProcessor.java`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import inf
from typing import Final, Protocol

from msgspec.structs import replace
from twisted.logger import Logger

from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.dispatch import UNSENT_BYTES_MAX, Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.pulls.long_polling import ParkedPulls, WokenPulls
from ledgermq.broker.pulls.matching_reads import read_matching
from ledgermq.broker.pulls.parked_rows import ParkedPull
from ledgermq.broker.pulls.woken_lines import WokenLines
from ledgermq.broker.selectors.filters import (
    SQL_TYPE,
    Matcher,
    Subscription,
    check_supported,
    subscription_of,
)
from ledgermq.commitlog import GetMessageResult, GetMessageStatus
from ledgermq.dledger.errors import ColdDataError, LedgerError
from ledgermq.dledger.store.cold_reader import LOADS_MAX, READS_MAX, ColdReader, Done
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, encode_parts
from ledgermq.protocol.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    decode_pull_header,
    encode_found_head,
)
from ledgermq.protocol.sysflag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import (
    BrokerError,
    FilterMissingError,
    InvalidRequestError,
    NoPermissionError,
    SubscriptionMissingError,
    SubscriptionOutdatedError,
    SystemBusyError,
)
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import PERM_READ

# No stock client asks for more; more would only let one pull hold the reactor for longer.
COUNT_MAX: Final = 1024
# No stock client waits for longer than 30 s.
_SUSPEND_MS_MAX: Final = 120_000

_CODES: Final = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
# Here an offset other than 0 is outside of the queue.
# What woken pulls together, and the condition of one pull, may use of a turn.
_WOKEN_MS_MAX: Final = 1.0
_MATCHING_MS_MAX: Final = 2.0
# A subscription that is no longer is not counted; what one of its tags takes as a hash in a set.
_LIGHT_CHARS_MAX: Final = 256
_TAG_BYTES: Final = 96
# Waits that are ended in one turn.
_ENDED_AT_ONCE: Final = 1000
_EMPTY: Final = (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE)
# Here the store answers with an offset of its own instead of one behind what it looked at.
_CORRECTED: Final = (
    *_EMPTY,
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
)

_log = Logger()


# Views of the log, or copies where each record was looked into.
Found = GetMessageResult[memoryview] | GetMessageResult[bytes]


class Reader(Protocol):
    """What is needed of a message store."""

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        matcher: Matcher | None,
        *,
        may_wait: bool = True,
    ) -> GetMessageResult[bytes]: ...

    def lend_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        matcher: Matcher | None,
        *,
        may_wait: bool = True,
    ) -> GetMessageResult[memoryview]: ...

    def max_offset(self, topic: str, queue_id: int) -> int: ...


class GivenWatcher(Protocol):
    """Who wants to know what pulls found."""

    def clock_ms(self) -> float:
        """Returns monotonic time."""

    def gave(
        self,
        topic: str,
        group: str,
        queue_id: int,
        count: int,
        parts: Sequence[bytes | memoryview],
        begun_ms: float,
    ) -> None:
        """So many messages were found, whole records in `parts`, since a time."""


# Gets group, topic, queue, the offset that was asked for and the one to go on with.
OnOffsetMoved = Callable[[str, str, int, int, int], None]


class PullProcessor:
    """Answers pulls, at once or later."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        state: BrokerState,
        clients: ClientTable,
        store: Reader,
        parked: ParkedPulls,
        clock_ms: Callable[[], float],
        memory_bytes: int,
        statistics: Statistics,
        on_offset_moved: OnOffsetMoved | None = None,
        soon: Callable[[Callable[[], None]], None] | None = None,
        cold_reader: ColdReader | None = None,
    ) -> None:
        """Binds the parts.

        Args:
            config: switches and times.
            leadership: whether this member leads.
            state: topics, groups and offsets.
            clients: subscriptions from heart beats.
            store: where messages are read.
            parked: pulls that wait.
            clock_ms: monotonic time, for deadlines.
            memory_bytes: a reader so far behind the end of the log counts as slow.
            statistics: told what each group got.
            on_offset_moved: told of pulls outside of their queue.
            soon: has a function called in another turn; None: all woken pulls run in one.
            cold_reader: reads what is not in memory; None: a pull waits for the disk.
        """
        self._config = config
        self._leadership = leadership
        # Read by the quick road, too.
        self.state = state
        self.clients = clients
        self._store = store
        self._parked = parked
        self._clock_ms = clock_ms
        self._memory_bytes = memory_bytes
        self._statistics = statistics
        self._on_offset_moved = on_offset_moved
        # Makes spans of sampled messages; None: nobody asked for any.
        self.spans: GivenWatcher | None = None
        self._soon = soon
        self._cold_reader = cold_reader
        # Woken pulls that no turn had time for, and whether a call for them is due.
        self._woken = WokenLines(clock_ms)
        self._is_call_due = False
        # What the pull that was parked last asks for, but for its place, and its matcher.
        self._last_wanted: PullMessageRequestHeader | None = None
        self._last_matcher: Matcher | None = None
        # Since the start: pulls that found something, pulls that did not, messages handed out.
        self.found_count = 0
        self.missed_count = 0
        self.message_count = self.message_bytes = 0

    def pull(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """Answers a pull or parks it.

        Raises:
            BrokerError: the pull is refused.
            RemoteProtocolError: the header cannot be read.
        """
        header = decode_pull_header(command)
        return self._run(connection, command, header)

    # Waking.

    def messages_dispatched(self, dispatched: Iterable[tuple[str, int, int, int]]) -> None:
        """Runs the pulls again that some of the new messages may satisfy.

        Args:
            dispatched: topic, queue id, offset of the next message and tags code of each.
        """
        self._run_again(self._parked.wake(dispatched))

    def scan(self) -> None:
        """Runs the pulls again whose queue is longer now, and those whose time is over."""
        self._run_again(self._parked.scan(self._clock_ms(), self._store.max_offset))

    def answer_due(self) -> None:
        """Runs the pulls again whose time is over."""
        self._run_again(self._parked.due(self._clock_ms()))

    def answer_all(self) -> None:
        """Runs all parked pulls again: the broker stops."""
        self._soon = None
        self._woken.add(self._parked.take_all())
        self._run_woken()

    def end_waits(self, reason: str) -> None:
        """Has all clients that wait ask again: what they were let wait for may be none of theirs
        by now.
        """
        self._woken.add(self._parked.take_all())
        self._end_some(self._woken.take_all(), reason)

    def _end_some(self, pulls: Iterator[ParkedPull], reason: str) -> None:
        ended_count = 0
        for pull in islice(pulls, None if self._soon is None else _ENDED_AT_ONCE):
            ended_count += 1
            fields = _fields(0, pull.queue_offset, 0, 0)
            if pull.connection.is_open:
                again = ResponseCode.PULL_RETRY_IMMEDIATELY
                pull.connection.send(_command_of(pull).response(again, reason, fields))
        if ended_count == _ENDED_AT_ONCE and self._soon is not None:
            self._soon(partial(self._end_some, pulls, reason))

    def _run_again(self, pulls: WokenPulls) -> None:
        if pulls:
            self._woken.add(pulls)
            if not self._is_call_due:
                self._run_woken()

    def _run_woken(self) -> None:
        """Runs woken pulls; one message may wake a hundred thousand, so not all in one turn."""
        self._is_call_due = False
        is_last = self._soon is None
        self._woken.run(self._run_one, inf if is_last else self._clock_ms() + _WOKEN_MS_MAX)
        if self._woken and self._soon is not None:
            self._is_call_due = True
            self._soon(self._run_woken)

    def _run_one(self, pull: ParkedPull) -> None:
        command, connection = _command_of(pull), pull.connection
        if not connection.is_open:
            return
        header: PullMessageRequestHeader = replace(
            pull.request, queue_id=pull.queue_id, queue_offset=pull.queue_offset
        )
        self._answer_later(connection, command, header, pull, 0)

    def _answer_later(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        parked: ParkedPull | None,
        load_count: int,
    ) -> None:
        """Runs a pull whose request was taken in an earlier turn."""
        try:
            answer = self._run(connection, command, header, parked, load_count)
        except BrokerError as error:
            # The client asks again at once and is then told why.
            answer = command.response(
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                str(error),
                _fields(0, header.queue_offset, 0, 0),
            )
        except Exception as error:
            # Neither the other pulls nor the ledger, which woke this one, may suffer from it.
            _log.failure("a delayed pull of {peer} failed", peer=connection.peer)
            answer = command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if isinstance(answer, RemotingCommand):
            connection.send(answer)

    # One pull.

    def _run(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        parked: ParkedPull | None = None,
        load_count: int = 0,
    ) -> Answer:
        """Answers or parks a pull.

        Args:
            parked: what it was until now when it was parked.
            load_count: how often what it reads was loaded into memory.
        """
        is_first = parked is None
        # A condition that is new is read below, which counts.
        matching_end_ms = self._clock_ms() + _MATCHING_MS_MAX
        group, subscription = self.admit(connection, header)
        if is_first and not load_count and header.sys_flag & PULL_COMMIT_OFFSET:
            self.commit_offset(group.name, header.topic, header.queue_id, header.commit_offset)
        if not connection.has_room(UNSENT_BYTES_MAX):
            remark = f"{connection.unsent_bytes} bytes of answers wait for the client to read them"
            fields = _fields(0, header.queue_offset, 0, 0)
            return command.response(ResponseCode.PULL_RETRY_IMMEDIATELY, remark, fields)
        matcher = subscription.matcher
        may_wait = self._cold_reader is None or load_count >= LOADS_MAX
        try:
            result = self._read(header, subscription, matcher, matching_end_ms, may_wait)
        except ColdDataError as cold:
            again = partial(self._loaded, connection, command, header, parked, load_count + 1)
            self._load(cold, again)
            return None
        pulled = self.state.pulled.of(group.name, header.topic)
        pulled[header.queue_id] = result.next_begin_offset
        status = result.status
        if status is GetMessageStatus.FOUND:
            self._send_found(connection, command, header, group, result)
            if self.spans is not None:
                self._tell_spans(self.spans, header, result, matching_end_ms - _MATCHING_MS_MAX)
            return None
        self.missed_count += 1
        if (
            parked is not None
            and subscription.expression_type == SQL_TYPE
            and status is GetMessageStatus.NO_MATCHED_MESSAGE
            and result.next_begin_offset >= result.max_offset
            and self._park_again(parked, result.next_begin_offset)
        ):
            return None
        code = _CODES[status]
        if status in _EMPTY and header.queue_offset != 0:
            code = ResponseCode.PULL_OFFSET_MOVED
        if code is ResponseCode.PULL_OFFSET_MOVED:
            code = self._moved(header, result.next_begin_offset)
        if (
            code is ResponseCode.PULL_NOT_FOUND
            and is_first
            and header.sys_flag & PULL_SUSPEND
            and self._park(connection, command, header, matcher)
        ):
            return None
        return command.response(code, status.name, self._fields_of(header, group, result))

    def _send_found(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        group: SubscriptionGroup,
        result: Found,
    ) -> None:
        self.count_found(header.topic, group.name, result.message_count, result.bytes)
        fields = self._fields_of(header, group, result)
        if command.serialize_type:
            answer = command.response(ResponseCode.SUCCESS, "FOUND", fields)
            connection.send_parts(encode_parts(answer, result.parts))
            return
        head = encode_found_head(
            command.opaque,
            fields.suggest_which_broker_id,
            fields.next_begin_offset,
            fields.min_offset,
            fields.max_offset,
            result.bytes,
        )
        connection.send_parts([head, *result.parts])

    def _load(self, cold: ColdDataError, again: Done) -> None:
        """Has a pull wait for the disk in a thread.

        Raises:
            SystemBusyError: too many pulls do.
        """
        assert self._cold_reader is not None
        if not self._cold_reader.load(cold, again):
            count = self._cold_reader.read_count
            raise SystemBusyError(
                f"cannot read old messages: {count} reads wait for the disk (limit {READS_MAX})"
            )

    def _loaded(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        parked: ParkedPull | None,
        load_count: int,
        error: LedgerError | None,
    ) -> None:
        if connection.is_open:
            # What cannot be read fails again, and is reported then; records before it are found.
            loads = load_count if error is None else LOADS_MAX
            self._answer_later(connection, command, header, parked, loads)

    def _tell_spans(
        self, spans: GivenWatcher, header: PullMessageRequestHeader, found: Found, begun_ms: float
    ) -> None:
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        spans.gave(topic, group, queue_id, found.message_count, found.parts, begun_ms)

    def _moved(self, header: PullMessageRequestHeader, next_offset: int) -> ResponseCode:
        """What a pull outside of its queue is answered with."""
        if self._keeps_offset:
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        if self._on_offset_moved is not None:
            asked = header.queue_offset
            group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
            self._on_offset_moved(group, topic, queue_id, asked, next_offset)
        return ResponseCode.PULL_OFFSET_MOVED

    def _read(
        self,
        header: PullMessageRequestHeader,
        subscription: Subscription,
        matcher: Matcher | None,
        matching_end_ms: float,
        may_wait: bool,
    ) -> Found:
        count = min(max(header.max_msg_nums, 1), COUNT_MAX)
        wants = subscription.find_property_matcher()
        topic, queue_id = header.topic, header.queue_id
        if wants is None:
            lend, offset = self._store.lend_message, header.queue_offset
            return lend(topic, queue_id, offset, count, matcher, may_wait=may_wait)
        read = self._store.get_message
        return read_matching(
            lambda offset, run_count: read(
                topic, queue_id, offset, run_count, None, may_wait=may_wait
            ),
            header.queue_offset,
            count,
            wants,
            lambda: self._clock_ms() < matching_end_ms,
        )

    def admit(
        self, connection: CommandProtocol, header: PullMessageRequestHeader
    ) -> tuple[SubscriptionGroup, Subscription]:
        """Checks all that a pull says about its group, its queue and what it wants.

        The same is found again while topics, groups and subscriptions of members stay as they are.

        Raises:
            BrokerError: the pull is refused.
        """
        group = self._check(connection, header)
        return group, self._subscription(header, group)

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Stores the offset that a pull brings with it, where offsets are stored.

        Raises:
            BrokerError: the offset is refused.
        """
        if self._leadership.is_serving:
            self.state.commits.tell(group, topic, queue_id, offset)

    def _check(
        self, connection: CommandProtocol, header: PullMessageRequestHeader
    ) -> SubscriptionGroup:
        """Checks broker, group, topic and queue, in upstream's order."""
        config = self._config
        if not config.broker_permission & PERM_READ:
            raise NoPermissionError(
                f"the broker[{config.address_host}] pulling message is forbidden:"
                f" brokerPermission is {config.broker_permission} without the bit {PERM_READ}"
            )
        group = self.state.group_for_use(header.consumer_group, connection)
        if not group.can_consume:
            raise NoPermissionError(
                f"subscription group no permission, {group.name}: consumeEnable is false"
            )
        topic = self.state.topics.get(header.topic)
        if not topic.permission & PERM_READ:
            raise NoPermissionError(
                f"the topic[{topic.name}] pulling message is forbidden:"
                f" its permission is {topic.permission}, reading needs the bit {PERM_READ}"
            )
        if not 0 <= header.queue_id < topic.read_queue_count:
            raise InvalidRequestError(
                f"queueId[{header.queue_id}] is illegal, topic:[{topic.name}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_count}]"
                f" consumer group:[{group.name}]"
            )
        return group

    def _subscription(
        self, header: PullMessageRequestHeader, group: SubscriptionGroup
    ) -> Subscription:
        """The subscription in the request, or the one from the group's heart beats."""
        if header.sys_flag & PULL_SUBSCRIPTION:
            return subscription_of(
                header.topic,
                header.subscription,
                header.expression_type,
                header.sub_version,
                is_sql_on=self._config.filters_by_properties,
            )
        live = self.clients.find_group(group.name)
        if live is None:
            raise SubscriptionMissingError(
                f"the consumer's group info not exist: no member of [{group.name}] has sent a"
                " heart beat to this broker"
            )
        if not group.can_broadcast and live.message_model == "BROADCASTING":
            raise NoPermissionError(
                f"the consumer group[{group.name}] can not consume by broadcast way"
            )
        subscription = live.subscriptions.get(header.topic)
        if subscription is None:
            raise SubscriptionMissingError(
                f"the consumer's subscription not exist: [{group.name}] does not subscribe"
                f" topic[{header.topic}]"
            )
        if subscription.version < header.sub_version:
            raise SubscriptionOutdatedError(
                "the consumer's subscription not latest: the last heart beat had version"
                f" {subscription.version}, the pull has {header.sub_version}"
            )
        check_supported(subscription.expression_type, self._config.filters_by_properties)
        is_sql = subscription.expression_type == SQL_TYPE
        if is_sql and subscription.find_property_matcher() is None:
            raise FilterMissingError(
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
                f" [{group.name}] subscribes topic[{header.topic}] by SQL92"
            )
        return subscription

    def _park(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        matcher: Matcher | None,
    ) -> bool:
        if self._config.is_long_polling_on:
            timeout_ms = min(header.suspend_timeout_millis, _SUSPEND_MS_MAX)
        else:
            timeout_ms = self._config.short_polling_ms
        if timeout_ms <= 0 or self._leadership.is_stopping:
            return False
        wanted = replace(header, queue_id=0, queue_offset=0, commit_offset=0)
        if wanted == self._last_wanted:
            # A client that parks many asks for the same of all its queues.
            wanted = self._last_wanted
            if header.sys_flag & PULL_SUBSCRIPTION:
                matcher = self._last_matcher
        self._last_wanted, self._last_matcher = wanted, matcher
        return self._parked.park(
            ParkedPull(
                connection,
                wanted,
                wanted.topic,
                header.queue_id,
                header.queue_offset,
                matcher,
                self._clock_ms() + timeout_ms,
                command.opaque,
                command.serialize_type,
                _weight_bytes(header.subscription),
            )
        )

    def _park_again(self, pull: ParkedPull, next_offset: int) -> bool:
        """Lets a pull wait on that woke for messages which its filter does not want."""
        if self._clock_ms() >= pull.deadline_ms or self._leadership.is_stopping:
            return False
        return self._parked.park(replace(pull, queue_offset=next_offset))

    @property
    def _keeps_offset(self) -> bool:
        """True on a follower that does not correct offsets: its queues may be behind."""
        return not (self._leadership.is_leader or self._config.corrects_offsets_on_follower)

    def _fields_of(
        self,
        header: PullMessageRequestHeader,
        group: SubscriptionGroup,
        result: Found,
    ) -> PullMessageResponseHeader:
        next_offset = result.next_begin_offset
        if result.status in _CORRECTED and self._keeps_offset:
            next_offset = header.queue_offset
        suggested = self.suggested_broker(group, result.behind_bytes)
        return _fields(suggested, next_offset, result.min_offset, result.max_offset)

    def suggested_broker(self, group: SubscriptionGroup, behind_bytes: int) -> int:
        """Returns which broker a reader so far behind the end of the log should ask next."""
        if not self._config.steers_reads_to_slaves:
            return 0
        is_slow = behind_bytes > self._memory_bytes
        return group.slow_reader_broker_id if is_slow else group.broker_id

    def count_found(self, topic: str, group: str, count: int, size_bytes: int) -> None:
        """Counts a pull that found so many messages."""
        self._statistics.got(topic, group, count, size_bytes)
        self.found_count += 1
        self.message_count += count
        self.message_bytes += size_bytes


def _command_of(pull: ParkedPull) -> RemotingCommand:
    """What is needed of a parked pull's request to answer it."""
    return RemotingCommand(
        code=RequestCode.PULL_MESSAGE, opaque=pull.opaque, serialize_type=pull.serialize_type
    )


def _weight_bytes(expression: str | None) -> int:
    """What a parked pull's subscription takes: its text, and a hash for each of its tags."""
    if expression is None or len(expression) <= _LIGHT_CHARS_MAX:
        return 0
    return len(expression) + expression.count("||") * _TAG_BYTES


def _fields(
    broker_id: int, next_offset: int, min_offset: int, max_offset: int
) -> PullMessageResponseHeader:
    return PullMessageResponseHeader(
        suggest_which_broker_id=broker_id,
        next_begin_offset=next_offset,
        min_offset=min_offset,
        max_offset=max_offset,
    )
