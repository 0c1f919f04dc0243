"""Functions of the user are called by their kind."""

import asyncio
import concurrent.futures
import threading

import pytest

from ledgermq.client.errors import ClientError, ConfigError
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.user_function import UserFunction
from tests.unit.client.parts import message, run


async def on_the_loop(got: ReceivedMessage) -> str:
    return f"{got.queue_offset} {threading.current_thread().name}"


def in_a_thread(got: ReceivedMessage) -> str:
    return f"{got.queue_offset} {threading.current_thread().name}"


class Callable:
    """An object whose call is a coroutine function."""

    async def __call__(self, got: ReceivedMessage) -> str:
        return await on_the_loop(got)


def test_a_coroutine_function_runs_on_the_loop_and_a_plain_one_in_a_thread() -> None:
    async def scenario() -> None:
        for function, place in (
            (on_the_loop, "MainThread"), (Callable(), "MainThread"), (in_a_thread, "ledgermq-user"),
        ):  # fmt: skip
            called = UserFunction[str](function, 1)
            assert (await called.call(message(7))).startswith(f"7 {place}")
            called.close()

    run(scenario())


def test_an_error_of_either_kind_is_raised() -> None:
    def plain(got: ReceivedMessage) -> str:
        raise ValueError("plain")

    async def on_loop(got: ReceivedMessage) -> str:
        raise ValueError("on the loop")

    async def scenario() -> None:
        for function, text in ((plain, "plain"), (on_loop, "on the loop")):
            called = UserFunction[str](function, 1)
            with pytest.raises(ValueError, match=text):
                await called.call(message(0))
            called.close()

    run(scenario())


def test_a_call_that_finds_no_thread_any_more_does_not_fail() -> None:
    """As at the end of a program: the message is not consumed, and nobody blames the function."""

    async def scenario() -> None:
        called = UserFunction[str](in_a_thread, 1)
        called.close()
        task = asyncio.create_task(called.call(message(0)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario())


def test_a_function_that_lets_a_cancelled_wait_pass_has_failed() -> None:
    """Nobody cancelled whoever calls: the message of a listener would never be settled."""

    async def on_loop(got: ReceivedMessage) -> str:
        waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting.cancel()
        return await waiting

    def plain(got: ReceivedMessage) -> str:
        waiting: concurrent.futures.Future[str] = concurrent.futures.Future()
        waiting.cancel()
        return waiting.result()

    async def scenario() -> None:
        for function in (on_loop, plain):
            called = UserFunction[str](function, 1)
            with pytest.raises(ClientError, match="what it waited for was cancelled"):
                await called.call(message(0))
            called.close()

    run(scenario())


def test_what_is_no_function_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="'handle' is no function"):
        UserFunction[str]("handle", 1)  # type: ignore[arg-type]
