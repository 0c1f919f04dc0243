"""Cluster: which queues a topic has, where each begins and ends, and who serves it now.

Calls wait out what may pass: a leader that is gone, a name server that restarts. Each failure asks
for the route again; what does not pass within the timeout raises ClusterError with the last reason.
A topic is unknown only when every name server has said so for some seconds: a broker tells them of
a topic a moment after its first message, and a name server that was restarted learns all of them
from the brokers.
An object opens connections when they are needed and holds them until it is closed.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Self, TypeVar

from ledgermq.client import MessageQueue
from ledgermq.client.errors import code_name
from ledgermq.client.retry import ROUTE_CODES, is_access_refused
from ledgermq.client.routes import TopicRoute, route_of
from ledgermq.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    GetRouteInfoRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from ledgermq.protocol.headers.header import Header
from ledgermq.protocol.route import MASTER_ID, ClusterInfo, TopicList, TopicRouteData
from ledgermq.spark.access import OPEN_ACCESS, Access
from ledgermq.spark.errors import ClusterError, UnknownTopicError
from ledgermq.spark.partitions import queue_name
from ledgermq.spark.wire import LostError, Wire

_T = TypeVar("_T")

# Waits between two tries; doubled each time up to the second.
_PAUSE_FIRST_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0
# How long a topic may be unknown before it is believed.
_UNKNOWN_TOPIC_S: Final = 3.0
# Longest wait for an answer: of a leader, of which there is no other, and of a follower.
_MASTER_S: Final = 10.0
_FOLLOWER_S: Final = 2.0
# What may pass with the next leader, or when the broker has less to do. Permissions do not.
_PASSING_CODES: Final = (ROUTE_CODES - {int(ResponseCode.NO_PERMISSION)}) | {
    int(ResponseCode.SYSTEM_ERROR),
    int(ResponseCode.SYSTEM_BUSY),
    int(ResponseCode.FLOW_CONTROL),
}


class PassingError(Exception):
    """What was asked for cannot be had now; perhaps later."""


class Patience:
    """How long tries go on: until nothing was achieved for the timeout."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._pause = threading.Event()
        self.progressed()

    def progressed(self) -> None:
        """Starts the clock again."""
        self._deadline_s = time.monotonic() + self._timeout_s
        self._pause_s = _PAUSE_FIRST_S

    def wait(self, what: str, error: Exception) -> None:
        """Waits before the next try.

        Raises:
            ClusterError: the time is over.
        """
        if not self.pause():
            raise ClusterError(what, f"{error} (tried for {self._timeout_s:g} s)") from error

    def pause(self) -> bool:
        """Waits before the next try; returns False at once when the time is over."""
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            return False
        self._pause.wait(min(self._pause_s, left_s))
        self._pause_s = min(self._pause_s * 2, _PAUSE_S_MAX)
        return True


