"""``ledgermq send``: sends texts, files or the lines of a file, and ends when all are acknowledged.

Failures are tried again as long as the producer's time for a message lasts; the exit code is 1 when
any message was not acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import stat
import sys
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO, Final

from ledgermq.cli import security
from ledgermq.cli.failure import fail, failed
from ledgermq.cli.progress import Progress
from ledgermq.cli.security import SecurityError, read_security
from ledgermq.cli.settings import add_name_servers, parse_settings
from ledgermq.client import ClientError, Message, Producer, ProducerConfig, SendResult
from ledgermq.client.config import parse_addresses
from ledgermq.client.errors import UnreachableError
from ledgermq.protocol.plain_text import escaped

GROUP: Final = "ledgermq_send"
# Failures that are spelled out; the rest is counted.
_TOLD_FAILURES_MAX: Final = 5
_TIMEOUT_S: Final = 30.0
# Without a --timeout: when nothing is acknowledged yet, whether any name server listens is asked.
_PATIENCE_S: Final = 10.0
_CONNECT_TIMEOUT_S: Final = 3.0


class InputError(Exception):
    """What was to be sent cannot be read as it was said to be."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_name_servers(parser)
    parser.add_argument("-t", "--topic", required=True, help="where to; made when it is missing")
    parser.add_argument("--key", default="", help="KEYS of every message, and its ordering key")
    parser.add_argument("--tags", default="", help="tag of every message")
    parser.add_argument(
        "--property", action="append", default=[], metavar="K=V", help="may be repeated"
    )
    parser.add_argument("--file", metavar="PATH", help="send this file; - is standard input")
    parser.add_argument("--lines", action="store_true", help="each line of the file is a message")
    parser.add_argument(
        "--key-field",
        metavar="FIELD",
        help="each line is a JSON object; FIELD of it gives KEYS and the ordering key",
    )
    parser.add_argument("--rate", type=float, metavar="N", help="messages per second at most")
    parser.add_argument(
        "--in-flight",
        type=int,
        default=1024,
        metavar="N",
        help="messages on the wire; default: %(default)s",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help=f"for one message; default: {_TIMEOUT_S:g}, {_PATIENCE_S:g} if no name server listens",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    security.add_arguments(parser)
    parser.add_argument("text", nargs="*", metavar="TEXT", help="each one is a message")


def run(options: argparse.Namespace) -> int:
    """Sends; returns the exit code."""
    try:
        properties = parse_settings(options.property)
        config = ProducerConfig(
            client=read_security(options).client_config(),
            in_flight_max=options.in_flight,
            timeout_s=_TIMEOUT_S if options.timeout is None else options.timeout,
        )
        messages = keyed_messages(options, properties)
        return asyncio.run(_send_all(options, config, messages))
    except (ClientError, InputError, OSError, SecurityError, ValueError) as error:
        return failed(error, as_json=options.json)


def keyed_messages(
    options: argparse.Namespace, properties: dict[str, str]
) -> Iterator[tuple[Message, str | None]]:
    """Gives the messages, each with its ordering key.

    Raises:
        InputError: nothing is to be sent, or a line is not what was said.
    """
    if options.file is not None:
        bodies = _bodies_of_file(options.file, options.lines or options.key_field is not None)
    elif options.text:
        bodies = (text.encode() for text in options.text)
    else:
        raise InputError("nothing to send: give a TEXT or --file")
    return _with_keys(options, properties, bodies)


def _with_keys(
    options: argparse.Namespace, properties: dict[str, str], bodies: Iterator[bytes]
) -> Iterator[tuple[Message, str | None]]:
    topic, tags = options.topic, options.tags
    for number, body in enumerate(bodies, start=1):
        key = options.key
        if options.key_field is not None:
            key = _key_of(body, options.key_field, number)
        yield Message(topic, body, keys=key, tags=tags, properties=properties), key or None


def _key_of(body: bytes, field: str, number: int) -> str:
    try:
        value = json.loads(body)[field]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"line {number} is no JSON object with {field!r}") from error
    if not isinstance(value, str | int) or value == "":
        raise InputError(f"line {number}: {field!r} is {value!r}; allowed: a text or an integer")
    return str(value)


def _bodies_of_file(path: str, is_lines: bool) -> Iterator[bytes]:
    if path == "-":
        yield from _bodies_of(sys.stdin.buffer, is_lines)
        return
    with open(path, "rb") as file:
        yield from _bodies_of(file, is_lines)


