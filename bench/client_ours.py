"""One process with our client, driven by `bench.clients`: WAY NAMESRV TOPIC COUNT IN_FLIGHT.

WAY is pipelined, sync, submit or consume; the last line of standard output is JSON: seconds, for
sync the milliseconds of each send, and for submit the microseconds of each visit.

It also runs with the client of another checkout, whose folder is in PYTHONPATH.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Final

from ledgermq.client import (
    Message,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
)
from ledgermq.client.blocking import Producer as BlockingProducer

BODY: Final = b"x" * 1024
# Sends that are not counted: connections, routes.
WARM_COUNT: Final = 200
# Messages of one burst of `submit`.
BURST: Final = 500


async def pipelined(namesrv: str, topic: str, count: int, in_flight: int) -> dict[str, object]:
    """Sends with so many messages on their way."""
    config = ProducerConfig(in_flight_max=in_flight)
    async with Producer(namesrv, config=config) as producer:
        for _ in range(WARM_COUNT):
            await producer.send(Message(topic, BODY))
        begun_s = time.perf_counter()
        results = [await producer.submit(Message(topic, BODY)) for _ in range(count)]
        await producer.flush()
        took_s = time.perf_counter() - begun_s
        for result in results:
            result.result()
    return {"seconds": took_s}


def sync(namesrv: str, topic: str, count: int) -> dict[str, object]:
    """Sends one after the other with the blocking client."""
    took_ms: list[float] = []
    with BlockingProducer(namesrv) as producer:
        for _ in range(WARM_COUNT):
            producer.send(Message(topic, BODY))
        begun_s = time.perf_counter()
        for _ in range(count):
            start_s = time.perf_counter()
            producer.send(Message(topic, BODY))
            took_ms.append((time.perf_counter() - start_s) * 1000)
        took_s = time.perf_counter() - begun_s
    return {"seconds": took_s, "ms": took_ms}


def submit(namesrv: str, topic: str, count: int) -> dict[str, object]:
    """Submits from a thread without an event loop, in bursts for which there is room."""
    visit_us: list[float] = []
    took_s = 0.0
    with BlockingProducer(namesrv, config=ProducerConfig(in_flight_max=2 * BURST)) as producer:
        for _ in range(WARM_COUNT):
            producer.send(Message(topic, BODY))
        for _ in range(count // BURST):
            begun_s = time.perf_counter()
            futures = [producer.submit(Message(topic, BODY)) for _ in range(BURST)]
            visit_us.append((time.perf_counter() - begun_s) / BURST * 1e6)
            producer.flush()
            took_s += time.perf_counter() - begun_s
            for future in futures:
                future.result()
    return {"seconds": took_s * count / (len(visit_us) * BURST), "visit_us": visit_us}


async def consume(namesrv: str, topic: str, count: int) -> dict[str, object]:
    """Consumes what is stored, as a group of one; from the first message to the last."""
    heard = 0
    first_s = last_s = 0.0
    is_done = asyncio.Event()

    async def listen(message: ReceivedMessage) -> None:
        nonlocal heard, first_s, last_s
        if not heard:
            first_s = time.perf_counter()
        if len(message.body) != len(BODY):
            raise ValueError(f"a body of {len(message.body)} bytes")
        heard += 1
        if heard == count:
            last_s = time.perf_counter()
            is_done.set()

    async with PushConsumer(
        namesrv, f"{topic}-ours-{time.time_ns()}", topic, listen, start="first"
    ):
        await asyncio.wait_for(is_done.wait(), 300.0)
    return {"seconds": last_s - first_s}


def main() -> int:
    """Runs one way."""
    way, namesrv, topic, count, in_flight = sys.argv[1:]
    if way == "pipelined":
        found = asyncio.run(pipelined(namesrv, topic, int(count), int(in_flight)))
    elif way == "sync":
        found = sync(namesrv, topic, int(count))
    elif way == "submit":
        found = submit(namesrv, topic, int(count))
    else:
        found = asyncio.run(consume(namesrv, topic, int(count)))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
