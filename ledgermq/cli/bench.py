"""``ledgermq bench``: how much this machine and a cluster send or consume through the client.

``produce`` sends bodies of one size for some seconds, pipelined, and tells rates and latencies;
``consume`` reads a topic from its first message with a group of its own. The client's own cost is
part of the figures: they are what one process of a Python program gets.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from functools import partial
from typing import Final

from ledgermq.cli import security
from ledgermq.cli.failure import fail, failed
from ledgermq.cli.progress import Progress
from ledgermq.cli.security import SecurityError, read_security
from ledgermq.cli.settings import add_name_servers
from ledgermq.client import (
    ClientConfig,
    ClientError,
    ConsumerConfig,
    Message,
    Producer,
    ProducerConfig,
    PushConsumer,
    SendResult,
)

_PRODUCER_GROUP: Final = "ledgermq_bench"
# Different bodies in turn, so that nothing is measured that only repetition makes quick.
_BODIES_COUNT: Final = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("mode", choices=("produce", "consume"), help="what to measure")
    add_name_servers(parser)
    parser.add_argument("-t", "--topic", default="LedgerMQ_Bench", help="default: %(default)s")
    parser.add_argument("-g", "--group", help="consume: the consumer group; default: a new one")
    parser.add_argument(
        "--size", type=int, default=1024, metavar="BYTES", help="of a body; default: %(default)s"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, metavar="S", help="how long; default: %(default)g"
    )
    parser.add_argument(
        "--in-flight", type=int, default=1024, metavar="N", help="on the wire; default: %(default)s"
    )
    parser.add_argument(
        "--batch",
        type=int,
        default=1,
        metavar="N",
        help="messages a request; default: %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    security.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Measures; returns the exit code."""
    if options.size < 1 or options.batch < 1 or options.seconds <= 0:
        fail("--size, --batch and --seconds are above 0", as_json=options.json)
        return 2
    measure = _produce if options.mode == "produce" else _consume
    try:
        return asyncio.run(measure(options, read_security(options).client_config()))
    except (ClientError, SecurityError) as error:
        return failed(error, as_json=options.json)


def quantile(ordered: list[float], part: float) -> float:
    """Returns the value below which `part` (0 to 1) of a sorted list lies; 0 of an empty one."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


async def _produce(options: argparse.Namespace, client: ClientConfig) -> int:
    # Half random: neither free to compress nor all noise; bodies are not compressed here anyway.
    bodies = [(os.urandom(options.size // 2 + 1) * 2)[: options.size] for _ in range(_BODIES_COUNT)]
    config = ProducerConfig(client=client, in_flight_max=options.in_flight, compress_from_bytes=0)
    progress = Progress("sent")
    latencies_ms: list[float] = []
    failures: list[BaseException] = []

    def settle(future: asyncio.Future[SendResult], sent_s: float) -> None:
        error = future.exception()
        if error is not None:
            failures.append(error)
            return
        latencies_ms.append((time.perf_counter() - sent_s) * 1000)
        progress.add_many(options.batch, options.batch * options.size)

    async with Producer(options.namesrvAddr, _PRODUCER_GROUP, config=config) as producer:
        await producer.send(Message(options.topic, bodies[0]))
        progress.begun_s = time.perf_counter()
        cpu_s = time.process_time()
        number = 0
        while (sent_s := time.perf_counter()) < progress.begun_s + options.seconds:
            messages = [
                Message(options.topic, bodies[(number + i) % _BODIES_COUNT])
                for i in range(options.batch)
            ]
            number += options.batch
            if options.batch == 1:
                future = await producer.submit(messages[0])
            else:
                future = await producer.submit_batch(messages)
            future.add_done_callback(partial(settle, sent_s=sent_s))
        await producer.flush()
        await asyncio.sleep(0)
        cpu_s = time.process_time() - cpu_s
    latencies_ms.sort()
    _tell(
        options,
        progress,
        {
            "latency_ms_p50": round(quantile(latencies_ms, 0.5), 2),
            "latency_ms_p99": round(quantile(latencies_ms, 0.99), 2),
            "latency_ms_max": round(latencies_ms[-1], 2) if latencies_ms else 0.0,
            "client_cpu_us_per_message": round(cpu_s / max(progress.count, 1) * 1e6, 1),
            "failed": len(failures),
        },
    )
    if failures:
        return fail(f"{len(failures)} failed: {failures[0]}", as_json=options.json)
    return 0


async def _consume(options: argparse.Namespace, client: ClientConfig) -> int:
    group = options.group or f"ledgermq_bench_{time.time_ns()}"
    progress = Progress("consumed")
    cpu_s = time.process_time()
    config = ConsumerConfig(client=client)
    async with PushConsumer(
        options.namesrvAddr, group, options.topic, start="first", config=config
    ) as consumer:
        try:
            async with asyncio.timeout(options.seconds) as limit:
                async for message in consumer:
                    if progress.first_s is None:
                        progress.begun_s = time.perf_counter()
                        cpu_s = time.process_time()
                        limit.reschedule(asyncio.get_running_loop().time() + options.seconds)
                    progress.add(len(message.body))
        except TimeoutError:
            consumer.acknowledge()
        cpu_s = time.process_time() - cpu_s
    if not progress.count:
        text = f"no message of {options.topic} came in {options.seconds:g} s"
        return fail(text, as_json=options.json)
    _tell(options, progress, {"client_cpu_us_per_message": round(cpu_s / progress.count * 1e6, 1)})
    return 0


def _tell(options: argparse.Namespace, progress: Progress, more: dict[str, float | int]) -> None:
    progress.clear()
    if options.json:
        print(json.dumps(progress.figures() | more, sort_keys=True))
        return
    print(progress.summary())
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in more.items()))
