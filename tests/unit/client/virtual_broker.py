"""A broker and name server in memory for clients in a virtual net: it does well, unless told not.

Brokers over one `Disk` are members of one group: any of them may be named as the leader.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from ledgermq.protocol import sysflag
from ledgermq.protocol.batch import decode_batch
from ledgermq.protocol.bodies import (
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    GetConsumerListByGroupRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from ledgermq.protocol.headers.send import SendMessageRequestHeaderV2
from ledgermq.protocol.heartbeat import HeartbeatData
from ledgermq.protocol.record import encode_record
from ledgermq.protocol.route import BrokerData, QueueData, TopicRouteData

BROKER_NAME = "b"
QUEUES = 4
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
_HOST = (b"\x7f\x00\x00\x01", 1)


class Link(Protocol):
    """The broker's end of a connection."""

    def answer(self, command: RemotingCommand) -> None: ...


class Disk:
    """What the brokers of one group share."""

    def __init__(self) -> None:
        # Topic and queue -> records; queue -> bodies of all topics.
        self.records: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.stored: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}
        # Group, topic, queue -> committed offset.
        self.offsets: dict[tuple[str, str, int], int] = {}
        # Queue -> client id that has it locked.
        self.locks: dict[MessageQueue, str] = {}


class Broker:
    """Knows every topic."""

    def __init__(self, address: str, disk: Disk | None = None) -> None:
        self.address = address
        self.disk = disk or Disk()
        # Whom the route names as the leader of the broker name; None: nobody.
        self.leader: str | None = address
        self.stored = self.disk.stored
        # Group -> client ids that sent a heart beat.
        self.members: dict[str, set[str]] = defaultdict(set)
        # Codes of all requests, in their order.
        self.codes: list[int] = []
        # Sends that came, by body.
        self.copies: dict[bytes, int] = {}
        # Called first with each request; True when it has taken it.
        self.on_request: Callable[[Link, RemotingCommand], bool] | None = None
        # Gets the answers to what the broker asks.
        self.on_answer: Callable[[RemotingCommand], None] | None = None
        self._held: list[tuple[Link, RemotingCommand]] = []

    def count(self, code: int) -> int:
        """How many requests of a code came."""
        return self.codes.count(int(code))

    def take(self, link: Link, request: RemotingCommand) -> None:
        """Called with each request, and each answer of the client."""
        if request.is_response:
            if self.on_answer is not None:
                self.on_answer(request)
            return
        self.codes.append(request.code)
        if request.code in SENDS:
            self.copies[request.body] = self.copies.get(request.body, 0) + 1
        if self.on_request is not None and self.on_request(link, request):
            return
        if request.code == RequestCode.PULL_MESSAGE:
            self._pull(link, request)
            return
        answer = self._answer(request)
        if not request.is_one_way:
            link.answer(answer)

    def store(self, request: RemotingCommand) -> RemotingCommand:
        """Stores a message, and returns the answer."""
        header = request.header(SendMessageRequestHeaderV2)
        if header.batch:
            return self._store_batch(request, header)
        offset = self.put(header.topic, header.queue_id, request.body, header.properties or "")
        told = SendMessageResponseHeader(
            msg_id=f"{offset:032X}", queue_id=header.queue_id, queue_offset=offset
        )
        return request.response(0, header=told)

    def _store_batch(
        self, request: RemotingCommand, header: SendMessageRequestHeaderV2
    ) -> RemotingCommand:
        offsets = [
            self.put(header.topic, header.queue_id, one.body, one.properties.decode())
            for one in decode_batch(request.body)
        ]
        told = SendMessageResponseHeader(
            msg_id=",".join(f"{offset:032X}" for offset in offsets),
            queue_id=header.queue_id,
            queue_offset=offsets[0],
        )
        return request.response(0, header=told)

    def put(self, topic: str, queue_id: int, body: bytes, properties: str = "") -> int:
        """Stores a message, answers the pulls that wait here for one, and returns its offset."""
        place = (topic, queue_id)
        offset = len(self.disk.records[place])
        self.disk.stored[queue_id].append(body)
        record = encode_record(
            topic.encode(), queue_id, 0, offset, 0, 0, 0, _HOST, 0, _HOST, 0, 0, body,
            properties.encode(),
        )  # fmt: skip
        self.disk.records[place].append(record)
        held, self._held = self._held, []
        for link, pull in held:
            self._pull(link, pull)
        return offset

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        match request.code:
            case RequestCode.SEND_MESSAGE_V2 | RequestCode.SEND_BATCH_MESSAGE:
                return self.store(request)
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return request.response(0, body=self._route().encode())
            case RequestCode.HEART_BEAT:
                data = HeartbeatData.decode(request.body)
                for member in data.consumer_data_set:
                    self.members[member.group_name].add(data.client_id)
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                group = request.header(GetConsumerListByGroupRequestHeader).consumer_group
                ids = sorted(self.members[group])
                body = GetConsumerListByGroupResponseBody(consumer_id_list=ids).encode()
                return request.response(0, body=body)
            case RequestCode.QUERY_CONSUMER_OFFSET:
                asked = request.header(QueryConsumerOffsetRequestHeader)
                offset = self.disk.offsets.get((asked.consumer_group, asked.topic, asked.queue_id))
                if offset is None:
                    return request.response(ResponseCode.QUERY_NOT_FOUND)
                return request.response(0, header=QueryConsumerOffsetResponseHeader(offset=offset))
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                told = request.header(UpdateConsumerOffsetRequestHeader)
                place = (told.consumer_group, told.topic, told.queue_id)
                self.disk.offsets[place] = told.commit_offset
            case RequestCode.GET_MIN_OFFSET:
                return request.response(0, header=GetMaxOffsetResponseHeader(offset=0))
            case RequestCode.GET_MAX_OFFSET:
                queue = request.header(GetMaxOffsetRequestHeader)
                count = len(self.disk.records[queue.topic, queue.queue_id])
                return request.response(0, header=GetMaxOffsetResponseHeader(offset=count))
            case RequestCode.LOCK_BATCH_MQ:
                wanted = LockBatchRequestBody.decode(request.body)
                locks = self.disk.locks
                for one in wanted.mq_set:
                    locks.setdefault(one, wanted.client_id)
                had = [one for one in wanted.mq_set if locks[one] == wanted.client_id]
                return request.response(0, body=LockBatchResponseBody(had).encode())
            case RequestCode.UNLOCK_BATCH_MQ:
                given = LockBatchRequestBody.decode(request.body)
                for one in given.mq_set:
                    if self.disk.locks.get(one) == given.client_id:
                        del self.disk.locks[one]
        return request.response(ResponseCode.SUCCESS)

    def _pull(self, link: Link, request: RemotingCommand) -> None:
        header = request.header(PullMessageRequestHeader)
        records = self.disk.records[header.topic, header.queue_id]
        start = header.queue_offset
        found = records[start : start + header.max_msg_nums]
        if not found and header.sys_flag & sysflag.PULL_SUSPEND and header.suspend_timeout_millis:
            self._held.append((link, request))
            due_s = header.suspend_timeout_millis / 1000
            asyncio.get_running_loop().call_later(due_s, self._end_held, link, request)
            return
        self._answer_pull(link, request, found)

    def _end_held(self, link: Link, request: RemotingCommand) -> None:
        if (link, request) in self._held:
            self._held.remove((link, request))
            self._answer_pull(link, request, [])

    def _answer_pull(self, link: Link, request: RemotingCommand, found: list[bytes]) -> None:
        header = request.header(PullMessageRequestHeader)
        place = (header.topic, header.queue_id)
        told = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=header.queue_offset + len(found),
            min_offset=0,
            max_offset=len(self.disk.records[place]),
        )
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        link.answer(request.response(code, header=told, body=b"".join(found)))

    def _route(self) -> TopicRouteData:
        addresses = {} if self.leader is None else {0: self.leader}
        return TopicRouteData(
            queue_datas=[QueueData(BROKER_NAME, QUEUES, QUEUES, 6)],
            broker_datas=[BrokerData("C", BROKER_NAME, addresses)],
        )
