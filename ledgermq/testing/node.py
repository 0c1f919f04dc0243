"""Node: one broker or name server of a cluster inside a test, through all its lives."""

from collections.abc import Callable, Mapping
from enum import Enum
from threading import Thread
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.python.threadpool import ThreadPool

from ledgermq.testing.errors import ClusterError
from ledgermq.testing.node_reactor import NodeReactor, Side
from ledgermq.testing.ports import ReservedPort

# A broker syncs its ledger and its other files, each in one thread at a time.
_THREADS_MAX: Final = 2


class _DaemonThread(Thread):
    """Does not keep a program from ending that never closes its cluster."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(daemon=True, **keywords)


class NodeState(Enum):
    """What a node is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    # It runs, and others cannot reach it.
    ISOLATED = "isolated"
    # Killed or stopped.
    DOWN = "down"


class Program(Protocol):
    """What runs on a node."""

    def start(self) -> Deferred[Any]:
        """Fires when it serves."""

    def stop(self) -> Deferred[Any]:
        """Fires when all is closed, in order."""


P = TypeVar("P", bound=Program)
# Makes the program of one life.
MakeProgram = Callable[[NodeReactor, ThreadPool], P]


class Node(Generic[P]):
    """One node. All but `state` belongs into the reactor's thread.

    Attributes:
        name: in the calls of the cluster.
        program: of the present life; None while the node is down.
    """

    def __init__(
        self,
        name: str,
        reactor: Any,
        ports: Mapping[int, tuple[ReservedPort, Side]],
        make_program: MakeProgram[P],
        abandon: Callable[[P], None] = lambda program: None,
    ) -> None:
        """The node is down.

        Args:
            reactor: the real one.
            ports: those that it may listen on.
            make_program: called for each life.
            abandon: gives back what a killed program had open besides connections and calls.
        """
        self.name = name
        self.program: P | None = None
        self._real_reactor = reactor
        self._ports = ports
        self._make_program = make_program
        self._abandon = abandon
        self._reactor: NodeReactor | None = None
        self._pool: ThreadPool | None = None

    @property
    def state(self) -> NodeState:
        """What it is doing."""
        reactor = self._reactor
        if reactor is None:
            return NodeState.DOWN
        if reactor.is_paused:
            return NodeState.PAUSED
        return NodeState.ISOLATED if reactor.is_isolated else NodeState.RUNNING

    def reactor(self) -> NodeReactor:
        """Returns the reactor of the present life.

        Raises:
            ClusterError: the node is down.
        """
        if self._reactor is None:
            raise ClusterError(f"{self.name} is down")
        return self._reactor

    async def start(self) -> None:
        """Begins a life.

        Raises:
            ClusterError: it has one.
            Exception: of the program; the node is down then.
        """
        if self._reactor is not None:
            raise ClusterError(f"{self.name} is {self.state.value}, it starts when it is down")
        self._reactor = NodeReactor(self._real_reactor, self._ports)
        pool = self._pool = ThreadPool(0, _THREADS_MAX, name=f"ledgermq-{self.name}")
        pool.threadFactory = cast(type[Thread], _DaemonThread)
        pool.start()
        try:
            program = self.program = self._make_program(self._reactor, pool)
            await program.start()
        except BaseException:
            await self.kill()
            raise

    async def kill(self) -> None:
        """Ends the life at once; what was not sent or written is not."""
        reactor, program, pool = self._reactor, self.program, self._pool
        if reactor is None:
            return
        self._reactor, self.program, self._pool = None, None, None
        gone = reactor.kill()
        if pool is not None:
            # A sync under way is waited for: it uses the files.
            pool.stop()
        if program is not None:
            self._abandon(program)
        await gone

    async def stop(self) -> None:
        """Ends the life in order, as a signal to terminate does.

        Raises:
            ClusterError: the node is down, or paused.
        """
        reactor = self.reactor()
        if reactor.is_paused or self.program is None:
            raise ClusterError(f"{self.name} is {self.state.value}, it cannot stop in order")
        await self.program.stop()
        await self.kill()
