"""A group of three as `ledgermq up` runs it, a load on it, and the judgment over what was acked.

The load sends from several threads, one message at a time each, to whichever member takes it. A
message is acknowledged when its answer says so; what gets no answer may be there or not.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from pathlib import Path
from typing import Protocol

from ledgermq.cli.store_walk import StoreDirectory
from tests.e2e.up_cluster import UpCluster
from tests.e2e.wire_client import WireClient
from tests.processes import run_ledgermq
from tests.senders import Senders
from tests.waiting import wait_until

TOPIC = "Load"
QUEUES = 4
NODES = ("n0", "n1", "n2")
SMALL_GROUP = (
    "mappedFileSizeCommitLog=4194304",
    "mappedFileSizeDLedgerIndex=131072",
    "mappedFileSizeConsumeQueue=20000",
    "maxMessageSize=1048576",
    "maxHashSlotNum=1000",
    "maxIndexNum=4000",
)
SENDERS = 4
ANSWER_S = 3.0


def small_group(folder: Path, *settings: str) -> UpCluster:
    """A group of three whose files are soon full."""
    return UpCluster(folder, len(NODES), (*SMALL_GROUP, *settings))


def addresses(group: UpCluster) -> list[str]:
    """Where clients reach the members."""
    return [node["address"] for node in group.nodes()]


def is_whole(group: UpCluster) -> bool:
    """Whether one leads, two follow, and all of them count."""

    return group.has_all() and all(counts(group.log_text(name)) for name in NODES)


def counts(log: str) -> bool:
    """Whether the member that wrote this log votes and counts."""
    return log.count("recovering, no vote") == log.count("recovered, it votes")


def wait_until_whole(group: UpCluster) -> None:
    """Waits until one leads, two follow, and all of them count.

    A member that comes to a group in which others wrote already cannot know whether it has
    forgotten something: it counts again when the others committed without it, so something must be
    sent meanwhile.
    """
    wait_until(lambda: is_whole(group), what="a leader and two followers", deadline_s=60)


class Group(Protocol):
    """Three members that run, their stores in a directory of each node's name."""

    data: Path

    def stop(self) -> int:
        """Stops all processes in order; returns 0 when all went well."""


def stop_and_verify(group: Group) -> None:
    """Stops all in order and has the stores checked and compared.

    A leader that stops may still write; what was committed before is on all of them.
    """
    members = [StoreDirectory(group.data / node / f"dledger-{node}") for node in NODES]

    def find_committed() -> int | None:
        """The last committed entry that all members have noted."""
        found = {member.checkpoint() for member in members}
        return found.pop() if len(found) == 1 else None

    index = wait_until(find_committed, what="equal replicas")
    assert index is not None
    assert group.stop() == 0
    done = run_ledgermq("log", "verify", "--json", *(group.data / node for node in NODES))
    document = json.loads(done.stdout)
    assert done.returncode == 0, document
    assert min(store["committed_index"] for store in document["stores"]) >= index
    assert document["compared"]["end_position"] > document["compared"]["start_position"]


class Load(Senders):
    """Senders, and what they were told."""

    def __init__(self, addresses: list[str], body_bytes: int = 200, *, rest_s: float = 0.0) -> None:
        """Begins to send messages of this size; each sender rests between two of them."""
        self._filler = b"." * body_bytes
        self._rest_s = rest_s
        self._lock = threading.Lock()
        self._numbers = [itertools.count() for _ in range(SENDERS)]
        # Body by queue and offset, of what was acknowledged.
        self.acked: dict[tuple[int, int], bytes] = {}
        # Bodies whose send was not answered.
        self.unknown: set[bytes] = set()
        # Refusals: code and remark of the last one of each member.
        self.refusals: dict[str, tuple[int, str | None]] = {}
        super().__init__(addresses, SENDERS, answer_s=ANSWER_S, retry_s=0.05)

    @property
    def taken_count(self) -> int:
        return len(self.acked)

    def send_to(self, address: str, sender: int) -> None:
        with WireClient(address, ANSWER_S) as client:
            while not self.is_over.is_set():
                body = b"%d:%d:%s" % (sender, next(self._numbers[sender]), self._filler)
                try:
                    answer = client.send(TOPIC, sender % QUEUES, body)
                except OSError:
                    self.unknown.add(body)
                    raise
                if answer.code != 0:
                    # The broker may answer a timeout for what it commits a moment later.
                    self.unknown.add(body)
                    self.refusals[address] = (answer.code, answer.remark)
                    return
                assert answer.ext_fields is not None
                place = (int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"]))
                with self._lock:
                    assert place not in self.acked, f"{place} was given twice"
                    self.acked[place] = body
                if self._rest_s:
                    self.is_over.wait(self._rest_s)

    def judge(self, group: UpCluster) -> None:
        """Reads all queues of the leader: all that was acked in its place, nothing invented."""
        assert not self.failures, self.failures
        found: dict[tuple[int, int], bytes] = {}

        def is_all_there() -> bool:
            # Who leads no longer, or is not ready, closes or gives less.
            with contextlib.suppress(OSError):
                found.clear()
                found.update(self._read(group.wait_for_leader()["address"]))
            return self._lost_count(found) == 0

        try:
            wait_until(is_all_there, what="all that was acknowledged")
        except AssertionError as error:
            error.add_note(f"{self._lost_count(found)} of {len(self.acked)} are not there")
            raise
        others = [body for place, body in found.items() if place not in self.acked]
        assert set(others) <= self.unknown
        assert len(found) == len(set(found.values())), "a message is stored twice"

    def _lost_count(self, found: dict[tuple[int, int], bytes]) -> int:
        return sum(found.get(place) != body for place, body in self.acked.items())

    def _read(self, address: str) -> dict[tuple[int, int], bytes]:
        found: dict[tuple[int, int], bytes] = {}
        with WireClient(address) as client:
            for queue_id in range(QUEUES):
                records = client.read_queue(TOPIC, queue_id)
                assert [record.queue_offset for record in records] == list(range(len(records)))
                found |= {(queue_id, record.queue_offset): record.body for record in records}
        return found
