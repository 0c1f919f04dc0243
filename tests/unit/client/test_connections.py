"""One connection: frames, answers, deadlines, the requests of a server. No socket."""

import asyncio
from typing import Any

import pytest

from ledgermq.client.connections import Connection
from ledgermq.client.errors import UnreachableError
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; closing tells the protocol in the next turn."""

    def __init__(self, protocol: Connection) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self._protocol = protocol
        self._is_closing = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def commands(self) -> list[RemotingCommand]:
        return [decode(frame) for frame in FrameDecoder().feed(b"".join(self.writes))]


class Bench:
    """A connection over a MemoryTransport."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.lost: list[Connection] = []
        loop = asyncio.get_running_loop()
        self.connection = Connection("b:1", loop, self._requested, self.lost.append)
        self.transport = MemoryTransport(self.connection)
        self.connection.connection_made(self.transport)

    def _requested(self, address: str, request: RemotingCommand) -> None:
        self.requests.append(request.code)

    def ask(self, code: int = 10, timeout_s: float = 5.0) -> "asyncio.Task[RemotingCommand]":
        command = RemotingCommand.request(code)
        return asyncio.ensure_future(self.connection.request(command, timeout_s))


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def test_requests_of_one_turn_leave_in_one_write_and_answers_find_them() -> None:
    async def run() -> None:
        bench = Bench()
        tasks = [bench.ask(code) for code in (10, 11, 12)]
        await turns()
        assert len(bench.transport.writes) == 1
        sent = bench.transport.commands()
        assert [command.code for command in sent] == [10, 11, 12]
        for command in reversed(sent):
            bench.connection.data_received(encode(command.response(0, str(command.code))))
        assert [(await task).remark for task in tasks] == ["10", "11", "12"]

    asyncio.run(run())


def test_answer_that_nobody_waits_for_is_ignored() -> None:
    async def run() -> None:
        bench = Bench()
        bench.connection.data_received(encode(RemotingCommand(code=0, flag=1, opaque=999)))
        assert bench.connection.is_open

    asyncio.run(run())


def test_lost_connection_fails_whoever_waits() -> None:
    async def run() -> None:
        bench = Bench()
        task = bench.ask()
        await turns()
        bench.transport.close()
        with pytest.raises(UnreachableError) as caught:
            await task
        assert (caught.value.retriable, caught.value.broker) == (True, "b:1")
        assert bench.lost == [bench.connection]
        with pytest.raises(UnreachableError):
            await bench.connection.request(RemotingCommand.request(10), 1.0)

    asyncio.run(run())


def test_request_without_answer_times_out_and_ends_a_silent_connection() -> None:
    async def run() -> None:
        bench = Bench()
        with pytest.raises(UnreachableError, match="no answer"):
            await bench.ask(timeout_s=0.01)
        await turns()
        assert not bench.connection.is_open
        assert bench.lost == [bench.connection]

    asyncio.run(run())


def test_connection_that_still_speaks_survives_a_late_answer() -> None:
    async def run() -> None:
        bench = Bench()
        task = bench.ask(timeout_s=0.05)
        await turns()
        loop = asyncio.get_running_loop()
        # Something arrives later than the request was sent.
        noise = encode(RemotingCommand(code=0, flag=1, opaque=999))
        loop.call_later(0.02, bench.connection.data_received, noise)
        with pytest.raises(UnreachableError):
            await task
        assert bench.connection.is_open

    asyncio.run(run())


def test_request_of_the_server_is_passed_on_and_an_unknown_one_is_answered_so() -> None:
    async def run() -> None:
        bench = Bench()
        notice = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, one_way=True)
        bench.connection.data_received(encode(notice))
        question = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO)
        question.opaque = 5
        bench.connection.data_received(encode(question))
        await turns()
        assert bench.requests == [40, 307]
        (answer,) = bench.transport.commands()
        assert (answer.code, answer.opaque, answer.is_response) == (3, 5, True)

    asyncio.run(run())


@pytest.mark.parametrize("junk", [b"\xff\xff\xff\xff", b"\0\0\0\x08\0\0\0\x04nope"])
def test_server_that_breaks_the_protocol_is_left(junk: bytes) -> None:
    async def run() -> None:
        bench = Bench()
        task = bench.ask()
        await turns()
        bench.connection.data_received(junk)
        with pytest.raises(UnreachableError, match="broke the protocol"):
            await task

    asyncio.run(run())


def test_frames_wait_while_the_kernel_takes_none() -> None:
    async def run() -> None:
        bench = Bench()
        bench.connection.pause_writing()
        waiting = asyncio.ensure_future(bench.connection.drained())
        await turns()
        assert not waiting.done()
        bench.connection.resume_writing()
        await waiting

    asyncio.run(run())
