"""CommandClient: one outgoing connection to one address, made again when it breaks.

States: idle until `start` or the first request; then Twisted's ClientService connects, waits by the
back-off after a failure, and connects again, until `stop`. A request that finds no connection waits
for the next attempt and fails with it: the caller knows better than this class whether another
address would do.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.application.internet import ClientService
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from ledgermq.protocol.codes import ONE_WAY_FLAG
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ConnectionClosedError
from ledgermq.protocol.tcp_times import CLIENT_TIMES
from ledgermq.protocol.tls.engine import TlsEngine
from ledgermq.protocol.tls.files import ClientTls
from ledgermq.protocol.transport.attempts import WatchedEndpoint
from ledgermq.protocol.transport.command_protocol import CommandProtocol
from ledgermq.protocol.transport.limits import ConnectionLimits
from ledgermq.protocol.transport.receiver import Receiver
from ledgermq.protocol.transport.tls_link import TlsLink
from ledgermq.protocol.transport.turn import DelayedCall, TurnOutput

_CHECK_INTERVAL_S: Final = 1.0
# How long a stopping client waits for what was sent to go out.
_STOP_TIMEOUT_S: Final = 2.0
# Requests that may wait for the connection to be made.
_WAITING_COUNT_MAX: Final = 1024
_FIRST_DELAY_S: Final = 0.1
_DELAY_MAX_S: Final = 5.0
_DELAY_DOUBLINGS_MAX: Final = 10
# Between two attempts, however long the first one took.
_PAUSE_S_MIN: Final = 0.01

# Whatever is called with a new connection before it is used: nothing to return, or a Deferred to be
# waited for.
OnConnected = Callable[[CommandProtocol], Deferred[Any] | None]


def default_back_off(attempts_count: int) -> float:
    """Returns the seconds before the next attempt: 0.1 and then doubled, 5 at most."""
    return min(_FIRST_DELAY_S * 2.0 ** min(attempts_count, _DELAY_DOUBLINGS_MAX), _DELAY_MAX_S)


class _CommandFactory(Factory):
    noisy = False

    def __init__(self, client: "CommandClient") -> None:
        self._client = client

    def buildProtocol(self, addr: IAddress | None) -> CommandProtocol | TlsLink:
        return self._client.new_connection()


class CommandClient:
    """The way to one peer."""

    def __init__(
        self,
        reactor: Any,
        host: str,
        port: int,
        receiver: Receiver[CommandProtocol] | None = None,
        *,
        connect_timeout_ms: int = 3000,
        back_off: Callable[[int], float] = default_back_off,
        on_connected: OnConnected | None = None,
        on_refused: Callable[[], None] | None = None,
        remembers_address: bool = False,
        limits: ConnectionLimits | None = None,
        output: TurnOutput | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            reactor: gives TCP and time.
            host: name or address of the peer.
            port: of the peer.
            receiver: who gets the peer's requests and the news of the connection; None when nobody
                wants them.
            connect_timeout_ms: for one attempt.
            back_off: seconds between the beginnings of attempts, after so many failed in a row.
            on_connected: called with each new connection before requests go out on it; when the
                Deferred it returns fails, the connection is dropped and made again.
            on_refused: called for each attempt that is refused: nobody listens there.
            remembers_address: see WatchedEndpoint; `receiver` must find out whom it has reached.
            limits: of the connection; the first-frame time does not apply.
            output: shared with other servers and clients on this reactor; None for one of its own.
            tls: asked at each attempt; None for plain connections.
        """
        self._reactor = reactor
        # "host:port" as configured.
        self.address = f"{host}:{port}"
        self._receiver = receiver
        self._host = host
        self._tls = tls
        self._on_connected = on_connected
        self._limits = limits or ConnectionLimits(first_frame_timeout_s=0, tcp_times=CLIENT_TIMES)
        self.output = output or TurnOutput(reactor)
        self._owns_output = output is None
        self._endpoint = WatchedEndpoint(
            reactor,
            host,
            port,
            timeout_s=connect_timeout_ms / 1000,
            on_refused=on_refused,
            remembers_address=remembers_address,
        )
        self._back_off = back_off
        self._service = self._new_service()
        # The open connection that is ready for requests.
        self._connection: CommandProtocol | None = None
        # The newest connection, also while it is prepared or closed.
        self._newest: CommandProtocol | None = None
        self._waiting_count = 0
        self._is_started = False
        self._is_stopped = False
        self._is_finished = False
        self._stop_waiters: list[Deferred[None]] = []
        # Results of the service that are on their way to requests, and the call that brings them.
        self._settled: list[tuple[Deferred[Any], object]] = []
        self._settle_call: DelayedCall | None = None
        self._check_call: DelayedCall | None = None
        self._stop_call: DelayedCall | None = None

    def _new_service(self) -> ClientService:
        # Twisted's interfaces are unknown to the type checker.
        endpoint: Any = self._endpoint
        factory: Any = _CommandFactory(self)
        return ClientService(
            endpoint,
            factory,
            retryPolicy=self._pause_s,
            clock=self._reactor,
            prepareConnection=self._prepare,
        )

    def use_tls(self, tls: ClientTls | None) -> None:
        """Changes how connections from now on are made; None: without TLS."""
        self._tls = tls

    @property
    def is_connected(self) -> bool:
        """True while requests go out at once."""
        return self._connection is not None and self._connection.is_open

    @property
    def connection(self) -> CommandProtocol | None:
        """The open connection, None when there is none."""
        return self._connection if self.is_connected else None

    def start(self) -> None:
        """Connects, and from then on again whenever the connection breaks."""
        if self._is_started or self._is_stopped:
            return
        self._is_started = True
        self._service.startService()
        self._check_call = self._reactor.callLater(_CHECK_INTERVAL_S, self._check)

    def request(self, command: RemotingCommand, timeout_ms: int) -> Deferred[RemotingCommand]:
        """Sends a request, connecting first when needed, and waits for its answer.

        Args:
            command: its opaque is set.
            timeout_ms: for connecting and the answer together.

        Returns:
            A Deferred as CommandProtocol.request gives it; a connection that could not be made is a
            ConnectionClosedError.
        """
        connection = self._connection
        if connection is not None and connection.is_open:
            return connection.request(command, timeout_ms)
        if self._is_stopped:
            return fail(ConnectionClosedError(self.address, "client is stopped"))
        if self._waiting_count >= _WAITING_COUNT_MAX:
            reason = f"{self._waiting_count} requests wait for it"
            return fail(ConnectionClosedError(self.address, reason))
        self.start()
        begun_s = self._reactor.seconds()
        self._waiting_count += 1

        def connected(_: object) -> Deferred[RemotingCommand]:
            self._waiting_count -= 1
            connection = self._connection
            if connection is None:
                raise ConnectionClosedError(self.address, "lost at once")
            left_ms = timeout_ms - int((self._reactor.seconds() - begun_s) * 1000)
            return connection.request(command, max(left_ms, 1))

        def failed(failure: Failure) -> RemotingCommand:
            self._waiting_count -= 1
            reason = failure.getErrorMessage() or "timed out"
            raise ConnectionClosedError(self.address, reason) from failure.value

        waiting: Deferred[Any] = self._service.whenConnected(failAfterFailures=1)
        waiting.addTimeout(timeout_ms / 1000, self._reactor)
        return waiting.addBoth(self._leave_service).addCallbacks(connected, failed)

    def send_one_way(self, command: RemotingCommand) -> None:
        """Sends a request that nobody answers; it is dropped when there is no connection.

        Without a connection one is begun, so that the next may find it.
        """
        command.flag |= ONE_WAY_FLAG
        if self._connection is not None:
            self._connection.send(command)
        elif not self._is_stopped:
            self.start()

    def forget_address(self) -> bool:
        """See WatchedEndpoint: whoever was reached there is not the right one."""
        return self._endpoint.forget_address()

    def stop(self) -> Deferred[None]:
        """Closes the connection and makes no other.

        Returns:
            A Deferred that fires when the connection is gone, after two seconds at the latest.
        """
        stopped: Deferred[None] = Deferred()
        self._stop_waiters.append(stopped)
        if self._is_stopped:
            if self._is_finished:
                self._finish(None)
            return stopped
        self._is_stopped = True
        if self._check_call is not None:
            self._check_call.cancel()
            self._check_call = None
        if not self._is_started:
            self._finish(None)
            return stopped
        newest = self._newest
        if newest is not None:
            self._stop_call = self._reactor.callLater(_STOP_TIMEOUT_S, self._abort, newest)
            newest.close("client stops")
        self._service.stopService().addBoth(self._finish)
        return stopped

    # For the factory and the service.

    def _pause_s(self, attempts_count: int) -> float:
        pause_s = self._back_off(attempts_count) - self._endpoint.failed_after_s
        return max(pause_s, _PAUSE_S_MIN)

    def new_connection(self) -> CommandProtocol | TlsLink:
        """Returns the protocol for an attempt that succeeded."""
        self._newest = CommandProtocol(self._reactor, self, limits=self._limits, output=self.output)
        if self._tls is None:
            return self._newest
        engine = TlsEngine(self._tls.context, is_server=False, server_name=self._host)
        return TlsLink(self._newest, engine=engine)

    def _prepare(self, _: object) -> Deferred[Any] | None:
        connection = self._newest
        assert connection is not None
        prepared = None if self._on_connected is None else self._on_connected(connection)
        if prepared is None:
            self._connection = connection
            return None
        return prepared.addCallback(self._set_ready, connection)

    def _set_ready(self, _: object, connection: CommandProtocol) -> None:
        self._connection = connection

    # Receiver of its own connection.

    def connection_made(self, connection: CommandProtocol) -> None:
        if self._receiver is not None:
            self._receiver.connection_made(connection)

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> int | None:
        if self._receiver is None:
            return None
        return self._receiver.commands_received(connection, commands)

    def connection_lost(self, connection: CommandProtocol, reason: str) -> None:
        if self._connection is connection:
            self._connection = None
        if self._newest is connection:
            self._newest = None
        if self._receiver is not None:
            self._receiver.connection_lost(connection, reason)

    def _check(self) -> None:
        if self._newest is not None:
            self._newest.check(self._reactor.seconds())
        self._check_call = self._reactor.callLater(_CHECK_INTERVAL_S, self._check)

    def _abort(self, connection: CommandProtocol) -> None:
        self._stop_call = None
        connection.abort("client stops")

    def _finish(self, _: object) -> None:
        self._is_finished = True
        if self._stop_call is not None:
            self._stop_call.cancel()
            self._stop_call = None
        if self._settle_call is not None:
            self._settle_call.cancel()
            self._settle()
        if self._owns_output:
            self.output.stop()
        waiters = self._stop_waiters
        self._stop_waiters = []
        for waiter in waiters:
            waiter.callback(None)

    def _leave_service(self, result: object) -> Deferred[Any]:
        """Passes a result of the service on in a turn of its own.

        The service reports from inside a change of its state and cannot be called again before that
        ends; whoever gets the result may well call `stop`.
        """
        passed: Deferred[Any] = Deferred()
        self._settled.append((passed, result))
        if self._settle_call is None:
            self._settle_call = self._reactor.callLater(0, self._settle)
        return passed

    def _settle(self) -> None:
        self._settle_call = None
        settled = self._settled
        self._settled = []
        for passed, result in settled:
            if isinstance(result, Failure):
                passed.errback(result)
            else:
                passed.callback(result)
