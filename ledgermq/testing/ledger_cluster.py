"""LedgerCluster: a name server and one to nine brokers inside this process, for tests.

Real brokers on real ports of loopback: every RocketMQ client can connect, also one in another
process or language. What differs from `ledgermq up`: no process is started, the brokers' wall clock
can be moved, nodes can be cut off and held up, and everything is gone with the end of the block.

Each cluster has a reactor and a thread of its own (`reactor_thread.py` says why). All methods may
be called from any other thread, and wait for what they do.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast

from twisted.python.threadpool import ThreadPool

from ledgermq.broker.config.broker_config import BrokerConfig, load_broker_config
from ledgermq.broker.service import BrokerService
from ledgermq.client import ReceivedMessage
from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.namesrv.service import NamesrvService
from ledgermq.testing.errors import ClusterError
from ledgermq.testing.inspection import (
    committed_offsets,
    known_clients,
    put_topic,
    stored_messages,
)
from ledgermq.testing.node import Node, NodeState
from ledgermq.testing.node_reactor import NodeReactor, Side
from ledgermq.testing.ports import LOOPBACK, ReservedPort
from ledgermq.testing.reactor_thread import ReactorThread
from ledgermq.testing.settings import (
    BROKER_NAME,
    Setting,
    broker_settings,
    name_server_settings,
)
from ledgermq.testing.wall_clock import MovableClock

T = TypeVar("T")

# The name server where a node is named.
NAME_SERVER: Final = "namesrv"
NODES_MAX: Final = 9
# Longest wait for a state of the cluster. A healthy one needs a tenth of a second, and two seconds
# after the loss of a leader.
TIMEOUT_S: Final = 90.0
_POLL_S: Final = 0.005
_MASTER_ID: Final = 0


class LedgerCluster:
    """A cluster inside a test. Nodes are named "n0", "n1", ..., and "namesrv".

    Attributes:
        clock: the wall clock of all brokers.
        name_server: "host:port", all that a client needs to know; empty before the start.
        nodes: names of the brokers.
    """

    def __init__(self, nodes: int = 1, *, settings: Mapping[str, Setting] | None = None) -> None:
        """Opens nothing yet.

        Args:
            nodes: brokers of the group; 1 and 3 are usual.
            settings: of all brokers, with the keys of their configuration file.

        Raises:
            ValueError: there cannot be so many nodes, or a key is unknown or the cluster's own.
            ConfigError: a setting has a value that is not allowed.
        """
        if not 1 <= nodes <= NODES_MAX:
            raise ValueError(f"nodes is {nodes}, allowed are 1 to {NODES_MAX}")
        self.clock = MovableClock()
        self.name_server = ""
        self.nodes = tuple(f"n{number}" for number in range(nodes))
        self._settings = dict(settings or {})
        # Wrong settings are told now, by the line that makes the cluster.
        config = self._config_of("n0", f"n0-{LOOPBACK}:1", 1, f"{LOOPBACK}:1", Path())
        if config.unknown_keys:
            raise ValueError(f"unknown configuration keys: {', '.join(config.unknown_keys)}")
        self._addresses: dict[str, str] = {}
        self._brokers: dict[str, Node[BrokerService]] = {}
        self._name_server: Node[NamesrvService] | None = None
        self._thread: ReactorThread | None = None
        self._closing = ExitStack()

    def _config_of(
        self, name: str, peers: str, port: int, name_server: str, folder: Path
    ) -> BrokerConfig:
        settings = broker_settings(
            self._settings,
            name=name,
            peers=peers,
            port=port,
            name_server=name_server,
            folder=folder,
        )
        return load_broker_config(None, settings)

    # Start and end.

    def start(self) -> None:
        """Starts all nodes, and waits until a leader serves and the name server knows it.

        Raises:
            ClusterError: it was started before, or no leader comes.
        """
        if self._thread is not None:
            raise ClusterError("a cluster is started once")
        try:
            self._build()
            self._call(self._start_all)
            self.wait_for_leader()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        """Takes folder and ports, and makes the nodes, which are down."""
        folder = tempfile.TemporaryDirectory(prefix="ledgermq-", ignore_cleanup_errors=True)
        self._closing.callback(folder.cleanup)
        root = Path(folder.name)
        name_port = self._reserve()
        ports = {name: (self._reserve(), self._reserve()) for name in self.nodes}
        self.name_server = name_port.address
        self._addresses = {name: clients.address for name, (clients, _) in ports.items()}
        self._thread = ReactorThread("ledgermq-cluster")
        self._closing.callback(self._thread.stop)
        self._closing.callback(self._call, self._kill_all)
        reactor = self._thread.reactor
        self._name_server = Node(
            NAME_SERVER,
            reactor,
            {name_port.number: (name_port, Side.CLIENTS)},
            partial(_make_name_server, name_server_settings(name_port.number, root / NAME_SERVER)),
        )
        peers = ";".join(f"{name}-{own.address}" for name, (_, own) in ports.items())
        for name, (clients, own) in ports.items():
            config = self._config_of(name, peers, clients.number, self.name_server, root / name)

            def make(node: NodeReactor, pool: ThreadPool, config: Any = config) -> BrokerService:
                return BrokerService(
                    config, node, now_ms=self.clock.now_ms, disk_thread=cast(Any, pool)
                )

            self._brokers[name] = Node(
                name,
                reactor,
                {clients.number: (clients, Side.CLIENTS), own.number: (own, Side.NODES)},
                make,
                BrokerService.abandon,
            )

    def _reserve(self) -> ReservedPort:
        port = ReservedPort()
        self._closing.callback(port.release)
        return port

    async def _start_all(self) -> None:
        for node in self._all_nodes():
            await node.start()

    async def _kill_all(self) -> None:
        for node in reversed(self._all_nodes()):
            await node.kill()

    def _all_nodes(self) -> list[Node[Any]]:
        first = [] if self._name_server is None else [self._name_server]
        return [*first, *self._brokers.values()]

    def close(self) -> None:
        """Kills all nodes and removes what they stored; nothing is left. May be called again."""
        self._closing.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What may happen to nodes.

    def kill(self, node: str) -> None:
        """Ends a node at once, as SIGKILL: its connections break, its files stay as they are."""
        self._call(self._find(node).kill)

    def shut_down(self, node: str) -> None:
        """Stops a node in order, as SIGTERM: a leader hands its leadership over before."""
        self._call(self._find(node).stop)

    def restart(self, node: str) -> None:
        """Starts a node again, on its ports and its files; one that runs is shut down before."""
        found = self._find(node)
        if found.state is not NodeState.DOWN:
            self.shut_down(node)
        self._call(found.start)

    def pause(self, node: str) -> None:
        """Holds a node up, as SIGSTOP: its connections stay open and silent."""
        self._call(self._on_reactor, node, NodeReactor.pause)

    def resume(self, node: str) -> None:
        """Lets a paused node go on."""
        self._call(self._on_reactor, node, NodeReactor.resume)

    def isolate(self, node: str, *, from_clients: bool = True) -> None:
        """Cuts a node off, as a broken cable: it runs, and nothing passes on its connections.

        Args:
            from_clients: also from clients; False: only from the other nodes and the name server.
                All connections of the name server count as those of clients.
        """
        silent = frozenset(Side) if from_clients else frozenset({Side.NODES})
        self._call(self._on_reactor, node, lambda reactor: reactor.isolate(silent))

    def heal(self, node: str) -> None:
        """Connects a node again; what was on its way arrives now."""
        self._call(self._on_reactor, node, NodeReactor.heal)

    def _on_reactor(self, node: str, verb: Callable[[NodeReactor], None]) -> None:
        verb(self._find(node).reactor())

    # What there is to see.

    @property
    def leader(self) -> str | None:
        """The broker that takes messages now and that can be reached; None while there is none."""
        found: str | None = self._call(self._find_leader)
        return found

    @property
    def leftovers(self) -> list[str]:
        """After `close`: calls that were still to come; empty, unless something is wrong here."""
        return [] if self._thread is None else self._thread.leftovers

    def state(self, node: str) -> NodeState:
        """What a node is doing."""
        return self._find(node).state

    def address(self, node: str) -> str:
        """Where clients reach a broker, as "host:port"; the same in all its lives."""
        self._find(node)
        return self._addresses.get(node, self.name_server)

    def wait_for_leader(self, timeout_s: float = TIMEOUT_S) -> str:
        """Waits until a leader serves and clients can find it, and returns its name.

        Raises:
            ClusterError: none comes in time; perhaps too many nodes are down.
        """
        found: str = self._wait(self._find_leader, "a leader", timeout_s)
        return found

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Creates a topic, or changes the number of its queues, and waits until clients find it.

        Raises:
            BrokerError: of the leader, for a wrong name, say.
            ClusterError: there is no leader.
        """
        leader = self.wait_for_leader()
        self._call(lambda: put_topic(self._program(leader), topic, queues))
        self._wait(lambda: self._is_known(topic, queues), f"the topic {topic}", TIMEOUT_S)

    def messages(self, topic: str, *, node: str | None = None) -> list[ReceivedMessage]:
        """Returns the committed messages of a topic in the order in which they were stored.

        Also of the broker's own topics: "SCHEDULE_TOPIC_XXXX" holds what is delayed,
        "RMQ_SYS_TRANS_HALF_TOPIC" half messages, "%RETRY%" + group what comes again, "%DLQ%" +
        group what is given up.

        Args:
            node: whose; the leader's when it is None.

        Raises:
            ClusterError: the node is down, or there is no leader.
        """
        return self._read(node, lambda broker: stored_messages(broker, topic))

    def offsets(self, group: str, *, node: str | None = None) -> dict[str, dict[int, int]]:
        """Returns what a group has committed: topic -> queue id -> offset of its next message.

        Args:
            node: as of `messages`; followers are told each second.

        Raises:
            ClusterError: the node is down, or there is no leader.
        """
        return self._read(node, lambda broker: committed_offsets(broker, group))

    def clients(self, group: str, *, node: str | None = None) -> set[str]:
        """Returns the ids of a group's producers and consumers, as their heart beats tell.

        A producer is asked about its transactions only when the leader knows it so. Clients in Java
        send a heart beat a second after their start, and then every 30 s.

        Args:
            node: as of `messages`.

        Raises:
            ClusterError: the node is down, or there is no leader.
        """
        return self._read(node, lambda broker: known_clients(broker, group))

    def wait_until(
        self, condition: Callable[[], T], *, timeout_s: float = TIMEOUT_S, what: str = ""
    ) -> T:
        """Asks again and again until a condition is true, and returns its value.

        Args:
            condition: called in this thread; what it raises ends the wait.
            what: names it in the error.

        Raises:
            ClusterError: it was not true in time.
        """
        end_s = time.monotonic() + timeout_s
        pause = threading.Event()
        while not (value := condition()):
            if time.monotonic() >= end_s:
                text = what or getattr(condition, "__qualname__", "the condition")
                raise ClusterError(f"after {timeout_s:g} s still waiting for {text}")
            pause.wait(_POLL_S)
        return value

    # Inside.

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        if self._thread is None:
            raise ClusterError("the cluster is not started")
        return self._thread.call(function, *arguments)

    def _read(self, node: str | None, read: Callable[[BrokerService], T]) -> T:
        """Looks into a broker, the leader when none is named."""
        name = node or self.wait_for_leader()
        found: T = self._call(lambda: read(self._program(name)))
        return found

    def _wait(self, condition: Callable[[], Any], what: str, timeout_s: float) -> Any:
        """Waits for what can be asked in the reactor's thread only."""
        return self.wait_until(lambda: self._call(condition), timeout_s=timeout_s, what=what)

    def _find(self, name: str) -> Node[Any]:
        if self._thread is None:
            raise ClusterError("the cluster is not started")
        found = [node for node in self._all_nodes() if node.name == name]
        if not found:
            known = ", ".join((*self.nodes, NAME_SERVER))
            raise ClusterError(f"there is no node {name!r}, only {known}")
        return found[0]

    def _program(self, name: str) -> BrokerService:
        """The broker on a node; in the reactor's thread."""
        node = self._brokers.get(name)
        if node is None or node.program is None:
            raise ClusterError(f"{name} is no broker that runs")
        return node.program

    def _find_leader(self) -> str | None:
        """The leader that serves and that clients can find; in the reactor's thread."""
        serving = {
            name: broker.leadership.term
            for name, node in self._brokers.items()
            if node.state is NodeState.RUNNING
            and (broker := node.program) is not None
            and broker.leadership.is_serving
        }
        if not serving:
            return None
        leader = max(serving, key=lambda name: serving[name])
        routes = self._routes()
        if routes is None:
            return leader
        brokers = routes.clusters().broker_addr_table.get(BROKER_NAME)
        master = None if brokers is None else brokers.broker_addrs.get(_MASTER_ID)
        return leader if master == self._addresses[leader] else None

    def _is_known(self, topic: str, queues: int) -> bool:
        """Whether the name server tells of a topic; in the reactor's thread."""
        routes = self._routes()
        if routes is None:
            return True
        if topic not in routes.topics():
            return False
        return [data.write_queue_nums for data in routes.route(topic).queue_datas] == [queues]

    def _routes(self) -> Any:
        """What the name server knows; None while it cannot be asked."""
        node = self._name_server
        if node is None or node.program is None or node.state is not NodeState.RUNNING:
            return None
        return node.program.routes


def _make_name_server(
    settings: Mapping[str, str], reactor: NodeReactor, pool: ThreadPool
) -> NamesrvService:
    return NamesrvService(load_namesrv_config(None, settings), reactor)
