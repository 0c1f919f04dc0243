"""A queue in memory that is pulled from, as cluster, broker and connection in one."""

import itertools
import random
from typing import Any

from ledgermq.client import MessageQueue
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader
from ledgermq.protocol.record import decode_record, encode_record
from ledgermq.spark.cluster import PassingError
from ledgermq.spark.partitions import QueueRange
from ledgermq.spark.pulling import RangePull
from ledgermq.spark.read_places import ReadFrom
from ledgermq.spark.wire import LostError

HOST = (b"\x7f\0\0\1", 1)


class Broker:
    """A queue in memory; as cluster and as connection, which may be lost at any answer."""

    def __init__(self, count: int, *, per_answer: int, seed: int = 0, loss: float = 0.0) -> None:
        self.records = [
            encode_record(
                b"T", 0, 0, n, n, 0, 0, HOST, 0, HOST, 0, 0, b"x" * (n % 90), b"TAGS\x01A\x02"
            )
            for n in range(count)
        ]
        self.min_offset = 0
        self.per_answer = per_answer
        self.timeout_s = 0.3
        self.address = "b:1"
        # What a new leader has dispatched so far.
        self.max_offset = count
        self.wanted_tags = lambda n: True
        self.forgotten = 0
        self.pulls = 0
        # By broker id: this one is the leader.
        self.group: dict[int, Broker] = {0: self}
        self._draws = random.Random(seed)
        self._loss = loss
        self._requests: dict[int, RemotingCommand] = {}
        self._numbers = itertools.count()

    def members(self, queue: MessageQueue) -> dict[int, str]:
        assert queue == MessageQueue("T", "a", 0)
        return {broker_id: f"b:{broker_id + 1}" for broker_id in self.group}

    def wire_to_member(self, queue: MessageQueue, broker_id: int) -> "Broker":
        assert queue == MessageQueue("T", "a", 0)
        broker = self.group.get(broker_id)
        if broker is None or self._draws.random() < self._loss:
            raise PassingError("no leader")
        return broker

    def forget(self, queue: MessageQueue, broker_id: int = 0) -> None:
        self.group[broker_id].forgotten += 1
        self.group[broker_id]._requests.clear()

    def send(self, command: RemotingCommand) -> int:
        if self._draws.random() < self._loss:
            raise LostError("gone")
        number = next(self._numbers)
        self._requests[number] = command
        return number

    def receive(self, number: int) -> RemotingCommand:
        if self._draws.random() < self._loss:
            raise LostError("gone")
        self.pulls += 1
        command = self._requests.pop(number)
        header = command.header(PullMessageRequestHeader)
        return self.answer(command, header.queue_offset, header.max_msg_nums)

    def answer(self, command: RemotingCommand, offset: int, count: int) -> RemotingCommand:
        code, next_offset, body, remark = ResponseCode.SUCCESS, offset, b"", ""
        if offset < self.min_offset:
            code, next_offset = ResponseCode.PULL_OFFSET_MOVED, self.min_offset
        elif offset >= self.max_offset:
            code = ResponseCode.PULL_NOT_FOUND
        else:
            stop = min(self.max_offset, offset + min(count, self.per_answer))
            found = [n for n in range(offset, stop) if self.wanted_tags(n)]
            body, next_offset = b"".join(self.records[n] for n in found), stop
            if not found:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
                remark = "NO_MATCHED_MESSAGE"
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=next_offset,
            min_offset=self.min_offset,
            max_offset=self.max_offset,
        )
        return command.response(code, remark, fields, body)


def pull(
    broker: Any,
    start: int,
    end: int,
    *,
    fetch_bytes: int = 20_000,
    tags: frozenset[str] = frozenset(),
    fails: bool = True,
    read_from: ReadFrom = ReadFrom.LEADER,
) -> list[int]:
    """Queue offsets that come, with the bounds of each run checked."""
    wanted = QueueRange(topic="T", broker_name="a", queue_id=0, start_offset=start, end_offset=end)
    found: list[int] = []
    reached = start
    for run in RangePull(
        broker,
        wanted,
        group="g",
        tags=tags,
        fetch_bytes=fetch_bytes,
        fails_on_data_loss=fails,
        read_from=read_from,
    ).runs():
        assert run.start_offset >= reached and run.end_offset <= end
        reached, at = run.end_offset, 0
        while at < len(run.records):
            record = decode_record(run.records, at)
            at += record.size_bytes
            assert run.start_offset <= record.queue_offset
            found.append(record.queue_offset)
    return found
