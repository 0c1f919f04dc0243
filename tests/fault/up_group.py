"""A group of three as `ledgermq up` runs it, a load on it, and the judgment over what was acked.

The load sends from several threads, one message at a time each, to whichever member takes it. A
message is acknowledged when its answer says so; what gets no answer may be there or not.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ledgermq.cli.store_walk import StoreDirectory
from tests.e2e.live_program import LiveProgram, run_ledgermq
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_first_port
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


class UpGroup:
    """The processes of one `ledgermq up`; used in a `with` block, which stops them."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._settings = (*SMALL_GROUP, *settings)
        self._ready_file = folder / "ready.json"
        self._base = free_first_port()
        self._up: LiveProgram | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException as error:
            error.add_note(self.last_words())
            self.up.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            error.add_note(self.last_words())
        if self._up is not None and self._up.is_running:
            self._up.stop()

    @property
    def up(self) -> LiveProgram:
        assert self._up is not None
        return self._up

    def start(self) -> None:
        """Starts everything and waits until a leader serves."""
        words = [
            "up", "--data", self.data, "--base-port", self._base,
            "--namesrv-port", self._base + 5, "--ready-file", self._ready_file,
            "--", *self._settings,
        ]  # fmt: skip
        self._up = LiveProgram(words, self.folder / "up.log")
        wait_until(lambda: "ready" in self.up.lines, what="ready", deadline_s=90)

    def document(self) -> dict[str, Any]:
        """What the ready file says now."""
        found: dict[str, Any] = json.loads(self._ready_file.read_text())
        return found

    def nodes(self) -> list[dict[str, Any]]:
        brokers: list[dict[str, Any]] = self.document()["brokers"]
        return brokers

    def addresses(self) -> list[str]:
        return [node["address"] for node in self.nodes()]

    def leader(self, *, not_pid: int = -1) -> dict[str, Any]:
        """Waits for the one leader, other than the process given."""

        def find() -> dict[str, Any] | None:
            leaders = [
                node
                for node in self.nodes()
                if node["role"] == "LEADER" and node["pid"] not in (None, not_pid)
            ]
            return leaders[0] if len(leaders) == 1 else None

        found = wait_until(find, what="one leader")
        assert found is not None
        return found

    def wait_until_whole(self) -> None:
        """Waits until one leads, two follow, and all of them count.

        A member that comes to a group in which others wrote already cannot know whether it has
        forgotten something: it counts again when the others committed without it, so something
        must be sent meanwhile.
        """

        wait_until(self.is_whole, what="a leader and two followers", deadline_s=60)

    def is_whole(self) -> bool:
        """Whether one leads, two follow, and all of them count."""

        def is_counted(name: str) -> bool:
            log = self.log_text(name)
            return log.count("recovering, no vote") == log.count("recovered, it votes")

        roles = sorted(node["role"] for node in self.nodes() if node["pid"])
        return roles == ["FOLLOWER", "FOLLOWER", "LEADER"] and all(map(is_counted, NODES))

    def signal(self, number: signal.Signals, *nodes: dict[str, Any]) -> None:
        for node in nodes:
            os.kill(node["pid"], number)

    def stores(self) -> list[StoreDirectory]:
        return [StoreDirectory(self.data / node / f"dledger-{node}") for node in NODES]

    def wait_until_equal(self) -> int:
        """Waits until all members have noted the same last committed entry; returns its index."""

        def find() -> int | None:
            found = {store.checkpoint() for store in self.stores()}
            return found.pop() if len(found) == 1 else None

        index = wait_until(find, what="equal replicas")
        assert index is not None
        return index

    def stop_and_verify(self) -> None:
        """Stops all in order and has the stores checked and compared.

        A leader that stops may still write; what was committed before is on all of them.
        """
        index = self.wait_until_equal()
        assert self.up.stop() == 0
        stores = [self.data / node for node in NODES]
        done = run_ledgermq("log", "verify", "--json", *stores)
        document = json.loads(done.stdout)
        assert done.returncode == 0, document
        assert min(store["committed_index"] for store in document["stores"]) >= index
        assert document["compared"]["end_position"] > document["compared"]["start_position"]

    def log_text(self, name: str) -> str:
        return (self.data / "logs" / f"{name}.log").read_text(errors="replace")

    def last_words(self) -> str:
        parts = [f"--- up\n{chr(10).join(self.up.lines[-15:])}"]
        for name in ("namesrv", *NODES):
            with contextlib.suppress(OSError):
                parts.append(f"--- {name}\n{self.log_text(name)[-4000:]}")
        return "\n".join(parts)


class Load:
    """Senders that go on until they are stopped, and what they were told."""

    def __init__(self, addresses: list[str], body_bytes: int = 200) -> None:
        self._addresses = addresses
        self._filler = b"." * body_bytes
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        # Body by queue and offset, of what was acknowledged.
        self.acked: dict[tuple[int, int], bytes] = {}
        # Bodies whose send was not answered.
        self.unknown: set[bytes] = set()
        # Refusals: code and remark of the last one of each member.
        self.refusals: dict[str, tuple[int, str | None]] = {}
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._send_all, args=(number,), daemon=True)
            for number in range(SENDERS)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(4 * ANSWER_S)

    def wait_for_more(self, count: int, deadline_s: float = 60.0) -> None:
        """Waits until so many more messages are acknowledged."""
        wanted = len(self.acked) + count
        wait_until(
            lambda: len(self.acked) >= wanted or self.failures,
            what=f"{count} more acknowledged messages",
            deadline_s=deadline_s,
        )
        assert not self.failures, self.failures

    def _send_all(self, sender: int) -> None:
        numbers = itertools.count()
        addresses = itertools.cycle(self._addresses)
        while not self._is_over.is_set():
            address = next(addresses)
            try:
                with WireClient(address, ANSWER_S) as client:
                    self._send_to(client, address, sender, numbers)
            except OSError:
                # Nobody there, or gone, or silent; the next member may lead.
                self._is_over.wait(0.05)
            except Exception as error:
                self.failures.append(repr(error))
                return

    def _send_to(
        self, client: WireClient, address: str, sender: int, numbers: itertools.count[int]
    ) -> None:
        """Sends to one member until it refuses or is gone."""
        while not self._is_over.is_set():
            body = b"%d:%d:%s" % (sender, next(numbers), self._filler)
            try:
                answer = client.send(TOPIC, sender % QUEUES, body)
            except OSError:
                self.unknown.add(body)
                raise
            if answer.code != 0:
                # The broker may answer a timeout for what it commits a moment later.
                self.unknown.add(body)
                self.refusals[address] = (answer.code, answer.remark)
                self._is_over.wait(0.05)
                return
            assert answer.ext_fields is not None
            place = (int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"]))
            with self._lock:
                assert place not in self.acked, f"{place} was given twice"
                self.acked[place] = body

    def judge(self, group: UpGroup) -> None:
        """Reads all queues of the leader: all that was acked in its place, nothing invented."""
        assert not self.failures, self.failures
        found: dict[tuple[int, int], bytes] = {}

        def is_all_there() -> bool:
            # Who leads no longer, or is not ready, closes or gives less.
            with contextlib.suppress(OSError):
                found.clear()
                found.update(self._read(group.leader()["address"]))
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
