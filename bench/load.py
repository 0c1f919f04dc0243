"""A cheap load program: pre-built send frames, pipelined over a few connections.

It costs the machine as little as Python allows, so that what is measured is the broker: frames
are encoded once before the clock starts, answers are split by their length prefix and counted,
and only their status is looked at. Latency is measured for each read chunk (answers of one
connection come in commit order, so the oldest outstanding frame is the one that is answered).

Run as a process: ``python -m bench.load --address 127.0.0.1:10911 --topic T --seconds 5``; prints
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ledgermq.protocol.signature import Credentials

# Frames kept ready, fewer when they are large; more than any sensible number in flight, so that no
# opaque id is in use twice.
FRAME_POOL: Final = 8192
FRAME_POOL_MIN: Final = 64
FRAME_POOL_BYTES: Final = 1 << 28
READ_BYTES: Final = 262_144
_LENGTH = struct.Struct(">i")


@dataclass(slots=True)
class Lane:
    """One connection: what it may still send, what it waits for."""

    connection: socket.socket
    in_flight_max: int
    in_flight: int = 0
    unsent: bytes = b""
    received: bytes = b""
    sent_at: deque[tuple[float, int]] = field(default_factory=deque)


def build_frames(
    topic: str,
    queues: int,
    body_bytes: int,
    batch: int = 0,
    topics: int = 1,
    account: Credentials | None = None,
) -> list[bytes]:
    """Encodes a pool of send requests (SEND_MESSAGE_V2, or SEND_BATCH_MESSAGE when batch > 0).

    Several topics bear their numbers behind the name, and get their messages in turns. `account`
    signs them; None: they are unsigned.
    """
    now_ms = int(time.time() * 1000)
    names = [topic] if topics == 1 else [f"{topic}{number}" for number in range(topics)]
    frames = []
    room = FRAME_POOL_BYTES // (body_bytes * max(1, batch))
    for number in range(max(FRAME_POOL_MIN, min(FRAME_POOL, room))):
        body = (b"%08d" % number) + bytes(33 + (i % 90) for i in range(body_bytes - 8))
        properties = f"UNIQ_KEY\x01C0A80001{number:024X}\x02WAIT\x01true\x02TAGS\x01TagA"
        if batch:
            inner = properties.encode()
            size = 4 * 5 + len(body) + 2 + len(inner)
            head = struct.pack(">iiiii", size, 0, 0, 0, len(body))
            body = (head + body + struct.pack(">h", len(inner)) + inner) * batch
            properties = "WAIT\x01true"
        ext = {
            "a": "bench_group", "b": names[number % topics], "c": "TBW102", "d": "4",
            "e": str(number // topics % queues), "f": "0", "g": str(now_ms), "h": "0",
            "i": properties, "j": "0", "k": "false", "l": "0", "m": "true" if batch else "false",
        }  # fmt: skip
        if account is not None:
            ext = account.signed(ext, body)
        header = json.dumps(
            {
                "code": 320 if batch else 310, "extFields": ext, "flag": 0, "language": "JAVA",
                "opaque": number, "serializeTypeCurrentRPC": "JSON", "version": 399,
            },
            separators=(",", ":"),
        ).encode()  # fmt: skip
        frames.append(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
    return frames


def read_account(words: str | None) -> Credentials | None:
    """Reads the option --account."""
    if words is None:
        return None
    access_key, _, secret_key = words.partition(":")
    return Credentials(access_key=access_key, secret_key=secret_key)


class Load:
    """Drives all lanes until the deadline, then drains what is in flight."""

    def __init__(self, address: tuple[str, int], frames: list[bytes], lanes: int, depth: int):
        self._frames = frames
        self._next = 0
        self._epoll = select.epoll()
        self._lanes: dict[int, Lane] = {}
        self.latencies_ms: list[tuple[float, int]] = []
        self.answered = 0
        self.refused = 0
        self.first_refusal = ""
        for _ in range(lanes):
            connection = socket.create_connection(address, timeout=5)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
            self._lanes[connection.fileno()] = Lane(connection, depth)
            self._epoll.register(connection.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def run(self, seconds: float) -> float:
        """Returns the seconds from the first send to the last answer; may be called again."""
        for descriptor in self._lanes:
            self._epoll.modify(descriptor, select.EPOLLIN | select.EPOLLOUT)
        start = time.perf_counter()
        deadline = start + seconds
        sending = True
        while True:
            now = time.perf_counter()
            if sending and now >= deadline:
                sending = False
            drained = not any(lane.in_flight for lane in self._lanes.values())
            if not sending and (drained or now > deadline + 10):
                break
            for descriptor, events in self._epoll.poll(0.2):
                lane = self._lanes[descriptor]
                if events & select.EPOLLIN:
                    self._read(lane)
                if sending or lane.unsent:
                    self._write(lane, sending)
        return time.perf_counter() - start

    def _write(self, lane: Lane, sending: bool) -> None:
        room = lane.in_flight_max - lane.in_flight
        # Top up in runs of at least a quarter window: one system call for many frames.
        if sending and not lane.unsent and room * 4 >= lane.in_flight_max:
            first = self._next % len(self._frames)
            chosen = self._frames[first : first + room]
            self._next += len(chosen)
            lane.in_flight += len(chosen)
            lane.sent_at.append((time.perf_counter(), len(chosen)))
            lane.unsent = b"".join(chosen)
        if lane.unsent:
            try:
                sent = lane.connection.send(lane.unsent)
            except BlockingIOError:
                return
            lane.unsent = lane.unsent[sent:]
        want = select.EPOLLIN | (select.EPOLLOUT if lane.unsent else 0)
        self._epoll.modify(lane.connection.fileno(), want)

    def _read(self, lane: Lane) -> None:
        try:
            chunk = lane.connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data = lane.received + chunk if lane.received else chunk
        offset, end, count = 0, len(data), 0
        unpack = _LENGTH.unpack_from
        while end - offset >= 4:
            size = 4 + unpack(data, offset)[0]
            if end - offset < size:
                break
            offset += size
            count += 1
        whole, lane.received = data[:offset], data[offset:]
        good = whole.count(b'"code":0,')
        if good != count:
            self.refused += count - good
            self.first_refusal = self.first_refusal or whole[:400].decode(errors="replace")
        self.answered += good
        lane.in_flight -= count
        self._settle(lane, count)

    def _settle(self, lane: Lane, count: int) -> None:
        now = time.perf_counter()
        while count and lane.sent_at:
            sent, outstanding = lane.sent_at[0]
            taken = min(count, outstanding)
            self.latencies_ms.append(((now - sent) * 1000, taken))
            count -= taken
            if taken == outstanding:
                lane.sent_at.popleft()
            else:
                lane.sent_at[0] = (sent, outstanding - taken)


def percentile(latencies_ms: list[tuple[float, int]], share: float) -> float:
    """The latency below which `share` of the answers lie; 0 without answers."""
    ordered = sorted(latencies_ms)
    limit = share * sum(count for _, count in ordered)
    seen = 0
    for latency, count in ordered:
        seen += count
        if seen >= limit:
            return latency
    return 0.0


def main() -> int:
    """Parses the arguments, runs the load and prints one JSON object."""
    parser = argparse.ArgumentParser(description="pipelined send load against one broker")
    parser.add_argument("--address", required=True, help="host:port of the leader")
    parser.add_argument("--topic", default="BenchmarkTest")
    parser.add_argument("--topics", type=int, default=1, help="more than one: TOPIC0, TOPIC1, …")
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=0, help="messages in a request; 0 = single")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=64, help="requests in flight, each")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--account", help="accessKey:secretKey; requests are signed")
    options = parser.parse_args()
    host, port = options.address.rsplit(":", 1)
    frames = build_frames(
        options.topic,
        options.queues,
        options.body_bytes,
        options.batch,
        options.topics,
        read_account(options.account),
    )
    load = Load((host, int(port)), frames, options.connections, options.in_flight)
    cpu = time.process_time()
    elapsed = load.run(options.seconds)
    messages = load.answered * max(1, options.batch)
    result = {
        "messages": messages,
        "seconds": round(elapsed, 3),
        "messages_per_second": round(messages / elapsed),
        "mb_per_second": round(messages * options.body_bytes / elapsed / 1e6, 1),
        "refused": load.refused,
        "first_refusal": load.first_refusal,
        "p50_ms": round(percentile(load.latencies_ms, 0.50), 2),
        "p99_ms": round(percentile(load.latencies_ms, 0.99), 2),
        "p999_ms": round(percentile(load.latencies_ms, 0.999), 2),
        "load_cpu_us_per_message": round((time.process_time() - cpu) * 1e6 / max(1, messages), 2),
    }
    print(json.dumps(result))
    return 0 if load.answered else 1


if __name__ == "__main__":
    sys.exit(main())
