"""A cluster inside this process whose store directories a test reads and damages."""

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any, Self

from ledgermq.broker.storage.state_files import parse_tolerant
from ledgermq.commitlog.checkpoint import Checkpoints, DispatchMark
from ledgermq.dledger.store import RealFileSystem
from ledgermq.protocol.codes import RequestCode
from ledgermq.testing import LedgerCluster
from ledgermq.testing.settings import Setting
from tests.e2e.wire_client import WireClient
from tests.waiting import wait_until


class KeptCluster:
    """A cluster with a topic, a group and an offset, and its directories.

    Attributes:
        cluster: of one or three nodes.
    """

    def __init__(self, nodes: int, folder: Path, **settings: Setting) -> None:
        # Where the cluster makes its own folder.
        former, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            self.cluster = LedgerCluster(nodes, settings=settings)
            self.cluster.start()
        finally:
            tempfile.tempdir = former
        [self.folder] = folder.glob("ledgermq-*")

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.cluster.nodes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    def root(self, node: str = "n0") -> Path:
        return self.folder / node

    def config(self, name: str, node: str = "n0") -> Path:
        """A state file."""
        return self.root(node) / "config" / name

    def read(self, name: str, node: str = "n0") -> Any:
        return parse_tolerant(self.config(name, node).read_text())

    def client(self, node: str | None = None) -> WireClient:
        return WireClient(self.cluster.address(node or self.cluster.wait_for_leader()))

    def ask(self, code: RequestCode, **fields: Any) -> Any:
        """Asks the leader; returns its answer, which is a success."""

        refusals = [""]

        def ask() -> Any:
            with contextlib.suppress(OSError), self.client() as client:
                answer = client.ask(code.value, {key: str(value) for key, value in fields.items()})
                refusals.append(f"{answer.code} {answer.remark}")
                return answer if answer.code == 0 else None

        # The leadership may move.
        return wait_until(ask, what=f"an answer to {code.name}", detail=lambda: refusals[-1])

    def put_topic(self, topic: str, permission: int = 6) -> None:
        self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, defaultTopic="TBW102",
            readQueueNums=1, writeQueueNums=1, perm=permission, topicFilterType="SINGLE_TAG",
        )  # fmt: skip

    def commit(self, group: str, topic: str, offset: int) -> None:
        self.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=group, topic=topic, queueId=0, commitOffset=offset,
        )  # fmt: skip

    def send(self, topic: str, body: bytes, keys: str = "") -> None:
        properties = f"KEYS\x01{keys}\x02" if keys else ""
        with self.client() as client:
            client.send(topic, 0, body, properties=properties)

    def topics(self) -> set[str]:
        body = self.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body
        return set(json.loads(body)["topicConfigTable"])

    def status(self, node: str = "n0") -> dict[str, str]:
        """What `brokerStatus` tells of a member, whatever its role."""
        with self.client(node) as client:
            body = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO.value, {}).body
        table: dict[str, str] = json.loads(body)["table"]
        return table

    def stop(self) -> None:
        """Stops all brokers in order, the leader last."""
        leader = self.cluster.leader
        for node in sorted(self.cluster.nodes, key=lambda node: node == leader):
            self.cluster.shut_down(node)

    def wait_until_swept(self) -> None:
        """Waits until the leader has told all of the state, and all members have applied it."""
        read = self.cluster._read

        def is_swept() -> bool:
            ends = {read(node, lambda broker: broker.state.sweep_index) for node in self.nodes}
            return len(ends) == 1 and -1 not in ends and read(None, lambda b: b.state.is_swept)

        wait_until(is_swept, what="a sweep that all have applied")

    def stop_running(self) -> None:
        """Ends what runs, at once: some nodes may be down."""
        for node in self.nodes:
            self.cluster.kill(node)

    def start(self) -> None:
        for node in self.cluster.nodes:
            self.cluster.restart(node)

    # The checkpoint.

    def mark(self, node: str = "n0") -> DispatchMark:
        found = Checkpoints(RealFileSystem(), str(self.root(node))).read()
        assert found is not None
        return found

    def write_mark(self, mark: DispatchMark, node: str = "n0") -> None:
        Checkpoints(RealFileSystem(), str(self.root(node))).write(mark)
