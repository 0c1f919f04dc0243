"""A name server and a broker in one listener, whose answers a test writes: for client behavior that
a healthy cluster does not show.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Self, TypeAlias

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.headers import SendMessageResponseHeader
from ledgermq.protocol.headers.send import SendMessageRequestHeaderV2
from ledgermq.protocol.route import BrokerData, QueueData, TopicRouteData

# None leaves the request without an answer; a negative number closes the connection.
Answer: TypeAlias = RemotingCommand | int | None
BROKER_NAME = "scripted"
QUEUES = 4
HANG_UP = -1


class ScriptedBroker:
    """Knows every topic; answers sends by a script, and well when the script is at its end."""

    def __init__(self, port: int = 0) -> None:
        """Listens nowhere yet; port 0 is any free one."""
        self._port = port
        # What the next sends are answered: a response code, None, or HANG_UP.
        self.send_script: deque[Answer] = deque()
        # Queue -> bodies that were acknowledged, in their order.
        self.stored: dict[int, list[bytes]] = {number: [] for number in range(QUEUES)}
        # Headers of the sends that were stored, in their order.
        self.headers: list[SendMessageRequestHeaderV2] = []
        # Codes of all requests, in their order.
        self.codes: list[int] = []
        # Answers other codes; None leaves it to this class.
        self.on_request: Callable[[RemotingCommand], Answer] | None = None
        # False takes the broker's address out of the route.
        self.has_leader = True
        self.most_waiting = 0
        # While set, sends wait here for `release`.
        self.is_holding = False
        self._held: list[tuple[asyncio.StreamWriter, RemotingCommand]] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        # What the route says, when that is another one's address.
        self.routed_address: str | None = None
        # Connections so far.
        self.connection_count = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._mute: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def release(self) -> None:
        """Answers all sends that are held."""
        held, self._held = self._held, []
        for writer, request in held:
            self._reply(writer, request, self._store(request))

    def mute(self) -> None:
        """Answers nothing more on the connections that are open, as if their peer had vanished."""
        self._mute.update(self._writers)

    def count(self, code: RequestCode) -> int:
        """How many requests of a code came."""
        return self.codes.count(int(code))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        decoder = FrameDecoder()
        self.connection_count += 1
        self._writers.add(writer)
        try:
            while chunk := await reader.read(65_536):
                for frame in decoder.feed(chunk):
                    if writer not in self._mute:
                        self._take(writer, decode(frame))
        except (ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    def _take(self, writer: asyncio.StreamWriter, request: RemotingCommand) -> None:
        self.codes.append(request.code)
        if request.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            if self.is_holding:
                self._held.append((writer, request))
                self.most_waiting = max(self.most_waiting, len(self._held))
                return
            answer = self.send_script.popleft() if self.send_script else self._store(request)
        elif request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            answer = request.response(0, body=self._route().encode())
        else:
            answer = self.on_request(request) if self.on_request is not None else None
            if answer is None:
                answer = int(ResponseCode.SUCCESS)
        self._reply(writer, request, answer)

    def _reply(
        self, writer: asyncio.StreamWriter, request: RemotingCommand, answer: Answer
    ) -> None:
        if answer == HANG_UP:
            writer.transport.abort()
        elif isinstance(answer, int):
            answer = request.response(answer, "as the script says")
        if isinstance(answer, RemotingCommand) and not request.is_one_way:
            writer.write(encode(answer))

    def _store(self, request: RemotingCommand) -> RemotingCommand:
        self.headers.append(request.header(SendMessageRequestHeaderV2))
        queue_id = self.headers[-1].queue_id
        offset = len(self.stored[queue_id])
        self.stored[queue_id].append(request.body)
        header = SendMessageResponseHeader(
            msg_id=f"{offset:032X}", queue_id=queue_id, queue_offset=offset
        )
        return request.response(0, header=header)

    def _route(self) -> TopicRouteData:
        address = self.routed_address or self.address
        addresses = {0: address} if self.has_leader else {1: address}
        return TopicRouteData(
            queue_datas=[QueueData(BROKER_NAME, QUEUES, QUEUES, 6)],
            broker_datas=[BrokerData("C", BROKER_NAME, addresses)],
        )