def _bodies_of(file: BinaryIO, is_lines: bool) -> Iterator[bytes]:
    if not is_lines:
        yield file.read()
        return
    for line in file:
        body = line.rstrip(b"\r\n")
        if body:
            yield body


class _Tally:
    """What became of the messages."""

    def __init__(self, progress: Progress, *, as_json: bool) -> None:
        self._as_json = as_json
        self.progress = progress
        self.failed = 0
        # True when what becomes of the rest is not told.
        self.is_over = False
        self.last: SendResult | None = None

    def settle(self, future: asyncio.Future[SendResult], size_bytes: int) -> None:
        """Takes the outcome of one message."""
        error = future.exception()
        if self.is_over:
            return
        if error is None:
            self.last = future.result()
            self.progress.add(size_bytes)
            return
        self.failed += 1
        if self.failed <= _TOLD_FAILURES_MAX:
            self.progress.clear()
            assert isinstance(error, Exception)
            failed(error, as_json=self._as_json)


async def _send_all(
    options: argparse.Namespace,
    config: ProducerConfig,
    messages: Iterator[tuple[Message, str | None]],
) -> int:
    tally = _Tally(Progress("sent", _expected(options)), as_json=options.json)
    sending = asyncio.get_running_loop().create_task(_submit_all(options, config, messages, tally))
    if options.timeout is None:
        await _give_up_early(options, sending, tally)
    await sending
    return _told(options, tally)


async def _give_up_early(
    options: argparse.Namespace, sending: asyncio.Task[None], tally: _Tally
) -> None:
    """Ends sending after a while when nothing could be sent, and no name server listens.

    Raises:
        UnreachableError: why none could be reached.
    """
    await asyncio.wait([sending], timeout=_PATIENCE_S)
    if sending.done() or tally.progress.count:
        return
    failure: OSError | None = None
    addresses = parse_addresses(options.namesrvAddr)
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError as error:
            failure = error
        else:
            writer.close()
            return
    if tally.progress.count:
        return
    tally.is_over = True
    sending.cancel()
    await asyncio.wait([sending])
    tally.progress.clear()
    reason = "no connection in time"
    if failure is not None and str(failure):
        errno = failure.errno or 0
        reason = os.strerror(errno) if errno > 0 else str(failure)
    raise UnreachableError(
        f"no name server listens at {options.namesrvAddr} for {_PATIENCE_S:g} s, the last: "
        f"{reason}; nothing was acknowledged",
        retriable=True,
    )


async def _submit_all(
    options: argparse.Namespace,
    config: ProducerConfig,
    messages: Iterator[tuple[Message, str | None]],
    tally: _Tally,
) -> None:
    loop = asyncio.get_running_loop()
    async with Producer(options.namesrvAddr, GROUP, config=config) as producer:
        begun_s = loop.time()
        for number, (message, key) in enumerate(messages):
            if options.rate:
                early_s = begun_s + number / options.rate - loop.time()
                if early_s > 0:
                    await asyncio.sleep(early_s)
            size_bytes = len(message.body)
            future = await producer.submit(message, ordering_key=key)
            future.add_done_callback(partial(tally.settle, size_bytes=size_bytes))
        await producer.flush()
        # The last outcomes are settled in the next turn of the loop.
        await asyncio.sleep(0)


def _told(options: argparse.Namespace, tally: _Tally) -> int:
    """Tells what became of all; returns the exit code."""
    progress = tally.progress
    progress.clear()
    if options.json:
        print(json.dumps(progress.figures() | {"failed": tally.failed}, sort_keys=True))
    elif tally.last is not None and progress.count == 1:
        last = tally.last
        print(
            f"{last.message_id} stored in {escaped(last.broker_name)} queue {last.queue_id}"
            f" at offset {last.queue_offset}"
        )
    else:
        print(progress.summary())
    if tally.failed:
        of = progress.count + tally.failed
        text = f"{tally.failed:,} of {of:,} messages were not acknowledged"
        return fail(text, as_json=options.json)
    return 0


def _expected(options: argparse.Namespace) -> int | None:
    """Counts the messages beforehand where that is cheap."""
    if options.file is None:
        return len(options.text)
    if not (options.lines or options.key_field):
        return 1
    if options.file == "-" or not stat.S_ISREG(os.stat(options.file).st_mode):
        return None
    with open(options.file, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
