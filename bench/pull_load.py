"""Pulls of raw records: connections that each read a queue, one request on its way.

Each consumer group reads all queues, 32 messages an answer, as often as there is time: at the end
of a queue it begins again. With ``--once`` a connection rests at the end of its queue; with
``--follow`` its requests wait there for what is sent meanwhile, as consumers do, until the standard
input of the program ends. Messages are counted by the offsets that the answers' headers give;
bodies are not looked into.

Run as a process: ``python -m bench.pull_load --address 127.0.0.1:10911 --topic T``; prints one JSON
object.
"""

from __future__ import annotations

import argparse
import enum
import json
import re
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

from bench.load import read_account
from ledgermq.protocol.signature import Credentials

NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"(\d+)"')
CODE = re.compile(rb'"code":(\d+)')
COUNT_MAX = 32
# An answer of 32 messages; a larger one gets a larger buffer.
BUFFER_BYTES = 1 << 20
# Requests that are kept: signing one takes longer than sending it, and a queue is read again and
# again.
REQUESTS_MAX = 65_536
# Flags of a request: with its subscription, and to be held when there is nothing.
WITH_SUBSCRIPTION, HELD = 4, 2
HOLD_MS = 1000


class AtEnd(enum.Enum):
    """What a connection does where its queue ends."""

    AGAIN = "again"
    REST = "rest"
    FOLLOW = "follow"


@dataclass(slots=True)
class Lane:
    """One connection: the queue that it reads, the answer that it waits for, what it got."""

    connection: socket.socket
    group: str
    queue_id: int
    offset: int = 0
    buffer: bytearray = field(default_factory=lambda: bytearray(BUFFER_BYTES))
    filled: int = 0
    asked_at: float = 0.0
    messages: int = 0
    received_bytes: int = 0


def request(topic: str, lane: Lane, at_end: AtEnd, account: Credentials | None = None) -> bytes:
    """One PULL_MESSAGE frame with the subscription in it, signed by an account if there is one."""
    flags = WITH_SUBSCRIPTION | (HELD if at_end is AtEnd.FOLLOW else 0)
    fields = {
        "consumerGroup": lane.group, "topic": topic, "queueId": str(lane.queue_id),
        "queueOffset": str(lane.offset), "maxMsgNums": str(COUNT_MAX), "sysFlag": str(flags),
        "commitOffset": "0", "suspendTimeoutMillis": str(HOLD_MS), "subscription": "*",
        "subVersion": "0",
    }  # fmt: skip
    if account is not None:
        fields = account.signed(fields, b"")
    header = json.dumps(
        {"code": 11, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1,
         "serializeTypeCurrentRPC": "JSON", "version": 399},
        separators=(",", ":"),
    ).encode()  # fmt: skip
    return struct.pack(">ii", 4 + len(header), len(header)) + header


