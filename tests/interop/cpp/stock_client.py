"""The stock C++ client as the interop suite drives it.

It runs as a program of its own with the PyPI package `rocketmq` on its path, which is a thin
ctypes face over Apache's `librocketmq.so` and carries that library. Modes: send a corpus file,
consume a topic. Reports are JSON lines on standard output; tests/interop/README.md describes them.
Nothing of the suite is imported here.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import queue
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from rocketmq.client import (  # type: ignore[import-not-found]  # installed for it alone
    Message,
    Producer,
    PushConsumer,
    SendStatus,
)
from rocketmq.ffi import dll  # type: ignore[import-not-found]  # likewise

SEND_TIMEOUT_MS = 15_000
SEND_ATTEMPTS_MAX = 5
SEND_BODY_BYTES_MAX = 4 * 1024 * 1024
# The C face can look a property up, but not list them.
PROPERTY_NAMES = (
    "KEYS", "TAGS", "client", "seq", "size", "digest", "note", "equation", "long", "UNIQ_KEY",
)  # fmt: skip

# The package reads a body as a C string, which ends at the first zero byte; this reads the address.
_body_address = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(("GetMessageBody", dll))
_say_lock = threading.Lock()
_never = threading.Event()


class Item(NamedTuple):
    """One message of a corpus file: 4 head size, head, 4 body size, body."""

    seq: int
    lane: int
    tags: str
    keys: str
    properties: dict[str, str]
    body: bytes


def say(**line: object) -> None:
    """Print one report line."""
    text = json.dumps(line, ensure_ascii=False)
    with _say_lock:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def read_items(path: str) -> Iterator[Item]:
    """Yield the messages of a corpus file in order."""
    with open(path, "rb") as file:
        while size := file.read(4):
            head = file.read(struct.unpack(">i", size)[0]).decode()
            body = file.read(struct.unpack(">i", file.read(4))[0])
            seq, lane, tags, keys, *rest = head.split("\n")
            properties = dict(line.split("=", 1) for line in rest)
            yield Item(int(seq), int(lane), tags, keys, properties, body)


def send(options: argparse.Namespace) -> None:
    """Send the corpus with one thread for each queue, so that a queue keeps the file's order."""
    producer = Producer(
        options.group, timeout=SEND_TIMEOUT_MS, max_message_size=SEND_BODY_BYTES_MAX
    )
    producer.set_namesrv_addr(options.namesrv)
    sign(producer)
    producer.start()
    inboxes: list[queue.Queue[Item | None]] = [queue.Queue(16) for _ in range(options.queues)]
    results: list[tuple[int, int]] = []

    def drain(inbox: queue.Queue[Item | None]) -> None:
        sent = failed = 0
        while (item := inbox.get()) is not None:
            if send_one(producer, options.topic, item):
                sent += 1
            else:
                failed += 1
        results.append((sent, failed))

    threads = [threading.Thread(target=drain, args=(inbox,)) for inbox in inboxes]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for item in read_items(options.corpus):
        inboxes[item.lane % options.queues].put(item)
    for inbox, thread in zip(inboxes, threads, strict=True):
        inbox.put(None)
        thread.join()
    seconds = time.monotonic() - begin
    producer.shutdown()
    say(
        event="done",
        count=sum(sent for sent, _ in results),
        failed=sum(failed for _, failed in results),
        seconds=seconds,
    )


def sign(client: Producer | PushConsumer) -> None:
    """Gives the client the account of the environment, if there is one."""
    access_key = os.environ.get("INTEROP_ACCESS_KEY")
    if access_key:
        client.set_session_credentials(access_key, os.environ["INTEROP_SECRET_KEY"], "ALIYUN")


def send_one(producer: Producer, topic: str, item: Item) -> bool:
    """Send one message to the queue of its lane, again when it is refused."""
    for attempt in range(1, SEND_ATTEMPTS_MAX + 1):
        message = Message(topic)
        message.set_keys(item.keys)
        message.set_tags(item.tags)
        for name, value in item.properties.items():
            message.set_property(name, value)
        dll.SetByteMessageBody(message, item.body, len(item.body))
        try:
            result = producer.send_orderly(message, item.lane, retry_times=0)
        except Exception as refused:
            say(event="refused", seq=item.seq, reason=str(refused))
        else:
            if result.status == SendStatus.OK:
                say(event="sent", seq=item.seq, attempts=attempt, queue=None, offset=result.offset)
                return True
            say(event="refused", seq=item.seq, reason=result.status.name)
        _never.wait(0.2 * attempt)
    return False


def consume(options: argparse.Namespace) -> None:
    """Consume until `expect` different messages came, or none came for `idle` seconds."""
    consumer = PushConsumer(options.group, orderly=options.orderly)
    consumer.set_namesrv_addr(options.namesrv)
    sign(consumer)
    consumer.set_instance_name(options.group)
    consumer.set_thread_count(4)
    lock = threading.Lock()
    places: set[tuple[int, int]] = set()
    begin = last = time.monotonic()

    def take(message: Any) -> None:
        nonlocal last
        report(message)
        with lock:
            places.add((message.queue_id, message.queue_offset))
            last = time.monotonic()

    consumer.subscribe(options.topic, take)
    consumer.start()
    say(event="ready")
    while len(places) < options.expect and time.monotonic() - last < options.idle:
        _never.wait(0.02)
    _never.wait(1)
    consumer.shutdown()
    say(event="done", count=len(places), failed=0, seconds=last - begin)


def report(message: Any) -> None:
    """Report one received message; its length is what its property `size` says."""
    properties = {}
    for name in PROPERTY_NAMES:
        value = message.get_property(name)
        if value:
            properties[name] = value.decode("utf-8", "replace")
    size = int(properties.get("size", "0"))
    body = ctypes.string_at(_body_address(message._handle), size)
    say(
        event="message",
        queue=message.queue_id,
        offset=message.queue_offset,
        again=message.reconsume_times,
        size=size,
        sha256=hashlib.sha256(body).hexdigest(),
        properties=properties,
    )


def main() -> None:
    """Read the command line and run one mode."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("send", "consume"))
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--corpus")
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--expect", type=int, default=1 << 30)
    parser.add_argument("--idle", type=int, default=60)
    parser.add_argument("--orderly", default="")
    options = parser.parse_args()
    options.orderly = bool(options.orderly)
    if options.mode == "send":
        send(options)
    else:
        consume(options)


if __name__ == "__main__":
    main()
