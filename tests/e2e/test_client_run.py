"""Programs that consume until they are asked to end: what they have in hand is done first."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_END_S = 60

ASYNCIO = """
import asyncio, sys
from ledgermq.client import Message, Producer, PushConsumer

name_server, topic = sys.argv[1:]


async def handle(message):
    print("begun", message.body.decode(), flush=True)
    await asyncio.sleep(0.5)
    print("done", message.body.decode(), flush=True)


async def main():
    async with Producer(name_server) as producer:
        await producer.send(Message(topic, b"one"))
    await PushConsumer(name_server, "run", topic, handle, start="first").run()
    print("closed", flush=True)


asyncio.run(main())
"""

BLOCKING = """
import sys, threading
from ledgermq.client import Message, blocking

name_server, topic = sys.argv[1:]


def handle(message):
    print("begun", message.body.decode(), flush=True)
    threading.Event().wait(0.5)
    print("done", message.body.decode(), flush=True)


with blocking.Producer(name_server) as producer:
    producer.send(Message(topic, b"one"))
blocking.PushConsumer(name_server, "run", topic, handle, start="first").run()
print("closed", flush=True)
"""

NEXT = """
import sys
from ledgermq.client import Message, blocking

name_server, topic = sys.argv[1:]
with blocking.Producer(name_server) as producer:
    producer.send(Message(topic, b"two"))
with blocking.PushConsumer(name_server, "run", topic, start="first") as consumer:
    print(next(consumer).body.decode(), flush=True)
"""


def start(program: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_program_ends_what_it_has_begun_commits_it_and_says_nothing(
    face: str, number: signal.Signals, name_server: str
) -> None:
    topic = f"Run{face}{number}"
    program = ASYNCIO if face == "asyncio" else BLOCKING
    with start(program, name_server, topic) as process:
        # Ends what would wait for ever, without a clock of this process.
        timer = threading.Timer(_END_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun one\n"
            process.send_signal(number)
            out, errors = process.communicate()
        finally:
            timer.cancel()
            process.kill()
    assert (process.returncode, out, errors) == (0, "done one\nclosed\n", "")
    done = subprocess.run(
        [sys.executable, "-c", NEXT, name_server, topic],
        capture_output=True,
        text=True,
        timeout=_END_S,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "two\n"


EXITING = """
import sys
from ledgermq.client import Message, blocking

name_server, topic, kind = sys.argv[1:]


def plain(message):
    sys.exit(3)


async def on_loop(message):
    sys.exit(3)


with blocking.Producer(name_server) as producer:
    producer.send(Message(topic, b"one"))
listener = plain if kind == "plain" else on_loop
blocking.PushConsumer(name_server, "run", topic, listener, start="first").run()
print("closed", flush=True)
"""


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_listener_that_exits_ends_the_program(kind: str, name_server: str) -> None:
    with start(EXITING, name_server, f"RunExit{kind}", kind) as process:
        timer = threading.Timer(_END_S, process.kill)
        timer.start()
        output, errors = process.communicate()
        timer.cancel()
    assert (process.returncode, output) == (3, ""), errors
    assert "the client's thread was ended by SystemExit(3)" in errors


OPENING = """
import asyncio, signal, sys
from ledgermq.client import PushConsumer, blocking

name_server, face = sys.argv[1:]
# What a script runs in its background ignores Ctrl-C, and so would this.
signal.signal(signal.SIGINT, signal.default_int_handler)


def handle(message):
    raise AssertionError("nothing is sent")


print("opens", flush=True)
if face == "asyncio":
    asyncio.run(PushConsumer(name_server, "run", "Any", handle).run())
else:
    blocking.PushConsumer(name_server, "run", "Any", handle).run()
print("closed", flush=True)
"""


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_program_that_is_ended_before_it_has_found_a_broker_says_nothing(face: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with start(OPENING, address, face) as process:
            timer = threading.Timer(_END_S, process.kill)
            timer.start()
            try:
                # It asks, and nobody answers.
                connection, _ = silent.accept()
                with connection:
                    assert connection.recv(1)
                    process.send_signal(signal.SIGINT)
                    out, errors = process.communicate()
            finally:
                timer.cancel()
                process.kill()
    assert (process.returncode, out, errors) == (0, "opens\nclosed\n", "")
