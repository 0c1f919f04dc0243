"""``ledgermq consume``: prints, stores or sums up the messages of a topic as a member of a group.

Ends by Ctrl-C, after ``--count`` messages, or when nothing came for ``--until-idle`` seconds; what
was consumed is committed then. When nothing came because there is no such topic, the exit code is
1. The checksum does not depend on the order, so that the sums of several consumers can be added:
SHA-256 of each body as a number, added up modulo 2^256.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import signal
import sys
from dataclasses import dataclass
from typing import BinaryIO, Final

from ledgermq.cli import security
from ledgermq.cli.bodies import fields_of, shown
from ledgermq.cli.cluster_command import positive
from ledgermq.cli.failure import fail, failed
from ledgermq.cli.moments import local_time
from ledgermq.cli.progress import Progress
from ledgermq.cli.remote import AdminError, RefusedError, Remote
from ledgermq.cli.security import SecurityError, read_security
from ledgermq.cli.settings import add_name_servers
from ledgermq.client import (
    ClientConfig,
    ClientError,
    ConsumerConfig,
    PushConsumer,
    ReceivedMessage,
)
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.plain_text import escaped

_MODULUS: Final = 1 << 256
_LOOK_INTERVAL_S: Final = 0.1
# Of --count; more than there will ever be.
_COUNT_DIGITS_MAX: Final = 18


@dataclass(slots=True)
class Checksum:
    """Number, size and sum of bodies, whatever their order."""

    count: int = 0
    size_bytes: int = 0
    total: int = 0

    def add(self, body: bytes) -> None:
        """Takes one body in."""
        self.count += 1
        self.size_bytes += len(body)
        self.total += int.from_bytes(hashlib.sha256(body).digest(), "big")

    def figures(self) -> dict[str, object]:
        """Returns it as plain values; sums of several may be added modulo 2^256."""
        total = self.total % _MODULUS
        return {"count": self.count, "bytes": self.size_bytes, "sha256_sum": f"{total:064x}"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_name_servers(parser)
    parser.add_argument("-t", "--topic", required=True, help="what to consume")
    parser.add_argument(
        "-g", "--group", default="ledgermq_consume", help="the consumer group; default: %(default)s"
    )
    parser.add_argument("--tags", default="*", help="tags joined by ||; default: all")
    parser.add_argument(
        "--from",
        dest="start",
        choices=("first", "last"),
        default="first",
        help="where a group begins that has consumed nothing yet; default: %(default)s",
    )
    parser.add_argument("--count", type=_count, metavar="N", help="end after this many")
    parser.add_argument(
        "--until-idle",
        type=positive,
        metavar="SECONDS",
        help="end when nothing comes for so long",
    )
    parser.add_argument("--output", metavar="FILE", help="one body a line; - is standard output")
    parser.add_argument("--checksum", action="store_true", help="sum up bodies, print none")
    parser.add_argument(
        "--show-queues", action="store_true", help="tell on stderr which queues this member has"
    )
    parser.add_argument("--json", action="store_true", help="messages and figures as JSON")
    security.add_arguments(parser)


def _count(text: str) -> int:
    """Reads a whole number; 0 consumes nothing."""
    if not text.isdecimal() or len(text) > _COUNT_DIGITS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is no whole number from 0 on")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Consumes; returns the exit code."""
    try:
        with contextlib.ExitStack() as stack:
            output = None
            if options.output == "-":
                output = sys.stdout.buffer
            elif options.output:
                output = stack.enter_context(open(options.output, "wb"))
            client = read_security(options).client_config()
            return asyncio.run(_consume(options, output, client))
    except (ClientError, RemoteProtocolError, OSError, SecurityError, ValueError) as error:
        return failed(error, as_json=options.json)


