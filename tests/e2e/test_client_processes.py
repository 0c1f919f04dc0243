"""Clients and processes: a fork does not carry them over, and an exit does not wait for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_EXIT_S = 100

FORK_BLOCKING = """
import os, sys
from ledgermq.client import ClosedError, Message, blocking

name_server, topic = sys.argv[1:]
with (
    blocking.Producer(name_server) as producer,
    blocking.LitePullConsumer(name_server, "g", auto_commit=False) as consumer,
):
    producer.send(Message(topic, b"before"))
    child = os.fork()
    if child == 0:
        for call in (lambda: producer.send(Message(topic, b"no")), consumer.poll):
            try:
                call()
            except ClosedError as error:
                assert "a fork of it" in str(error), error
                print("refused", flush=True)
        with blocking.Producer(name_server) as own:
            own.send(Message(topic, b"child"))
        # Leaves the blocks of the parent's clients.
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    producer.send(Message(topic, b"after"))
    print("both sent", flush=True)
"""

FORK_ASYNCIO = """
import asyncio, os, sys
from ledgermq.client import ClosedError, Message, Producer, PushConsumer

name_server, topic = sys.argv[1:]


def drive(coroutine):
    try:
        coroutine.send(None)
    except ClosedError as error:
        assert "a fork of it" in str(error), error
        print("refused", flush=True)


async def main():
    async with Producer(name_server) as producer:
        await producer.send(Message(topic, b"before"))
        consumer = PushConsumer(name_server, "g", topic)
        child = os.fork()
        if child == 0:
            drive(producer.send(Message(topic, b"no")))
            try:
                consumer._instance.start()
            except ClosedError:
                print("refused", flush=True)
            drive(producer.flush())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        await producer.send(Message(topic, b"after"))
        print("both sent", flush=True)


asyncio.run(main())
"""

EXIT_WHILE_OPEN = """
import sys, threading
from ledgermq.client import Message, blocking

name_server, topic = sys.argv[1:]
producer = blocking.Producer(name_server).__enter__()
producer.send(Message(topic, b"x"))
consumed = threading.Event()
listener = lambda message: consumed.set()
consumer = blocking.PushConsumer(name_server, "exit" + topic, topic, listener, start="first")
consumer.__enter__()
assert consumed.wait(60)
print("consumed", flush=True)
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (FORK_BLOCKING, ["refused", "refused", "both sent"]),
        (FORK_ASYNCIO, ["refused", "refused", "refused", "both sent"]),
        (EXIT_WHILE_OPEN, ["consumed"]),
    ],
    ids=["fork-blocking", "fork-asyncio", "exit-while-open"],
)
def test_program(program: str, expected: list[str], name_server: str) -> None:
    done = subprocess.run(
        # Later releases of Python warn of a fork beside threads, which is what is tried here.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, name_server, "Forked"],
        capture_output=True,
        text=True,
        timeout=_EXIT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[:-1] == expected
