"""What a leader answered, and its death by ``kill -9`` the moment after: the next one knows it.

python -m tests.fault.committed_state [--rounds 100]

Each round makes a topic, takes a lock, commits offsets and waits for those answers only; the leader
is killed when the last one is read. Prints how many rounds there were and what had fallen back.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ledgermq.cli.remote import AdminError, Remote
from ledgermq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    CreateTopicRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.e2e.up_cluster import UpCluster
from tests.fault.up_group import TOPIC, small_group, wait_until_whole
from tests.waiting import wait_until

GROUP = "readers"
QUEUES = 4
BROKER = "broker-a"


class Leader:
    """The member that leads now, asked by its address."""

    def __init__(self, remote: Remote, address: str) -> None:
        self._remote = remote
        self.address = address

    def commit(self, queue_id: int, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset
        )
        self._remote.call(self.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def committed(self, queue_id: int) -> int:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=queue_id
        )
        answer = self._remote.call(self.address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        return answer.header(QueryConsumerOffsetResponseHeader).offset

    def lock(self, round_number: int, client_id: str) -> bool:
        queue = MessageQueue(TOPIC, BROKER, round_number)
        body = LockBatchRequestBody(GROUP, client_id, [queue]).encode()
        answer = self._remote.call(self.address, RequestCode.LOCK_BATCH_MQ, body=body)
        return queue in LockBatchResponseBody.decode(answer.body).lock_ok_mq_set

    def make_topic(self, name: str, queues: int = 1) -> None:
        header = CreateTopicRequestHeader(
            topic=name,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        self._remote.call(self.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def topics(self) -> bytes:
        return self._remote.call(self.address, RequestCode.GET_ALL_TOPIC_CONFIG).body


def run(folder: Path, rounds: int, told: Callable[[str], None]) -> list[str]:
    """Runs the rounds on a group of three; returns what had fallen back."""
    lost: list[str] = []
    with small_group(folder) as group, Remote(group.name_server) as remote:
        for number in range(rounds):
            wait_until_whole(group)
            lost += run_round(group, remote, number)
            told(f"round {number + 1} of {rounds}: {len(lost)} fell back")
    return lost


def run_round(group: UpCluster, remote: Remote, number: int) -> list[str]:
    """One death of a leader; returns what the next one does not know."""
    node = group.wait_for_leader()
    leader, topic = Leader(remote, node["address"]), f"Made-{number}"
    leader.make_topic(TOPIC, QUEUES)
    leader.make_topic(topic)
    assert leader.lock(number, "first")
    for queue_id in range(QUEUES):
        leader.commit(queue_id, 1000 + number)
    pid = node["pid"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    after = Leader(remote, group.wait_for_leader(not_pid=pid)["address"])
    wait_until(lambda: serves(after), what="the next leader")
    lost = [
        f"round {number}: offset {offset} of queue {queue_id}"
        for queue_id in range(QUEUES)
        if (offset := after.committed(queue_id)) != 1000 + number
    ]
    if after.lock(number, "second"):
        lost.append(f"round {number}: the lock")
    if topic.encode() not in after.topics():
        lost.append(f"round {number}: the topic")
    return lost


def serves(leader: Leader) -> bool:
    """Whether it answers what only a leader answers."""
    try:
        leader.lock(65_535, "a client that asks")
    except AdminError:
        return False
    return True


def say(line: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 when something had fallen back."""
    parser = argparse.ArgumentParser(description="answered, killed, and known by the next leader")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args(words)
    begun_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ledgermq-committed-") as folder:
        lost = run(Path(folder), options.rounds, say)
    for line in lost:
        say(line)
    took_s = time.perf_counter() - begun_s
    say(f"{options.rounds} leaders killed, {len(lost)} answers fell back, in {took_s:.0f} s")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