async def _consume(
    options: argparse.Namespace, output: BinaryIO | None, client: ClientConfig
) -> int:
    loop = asyncio.get_running_loop()
    checksum = Checksum()
    is_quiet = options.checksum or output is not None
    # Bodies on the terminal show by themselves how it goes on.
    bodies_are_seen = (not is_quiet or output is sys.stdout.buffer) and sys.stdout.isatty()
    progress = Progress("consumed", options.count, is_shown=not bodies_are_seen)
    watcher: asyncio.Task[None] | None = None
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with PushConsumer(
            options.namesrvAddr,
            options.group,
            options.topic,
            tags=options.tags,
            start=options.start,
            config=ConsumerConfig(client=client),
        ) as consumer:
            if options.show_queues:
                watcher = loop.create_task(_show_queues(consumer))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(options.until_idle) as idle:
                    if options.count == 0:
                        return 0
                    async for message in consumer:
                        if options.until_idle:
                            idle.reschedule(loop.time() + options.until_idle)
                        message = message.legible()
                        body = message.body
                        progress.add(len(body))
                        if options.checksum:
                            checksum.add(body)
                        if output is not None:
                            output.write(body + b"\n")
                        if not is_quiet:
                            print(shown_message(message, options.json), flush=True)
                        if progress.count == options.count:
                            break
            consumer.acknowledge()
    if watcher is not None:
        watcher.cancel()
    progress.clear()
    _tell(options, progress, checksum)
    if options.until_idle and not progress.count and options.count != 0 and _is_unknown(options):
        text = f"no name server knows the topic {options.topic!r}"
        return fail(text, as_json=options.json)
    return 0 if options.count is None or progress.count >= options.count else 1


def _is_unknown(options: argparse.Namespace) -> bool:
    """True when the name servers say that there is no such topic."""
    with Remote(options.namesrvAddr, security=read_security(options)) as remote:
        try:
            remote.route(options.topic)
        except RefusedError as error:
            return error.code == ResponseCode.TOPIC_NOT_EXIST
        except AdminError:
            # Whether it is there nobody can say now.
            return False
    return False


async def _show_queues(consumer: PushConsumer) -> None:
    """Prints the queues whenever they have changed."""
    shown: list[str] | None = None
    while True:
        queues = [f"{queue.broker_name}/{queue.queue_id}" for queue in consumer.queues()]
        if queues != shown:
            shown = queues
            print(f"{len(queues)} queues: {escaped(' '.join(queues))}", file=sys.stderr, flush=True)
        await asyncio.sleep(_LOOK_INTERVAL_S)


def _tell(options: argparse.Namespace, progress: Progress, checksum: Checksum) -> None:
    # Waiting for the first message, and for more after the last, is not consuming.
    elapsed_s = progress.elapsed_s
    if progress.first_s is not None and progress.last_s is not None and progress.count > 1:
        elapsed_s = max(progress.last_s - progress.first_s, 1e-9)
    # The bodies own standard output when they go there.
    stream = sys.stderr if options.output == "-" else sys.stdout
    if options.json:
        figures = progress.figures(elapsed_s)
        if options.checksum:
            figures |= {"checksum": checksum.figures()}
        print(json.dumps(figures, sort_keys=True), file=stream)
        return
    if options.checksum:
        print(f"sha256 sum {checksum.figures()['sha256_sum']}", file=stream)
    print(progress.summary(elapsed_s), file=sys.stderr if not options.checksum else stream)


def shown_message(message: ReceivedMessage, as_json: bool) -> str:
    """Returns a message as it is printed: its body, or all of it as a line of JSON."""
    if not as_json:
        # What a message holds must not act on a terminal; in a pipe it stays as it is.
        if sys.stdout.isatty():
            return shown(message.body)
        return message.body.decode("utf-8", "backslashreplace")
    return json.dumps(
        {
            "topic": message.topic,
            "broker": message.queue.broker_name,
            "queue": message.queue.queue_id,
            "offset": message.queue_offset,
            "id": message.message_id,
            "keys": message.keys,
            "tags": message.tags,
            "properties": message.properties,
            "born_ms": message.born_timestamp_ms,
            "stored_ms": message.store_timestamp_ms,
            "born": local_time(message.born_timestamp_ms),
            "stored": local_time(message.store_timestamp_ms),
            **fields_of(message.body),
        },
        # On a terminal nothing acts but what JSON is made of; in a pipe texts stay as they are.
        ensure_ascii=sys.stdout.isatty(),
        sort_keys=True,
    )
