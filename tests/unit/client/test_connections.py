"""One connection: frames, answers, deadlines, the requests of a server. No socket."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client.connection import Connection
from ledgermq.client.errors import UnreachableError
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.framing import FrameDecoder
from tests.unit.client.virtual_net import Net, true
from tests.unit.client.virtual_net import run as virtual


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; closing tells the protocol in the next turn."""

    def __init__(self, protocol: Connection) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.unwritten_bytes = 0
        self._protocol = protocol
        self._is_closing = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unwritten_bytes

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


QUESTION = 34


class Bench:
    """A connection over a MemoryTransport."""

    def __init__(self, silence_max_s: float = 3.0) -> None:
        self.requests: list[int] = []
        self.lost: list[Connection] = []
        self.doubted: list[Connection] = []
        self.connection = Connection(
            "b:1",
            asyncio.get_running_loop(),
            self._requested,
            self.lost.append,
            self.doubted.append,
            question=lambda address: RemotingCommand.request(QUESTION),
            silence_max_s=silence_max_s,
        )
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


def test_request_that_runs_out_of_time_ends_nothing_but_itself() -> None:
    """Its deadline may be a few ms away, and says nothing of the other side."""

    async def scenario(net: Net) -> None:
        bench = Bench()
        patient = bench.ask(timeout_s=2.0)
        for _ in range(20):
            with pytest.raises(UnreachableError, match="no answer"):
                await bench.ask(timeout_s=0.03)
        assert bench.connection.is_open
        first, *late = bench.transport.commands()
        # Late answers are dropped, and the one that is waited for finds its request.
        for command in (*late, first):
            bench.connection.data_received(encode(command.response(0, str(command.opaque))))
        assert (await patient).remark == str(first.opaque)
        assert bench.connection.is_open and bench.lost == []

    virtual(scenario)


class LateSink:
    """Waits for an answer, and would take it late."""

    def __init__(self) -> None:
        self.opaque = 0
        self.failures: list[ProtocolError] = []
        self.late: list[RemotingCommand] = []

    def answered(self, answer: RemotingCommand) -> None:
        raise AssertionError("it came in time")

    def failed(self, error: ProtocolError) -> tuple[int, Callable[[RemotingCommand], None]]:
        self.failures.append(error)
        return self.opaque, self.late.append


def test_late_answer_goes_to_who_has_a_use_for_it_and_once() -> None:
    async def scenario(net: Net) -> None:
        bench = Bench()
        sink = LateSink()
        request = RemotingCommand.request(10)
        bench.connection.send(request, sink, 0.01)
        sink.opaque = request.opaque
        await asyncio.sleep(0.1)
        (sent,) = bench.transport.commands()
        answer = encode(sent.response(0, "late"))
        bench.connection.data_received(answer)
        bench.connection.data_received(answer)
        assert len(sink.failures) == 1
        assert [command.remark for command in sink.late] == ["late"]

    virtual(scenario)


def test_silent_peer_is_asked_and_left_when_it_does_not_answer() -> None:
    """However long the request may wait: a pull is held for minutes."""

    async def scenario(net: Net) -> None:
        bench = Bench(silence_max_s=3.0)
        task = bench.ask(timeout_s=600.0)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        with pytest.raises(UnreachableError, match="no longer answers"):
            await task
        assert loop.time() - begun_s == pytest.approx(3.0, abs=0.01)
        assert [command.code for command in bench.transport.commands()] == [10, QUESTION]
        assert bench.lost == [bench.connection]
        # After a third and two thirds of the time for the answer.
        assert bench.doubted == [bench.connection] * 2 and not bench.connection.is_doubted

    virtual(scenario)


def test_peer_that_answers_the_question_is_kept_however_long_a_request_takes() -> None:
    async def scenario(net: Net) -> None:
        bench = Bench(silence_max_s=3.0)
        task = bench.ask(timeout_s=600.0)
        for number in range(1, 21):
            await true(lambda number=number: len(bench.transport.writes) > number)
            question = bench.transport.commands()[number]
            assert question.code == QUESTION
            # At the last moment.
            await asyncio.sleep(1.4)
            bench.connection.data_received(encode(question.response(0)))
        assert not task.done() and bench.connection.is_open
        task.cancel()

    virtual(scenario)


def test_connection_without_requests_is_not_asked() -> None:
    async def scenario(net: Net) -> None:
        bench = Bench()
        task = bench.ask()
        await turns()
        (sent,) = bench.transport.commands()
        bench.connection.data_received(encode(sent.response(0)))
        await task
        await asyncio.sleep(600)
        assert len(bench.transport.commands()) == 1
        # A silence begins with the request that waits, not with what came last.
        task = bench.ask(timeout_s=600.0)
        await asyncio.sleep(1.4)
        assert len(bench.transport.commands()) == 2 and bench.connection.is_open
        task.cancel()

    virtual(scenario)


def test_slow_line_that_takes_what_is_written_is_no_silence() -> None:
    async def scenario(net: Net) -> None:
        bench = Bench()
        bench.transport.unwritten_bytes = 4_000_000
        task = bench.ask(timeout_s=600.0)
        for _ in range(60):
            await asyncio.sleep(0.5)
            bench.transport.unwritten_bytes -= 50_000
        assert bench.connection.is_open
        with pytest.raises(UnreachableError, match="no longer answers"):
            await task

    virtual(scenario)


@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system's TCP has no TCP_USER_TIMEOUT"
)
def test_kernel_ends_a_connection_whose_peer_acknowledges_nothing() -> None:
    """Nothing else ends one over which only one-way sends go."""

    class Options:
        def __init__(self) -> None:
            self.set: list[tuple[int, int, int]] = []

        def setsockopt(self, level: int, option: int, value: int) -> None:
            self.set.append((level, option, value))

    async def scenario(net: Net) -> None:
        bench, options = Bench(silence_max_s=3.0), Options()
        bench.transport.get_extra_info = {"socket": options}.get  # type: ignore[method-assign]
        bench.connection.connection_made(bench.transport)
        assert options.set == [(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 6000)]

    virtual(scenario)


def test_program_that_blocks_its_loop_does_not_take_that_for_silence() -> None:
    """What came meanwhile is read before anything is judged; what was not asked is asked first."""

    async def scenario(net: Net) -> None:
        bench = Bench()
        task = bench.ask(timeout_s=600.0)
        await turns()
        for _ in range(5):
            net.pass_time(60.0)
            await turns()
            question = bench.transport.commands()[-1]
            assert question.code == QUESTION
            net.pass_time(60.0)
            bench.connection.data_received(encode(question.response(0)))
            await asyncio.sleep(1.0)
        assert bench.connection.is_open and not bench.doubted
        task.cancel()

    virtual(scenario)


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