class Pulls:
    """Drives all connections until the time is over, or all of them rest."""

    def __init__(
        self,
        address: tuple[str, int],
        topic: str,
        at_end: AtEnd,
        account: Credentials | None = None,
    ) -> None:
        self._account = account
        self._address = address
        self._topic = topic
        self._at_end = at_end
        self._epoll = select.epoll()
        self._reading: dict[int, Lane] = {}
        self.lanes: list[Lane] = []
        self.latencies_ms: list[float] = []
        # By group, queue and offset.
        self._requests: dict[tuple[str, int, int], bytes] = {}

    def add(self, group: str, queue_id: int) -> None:
        """Opens a connection for one queue."""
        connection = socket.create_connection(self._address, timeout=5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lane = Lane(connection, group, queue_id)
        self.lanes.append(lane)
        self._reading[connection.fileno()] = lane
        self._epoll.register(connection.fileno(), select.EPOLLIN)

    def run(self, seconds: float) -> float:
        """Returns the seconds from the first request to the last answer."""
        start = now = time.perf_counter()
        for lane in self.lanes:
            self._ask(lane)
        if self._at_end is AtEnd.FOLLOW:
            self._epoll.register(sys.stdin.fileno(), select.EPOLLIN)
        while self._reading and now < start + seconds:
            for descriptor, _ in self._epoll.poll(0.1):
                if descriptor == sys.stdin.fileno():
                    return time.perf_counter() - start
                self._read(self._reading[descriptor])
            now = time.perf_counter()
        return now - start

    def _ask(self, lane: Lane) -> None:
        place = lane.group, lane.queue_id, lane.offset
        frame = self._requests.get(place)
        if frame is None:
            frame = request(self._topic, lane, self._at_end, self._account)
            if len(self._requests) < REQUESTS_MAX:
                self._requests[place] = frame
        lane.asked_at = time.perf_counter()
        # A request is far smaller than what a socket takes at once.
        lane.connection.sendall(frame)

    def _read(self, lane: Lane) -> None:
        count = lane.connection.recv_into(memoryview(lane.buffer)[lane.filled :])
        if not count:
            raise ConnectionError("the broker closed the connection")
        lane.filled += count
        if lane.filled < 4:
            return
        size = 4 + int.from_bytes(lane.buffer[:4], "big")
        if size > len(lane.buffer):
            lane.buffer.extend(bytes(size - len(lane.buffer)))
        if lane.filled == size:
            self._take(lane)

    def _take(self, lane: Lane) -> None:
        """Counts an answer and asks for the next."""
        header_bytes = int.from_bytes(lane.buffer[5:8], "big")
        header = bytes(lane.buffer[8 : 8 + header_bytes])
        found, code = NEXT_OFFSET.search(header), CODE.search(header)
        if found is None or code is None:
            raise RuntimeError(f"refused: {header.decode(errors='replace')}")
        self.latencies_ms.append((time.perf_counter() - lane.asked_at) * 1000)
        following = int(found[1])
        if code[1] == b"0":
            lane.messages += following - lane.offset
            lane.received_bytes += lane.filled
            lane.offset = following
        elif self._at_end is AtEnd.AGAIN:
            lane.offset = 0
        elif self._at_end is AtEnd.REST:
            self._epoll.unregister(lane.connection.fileno())
            del self._reading[lane.connection.fileno()]
            return
        lane.filled = 0
        self._ask(lane)


def at_end_of(options: argparse.Namespace) -> AtEnd:
    """What the options say of a queue's end."""
    if options.once:
        return AtEnd.REST
    return AtEnd.FOLLOW if options.follow else AtEnd.AGAIN


def main() -> int:
    """Reads and prints the sum."""
    parser = argparse.ArgumentParser(description="pull load against one broker")
    parser.add_argument("--address", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--groups", type=int, default=1, help="consumer groups, each reads it all")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--account", help="accessKey:secretKey; requests are signed")
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--once", action="store_true", help="rest at the end of a queue")
    ends.add_argument("--follow", action="store_true", help="wait for more at the end of a queue")
    options = parser.parse_args()
    host, port = options.address.rsplit(":", 1)
    account = read_account(options.account)
    pulls = Pulls((host, int(port)), options.topic, at_end_of(options), account)
    for group in range(options.groups):
        for queue_id in range(options.queues):
            pulls.add(f"bench_readers_{group}", queue_id)
    elapsed = pulls.run(options.seconds)
    latencies = sorted(pulls.latencies_ms) or [0.0]
    messages = sum(lane.messages for lane in pulls.lanes)
    result = {
        "messages": messages,
        "messages_per_second": round(messages / elapsed),
        "mb_per_second": round(sum(x.received_bytes for x in pulls.lanes) / elapsed / 1e6, 1),
    }
    for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999)):
        result[name] = round(latencies[int(len(latencies) * share)], 2)
    print(json.dumps(result))
    return 0 if messages else 1


if __name__ == "__main__":
    sys.exit(main())
