"""Offsets of groups (14, 15) and of queues (29 to 32).

An offset of a group is stored by the leader only, when it is committed (`offset_commits.py`): that
is when who waits is answered; what is told one-way is proposed within a second, and passed on by
other members (`relay.py`). A member that does not know whether it is up to date does not
answer the question for one: clients of 4.9 take every error for "no offset stored" and would begin
at the end. So a leader answers when it is certain that it still led when it was asked, and a
follower when it has applied all that was committed then, as its leader tells.

Questions for the ends of a queue need no such certainty, nor do pulls: only what is committed is
seen, so a leader that was deposed tells of less, never of what is not there. Who begins there
begins earlier.
Sources: `ConsumerManageProcessor.java`, `AdminBrokerProcessor.java`.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol

from twisted.python.failure import Failure

from ledgermq.broker.committed_answers import answer_when_committed, when_committed
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.selectors.filters import Matcher
from ledgermq.commitlog import GetMessageResult
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET
from ledgermq.protocol.transport import CommandProtocol, payer_of
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import BrokerError, NotFoundError

# Where a record holds its own place in the log.
_PLACE: Final = Struct(">q")


class QueueEnds(Protocol):
    """What is needed of a message store."""

    @property
    def max_physical_offset(self) -> int: ...

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int: ...

    def earliest_store_time(self, topic: str | None = None, queue_id: int = 0) -> int | None: ...

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        matcher: Matcher | None,
    ) -> GetMessageResult[bytes]: ...


class OffsetProcessor:
    """Answers questions for offsets and stores those of groups."""

    def __init__(
        self,
        leadership: Leadership,
        state: BrokerState,
        store: QueueEnds,
        memory_bytes: int,
        relay: Callable[[UpdateConsumerOffsetRequestHeader, dict[str, str], str], None],
    ) -> None:
        """Binds the parts.

        Args:
            leadership: whether this member leads.
            state: the stored offsets.
            store: the queues.
            memory_bytes: a message so near to the end of the log counts as read from memory.
            relay: passes an offset on to the leader: as decoded, as it came, and who told it.
        """
        self._relay = relay
        self._memory_bytes = memory_bytes
        self._leadership = leadership
        self._state = state
        self._store = store

    def query(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """QUERY_CONSUMER_OFFSET (14): the stored offset, 0 on a young queue, else an error.

        A leader that cannot tell it for certain gives no answer. A follower that no leader answers
        in time tells what it has applied, like a slave, but not that there is none: it may have to
        hear of it yet.
        """
        header = command.header(QueryConsumerOffsetRequestHeader)
        leadership = self._leadership
        if not leadership.is_serving:
            return self._as_follower(connection, command)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        commits, confirm = self._state.commits, self._state.confirm_lead
        if commits.is_on_its_way(group, topic, queue_id):
            certain = when_committed(commits.wait).addCallback(lambda _: when_committed(confirm))
        else:
            certain = when_committed(confirm)
        return certain.addCallbacks(lambda _: self._stored(command, header), _give_no_answer)

    def _as_follower(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        leadership = self._leadership
        header = command.header(QueryConsumerOffsetRequestHeader)

        def uncertain(failure: Failure) -> Answer:
            failure.trap(BrokerError)
            if leadership.is_serving:
                return self.query(connection, command)
            is_unknown = leadership.is_leader or leadership.leader_id is None
            return None if is_unknown else self._applied(command, header)

        if leadership.is_leader or (leadership.is_slave and leadership.leader_id is None):
            return None
        if leadership.is_slave:
            return self._applied(command, header)
        known = when_committed(leadership.confirm_read)
        return known.addCallbacks(lambda _: self._stored(command, header), uncertain)

    def _applied(
        self, command: RemotingCommand, header: QueryConsumerOffsetRequestHeader
    ) -> Answer:
        try:
            return self._stored(command, header)
        except NotFoundError:
            if self._leadership.is_slave:
                raise
            return None

    def _stored(self, command: RemotingCommand, header: QueryConsumerOffsetRequestHeader) -> Answer:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offset = self._state.offsets.find(group, topic, queue_id)
        if offset is None:
            is_zero_wanted = header.set_zero_if_not_found is not False
            if not is_zero_wanted or not self._is_young(topic, queue_id):
                raise NotFoundError(
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                )
            offset = 0
        answer = QueryConsumerOffsetResponseHeader(offset=offset)
        return command.response(ResponseCode.SUCCESS, header=answer)

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """True when a new group should begin at the first message: it was never removed and is
        near.

        Source: `ConsumerManageProcessor.queryConsumerOffset`, `checkInDiskByConsumeOffset`.
        """
        store = self._store
        if store.min_offset(topic, queue_id) > 0:
            return False
        first = store.get_message(topic, queue_id, 0, 1, None)
        if not first.parts:
            return True
        place: int = _PLACE.unpack_from(first.parts[0], PHYSICAL_OFFSET_OFFSET)[0]
        return store.max_physical_offset - place <= self._memory_bytes

    def update(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """UPDATE_CONSUMER_OFFSET (15): the last write wins; answered when it is committed.

        Topics that are not there have no offsets, as in 5.x; a group comes into being as by a pull.

        A slave keeps what consumers tell it while its master is down, until that tells otherwise.
        Another member passes it on, but for a client that waits for an answer: it learns who leads.
        """
        header = command.header(UpdateConsumerOffsetRequestHeader)
        leadership = self._leadership
        if not leadership.is_serving and not leadership.is_slave:
            if not command.is_one_way:
                raise leadership.refusal()
            self._relay(header, command.ext_fields or {}, payer_of(connection))
            return None
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        state, offset = self._state, header.commit_offset
        state.check_offset(group, topic, queue_id, connection)
        if leadership.is_serving and not command.is_one_way:
            return answer_when_committed(
                command, lambda done: state.commits.commit(group, topic, queue_id, offset, done)
            )
        if leadership.is_serving:
            state.commits.tell(group, topic, queue_id, offset)
        else:
            state.keep_offset(group, topic, queue_id, offset)
        return command.response(ResponseCode.SUCCESS)

    def max_offset(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_MAX_OFFSET (30): offset of the next committed message."""
        header = command.header(GetMaxOffsetRequestHeader)
        offset = max(self._store.max_offset(header.topic, header.queue_id), 0)
        return command.response(
            ResponseCode.SUCCESS, header=GetMaxOffsetResponseHeader(offset=offset)
        )

    def min_offset(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_MIN_OFFSET (31): offset of the oldest message, 0 for a queue that does not exist."""
        header = command.header(GetMinOffsetRequestHeader)
        offset = max(self._store.min_offset(header.topic, header.queue_id), 0)
        return command.response(
            ResponseCode.SUCCESS, header=GetMinOffsetResponseHeader(offset=offset)
        )

    def search(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """SEARCH_OFFSET_BY_TIMESTAMP (29): the message nearest to a store time."""
        header = command.header(SearchOffsetRequestHeader)
        offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp)
        return command.response(
            ResponseCode.SUCCESS, header=SearchOffsetResponseHeader(offset=max(offset, 0))
        )

    def earliest_time(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_EARLIEST_MSG_STORETIME (32): store time of the oldest message, -1 without one."""
        header = command.header(GetEarliestMsgStoretimeRequestHeader)
        stored = self._store.earliest_store_time(header.topic, header.queue_id)
        timestamp = -1 if stored is None else stored
        return command.response(
            ResponseCode.SUCCESS,
            header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp),
        )


def _give_no_answer(failure: Failure) -> None:
    """The leadership was lost, or may be: the client asks again."""
    failure.trap(BrokerError)