class Cluster:
    """Name servers and brokers, as a reader asks them; use it in a ``with`` block."""

    def __init__(
        self, name_servers: tuple[str, ...], timeout_s: float, access: Access = OPEN_ACCESS
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: addresses, host:port.
            timeout_s: how long a call may take with all its tries.
            access: account and TLS.
        """
        self._access = access
        self._name_servers = name_servers
        self.timeout_s = timeout_s
        self._wires: dict[str, Wire] = {}
        self._routes: dict[str, TopicRoute] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections; the next call opens what it needs."""
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    def topics(self, names: tuple[str, ...], pattern: str) -> list[str]:
        """Returns the topics of a read: the names as they are, or all that a pattern matches.

        Raises:
            ClusterError: no name server answers.
        """
        if names:
            return list(names)
        command = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        answer = self._ask_name_server("the list of topics", command)
        known = TopicList.decode(answer.body).topic_list
        return sorted(topic for topic in known if re.fullmatch(pattern, topic))

    def queues(
        self,
        topics: Iterable[str],
        *,
        unknown_s: float = _UNKNOWN_TOPIC_S,
        are_found: bool = False,
    ) -> list[MessageQueue]:
        """Returns the readable queues of some topics, asked for anew.

        Args:
            topics: their names.
            unknown_s: how long a topic may be unknown before that is believed.
            are_found: by a pattern; what is gone since then or may not be read is left out.

        Raises:
            UnknownTopicError: there is no such topic.
            ClusterError: no name server answers, or a topic may not be read.
        """
        found: list[MessageQueue] = []
        for topic in topics:
            try:
                queues = self._await_route(topic, 0 if are_found else unknown_s).read_queues
            except UnknownTopicError:
                if not are_found:
                    raise
                queues = ()
            if not queues and not are_found:
                raise ClusterError(f"topic {topic}", "none of its queues may be read")
            found += queues
        return found

    def is_deleted(self, queue: MessageQueue) -> bool:
        """Tells whether the topic of a queue is gone, while the brokers that had it are there.

        A topic that is gone together with its brokers may come back with them.

        Raises:
            ClusterError: no name server answers.
        """
        try:
            self._fetch_route(queue.topic)
        except UnknownTopicError:
            command = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            answer = self._ask_name_server("the list of brokers", command)
            if answer.code != ResponseCode.SUCCESS:
                return False
            try:
                return queue.broker_name in ClusterInfo.decode(answer.body).broker_addr_table
            except RemoteProtocolError:
                return False
        return False

    def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the oldest message."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = self._ask(queue, RequestCode.GET_MIN_OFFSET, header)
        return answer.header(GetMinOffsetResponseHeader).offset

    def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the next message will have."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = self._ask(queue, RequestCode.GET_MAX_OFFSET, header)
        return answer.header(GetMaxOffsetResponseHeader).offset

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Returns the offset of the first message stored at a time or later.

        When all are older: the next offset, or from some brokers that of the last message.
        """
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        answer = self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return answer.header(SearchOffsetResponseHeader).offset

    def publish(self, queue: MessageQueue, group: str, offset: int) -> None:
        """Tells the broker up to where a group has read."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def lock(self, at: MessageQueue, name: str, group: str, client_id: str) -> bool:
        """Takes or renews a lock for a client; False when another one has it.

        A broker keeps a lock for a minute from the last time that its client asked for it.

        Args:
            at: a queue whose broker keeps the lock.
            name: of the lock, which need not be one of a queue.
            group: the consumer group in whose name the broker answers.
            client_id: who asks.

        Raises:
            ClusterError: it cannot be had from that broker.
        """
        wanted = MessageQueue(at.topic, name, 0)
        body = LockBatchRequestBody(group, client_id, [wanted]).encode()
        answer = self._ask(at, RequestCode.LOCK_BATCH_MQ, None, body)
        try:
            return wanted in LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
        except RemoteProtocolError as error:
            raise ClusterError(f"the lock {name}", f"unreadable answer: {error}") from error

    def unlock(self, at: MessageQueue, name: str, group: str, client_id: str) -> None:
        """Gives a lock back.

        Raises:
            ClusterError: nobody was told: it is free a minute after it was taken or renewed.
        """
        body = UnlockBatchRequestBody(group, client_id, [MessageQueue(at.topic, name, 0)])
        self._ask(at, RequestCode.UNLOCK_BATCH_MQ, None, body.encode())

    def wire_to_master(self, queue: MessageQueue) -> Wire:
        """Returns the connection to the broker that serves a queue now.

        Raises:
            PassingError, LostError: there is none now; forget the route before the next try. That
                no name server knows the topic may pass, too: its only broker may be restarting.
        """
        return self.wire_to_member(queue, MASTER_ID)

    def wire_to_member(self, queue: MessageQueue, broker_id: int) -> Wire:
        """Returns the connection to a member of the group that has a queue.

        Args:
            queue: the queue.
            broker_id: of the member; `MASTER_ID` is the leader's.

        Raises:
            PassingError, LostError: as wire_to_master.
        """
        address = self.members(queue).get(broker_id)
        if address is None:
            raise PassingError(f"{queue.broker_name} has no {_role(broker_id)} now")
        return self._wire(address, _MASTER_S if broker_id == MASTER_ID else _FOLLOWER_S)

    def members(self, queue: MessageQueue) -> Mapping[int, str]:
        """Returns the addresses of the members that have a queue, by broker id.

        Raises:
            PassingError, LostError: as wire_to_master.
        """
        try:
            route = self._routes.get(queue.topic) or self._fetch_route(queue.topic)
        except UnknownTopicError as error:
            raise PassingError(str(error)) from error
        return route.addresses.get(queue.broker_name, {})

    def forget(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> None:
        """Forgets the route of a queue and the connection to a member that it led to."""
        route = self._routes.pop(queue.topic, None)
        if route is not None:
            self._drop(route.addresses.get(queue.broker_name, {}).get(broker_id, ""))

    def _ask(
        self, queue: MessageQueue, code: RequestCode, header: Header | None, body: bytes = b""
    ) -> RemotingCommand:
        what = f"{code.name} for {queue_name(queue)}"

        def ask() -> RemotingCommand:
            try:
                wire = self.wire_to_master(queue)
                answer = wire.request(RemotingCommand.request(code, header, body=body))
                if may_pass(answer):
                    raise PassingError(refusal(wire.address, answer))
            except (PassingError, LostError):
                self.forget(queue)
                raise
            if answer.code != ResponseCode.SUCCESS:
                raise ClusterError(what, refusal(wire.address, answer))
            return answer

        return self._patiently(what, ask)

    def _await_route(self, topic: str, unknown_s: float) -> TopicRoute:
        patience = Patience(min(unknown_s, self.timeout_s))
        while True:
            try:
                return self._fetch_route(topic)
            except UnknownTopicError:
                if not patience.pause():
                    raise

    def _fetch_route(self, topic: str) -> TopicRoute:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        answer = self._ask_name_server(f"the route of topic {topic}", command)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise UnknownTopicError(topic, ";".join(self._name_servers))
        if answer.code != ResponseCode.SUCCESS:
            raise ClusterError(f"the route of topic {topic}", refusal("the name server", answer))
        try:
            route = route_of(topic, TopicRouteData.decode(answer.body))
        except RemoteProtocolError as error:
            raise ClusterError(f"the route of topic {topic}", str(error)) from error
        self._routes[topic] = route
        return route

    def _ask_name_server(self, what: str, command: RemotingCommand) -> RemotingCommand:
        def ask() -> RemotingCommand:
            failure: Exception = PassingError("there is no name server")
            unknown = None
            for address in self._name_servers:
                try:
                    answer = self._wire(address).request(command)
                except LostError as error:
                    self._drop(address)
                    failure = error
                    continue
                if answer.code != ResponseCode.TOPIC_NOT_EXIST:
                    return answer
                unknown = answer
            if unknown is None:
                raise failure
            return unknown

        return self._patiently(what, ask)

    def _patiently(self, what: str, call: Callable[[], _T]) -> _T:
        patience = Patience(self.timeout_s)
        while True:
            try:
                return call()
            except (PassingError, LostError) as error:
                patience.wait(what, error)
            except RemoteProtocolError as error:
                raise ClusterError(what, f"unreadable answer: {error}") from error

    def _wire(self, address: str, answer_s: float = _MASTER_S) -> Wire:
        wire = self._wires.get(address)
        if wire is None:
            wire = Wire(address, min(self.timeout_s, answer_s), self._access)
            self._wires[address] = wire
        return wire

    def _drop(self, address: str) -> None:
        wire = self._wires.pop(address, None)
        if wire is not None:
            wire.close()


def _role(broker_id: int) -> str:
    return "leader" if broker_id == MASTER_ID else f"member {broker_id}"


def may_pass(answer: RemotingCommand) -> bool:
    """Tells whether what an answer says may be over at the next try.

    A wrong secret or a missing permission is not: who waits for it waits for nothing.
    """
    return answer.code in _PASSING_CODES and not is_access_refused(answer.code, answer.remark)


def refusal(address: str, answer: RemotingCommand) -> str:
    """Returns an answer that is an error, as a text."""
    return f"{address} answered {code_name(answer.code)}: {answer.remark or 'no reason given'}"
