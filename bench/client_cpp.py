"""One process with the PyPI package `rocketmq`: WAY NAMESRV TOPIC COUNT IN_FLIGHT.

The same ways and the same last line as in client_ours.py, and `threads`: sends one after the other
in each of IN_FLIGHT threads. The package comes by PYTHONPATH; nothing of ours is imported.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, Final

from rocketmq.client import (  # type: ignore[import-not-found]  # installed for it alone
    Message,
    Producer,
    PushConsumer,
)

BODY: Final = "x" * 1024
WARM_COUNT: Final = 200
END_S: Final = 300.0


def message_of(topic: str) -> Any:
    """A message of its own for each send: the library writes an id into it."""
    message = Message(topic)
    message.set_body(BODY)
    return message


def started(namesrv: str, topic: str) -> Any:
    """A producer that has its connections and routes."""
    producer = Producer(f"bench-{time.time_ns()}", timeout=15_000)
    producer.set_namesrv_addr(namesrv)
    producer.start()
    for _ in range(WARM_COUNT):
        producer.send_sync(message_of(topic))
    return producer


def pipelined(namesrv: str, topic: str, count: int, in_flight: int) -> dict[str, object]:
    """`send_async` with so many messages on their way."""
    producer = started(namesrv, topic)
    room = threading.Semaphore(in_flight)
    failures: list[str] = []

    def done(result: Any) -> None:
        room.release()

    def failed(error: Exception) -> None:
        failures.append(str(error))
        room.release()

    begun_s = time.perf_counter()
    # The library reads a message after send_async has returned.
    kept = [message_of(topic) for _ in range(count)]
    for message in kept:
        room.acquire()
        producer.send_async(message, done, failed)
    for _ in range(in_flight):
        room.acquire(timeout=END_S)
    took_s = time.perf_counter() - begun_s
    return {"seconds": took_s, "failed": len(failures), "failure": (failures or [""])[0]}


def threads(namesrv: str, topic: str, count: int, in_flight: int) -> dict[str, object]:
    """`send_sync` in so many threads."""
    producer = started(namesrv, topic)
    each = count // in_flight

    def send() -> None:
        for _ in range(each):
            producer.send_sync(message_of(topic))

    senders = [threading.Thread(target=send) for _ in range(in_flight)]
    begun_s = time.perf_counter()
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    took_s = time.perf_counter() - begun_s
    return {"seconds": took_s * count / (each * in_flight)}


def sync(namesrv: str, topic: str, count: int) -> dict[str, object]:
    """Sends one after the other."""
    producer = started(namesrv, topic)
    took_ms: list[float] = []
    begun_s = time.perf_counter()
    for _ in range(count):
        start_s = time.perf_counter()
        producer.send_sync(message_of(topic))
        took_ms.append((time.perf_counter() - start_s) * 1000)
    return {"seconds": time.perf_counter() - begun_s, "ms": took_ms}


def consume(namesrv: str, topic: str, count: int) -> dict[str, object]:
    """Consumes what is stored, as a group of one; from the first message to the last."""
    times_s: list[float] = []
    is_done = threading.Event()

    def listen(message: Any) -> None:
        if len(message.body) != len(BODY):
            raise ValueError(f"a body of {len(message.body)} bytes")
        times_s.append(time.perf_counter())
        if len(times_s) >= count:
            is_done.set()

    consumer = PushConsumer(f"{topic}-cpp-{time.time_ns()}")
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, listen)
    consumer.start()
    if not is_done.wait(END_S):
        raise SystemExit(f"{len(times_s)} of {count} messages came within {END_S} s")
    return {"seconds": times_s[count - 1] - times_s[0]}


def main() -> int:
    """Runs one way."""
    way, namesrv, topic, count, in_flight = sys.argv[1:]
    if way == "pipelined":
        found = pipelined(namesrv, topic, int(count), int(in_flight))
    elif way == "threads":
        found = threads(namesrv, topic, int(count), int(in_flight))
    elif way == "sync":
        found = sync(namesrv, topic, int(count))
    else:
        found = consume(namesrv, topic, int(count))
    print(json.dumps(found), flush=True)
    # The library's own threads do not always end.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
