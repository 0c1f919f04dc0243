"""Pulls of raw records: a few connections read all queues of a topic, again and again.

One request in flight for each queue and connection, 32 messages an answer. Counts messages by the
offsets that the answers' headers give; bodies are not looked into. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass

NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"(\d+)"')
CODE = re.compile(rb'"code":(\d+)')
COUNT_MAX = 32


@dataclass(slots=True)
class Tally:
    """What one reader got."""

    messages: int = 0
    received_bytes: int = 0
    latencies_ms: tuple[float, ...] = ()


def request(topic: str, queue_id: int, offset: int, opaque: int) -> bytes:
    """One PULL_MESSAGE frame with the subscription in it, not to be held."""
    fields = {
        "consumerGroup": "bench_readers", "topic": topic, "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": str(COUNT_MAX), "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    header = json.dumps(
        {"code": 11, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque,
         "serializeTypeCurrentRPC": "JSON", "version": 399},
        separators=(",", ":"),
    ).encode()  # fmt: skip
    return struct.pack(">ii", 4 + len(header), len(header)) + header


def read_frame(connection: socket.socket, buffer: bytearray) -> memoryview:
    """Reads one frame into the buffer; returns it without its length."""
    view = memoryview(buffer)
    _read_exactly(connection, view[:4])
    size = int.from_bytes(view[:4], "big")
    _read_exactly(connection, view[:size])
    return view[:size]


def _read_exactly(connection: socket.socket, view: memoryview) -> None:
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the broker closed the connection")
        view = view[count:]


def read_queue(address: tuple[str, int], topic: str, queue_id: int, until_s: float) -> Tally:
    """Reads one queue over one connection until the time is over."""
    tally, latencies = Tally(), []
    buffer = bytearray(4 * 1024 * 1024)
    offset = 0
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (now := time.perf_counter()) < until_s:
            connection.sendall(request(topic, queue_id, offset, 1))
            frame = read_frame(connection, buffer)
            latencies.append((time.perf_counter() - now) * 1000)
            header_bytes = int.from_bytes(frame[1:4], "big")
            header = bytes(frame[4 : 4 + header_bytes])
            found, code = NEXT_OFFSET.search(header), CODE.search(header)
            assert found is not None and code is not None, header
            following = int(found[1])
            if code[1] == b"0":
                tally.messages += following - offset
                tally.received_bytes += len(frame)
                offset = following
            else:
                offset = 0
    tally.latencies_ms = tuple(latencies)
    return tally


def main() -> int:
    """Reads in threads (they wait in the kernel) and prints the sum."""
    parser = argparse.ArgumentParser(description="pull load against one broker")
    parser.add_argument("--address", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    host, port = options.address.rsplit(":", 1)
    start = time.perf_counter()
    tallies: list[Tally] = []

    def read(queue_id: int) -> None:
        end = start + options.seconds
        tallies.append(read_queue((host, int(port)), options.topic, queue_id, end))

    readers = [threading.Thread(target=read, args=(i,)) for i in range(options.queues)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    elapsed = time.perf_counter() - start
    latencies = sorted(latency for tally in tallies for latency in tally.latencies_ms)
    messages = sum(tally.messages for tally in tallies)
    result = {
        "messages": messages,
        "messages_per_second": round(messages / elapsed),
        "mb_per_second": round(sum(t.received_bytes for t in tallies) / elapsed / 1e6, 1),
        "p50_ms": round(latencies[len(latencies) // 2], 2),
        "p99_ms": round(latencies[len(latencies) * 99 // 100], 2),
    }
    print(json.dumps(result))
    return 0 if messages else 1


if __name__ == "__main__":
    sys.exit(main())
