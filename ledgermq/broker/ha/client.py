"""HaClient: a slave's connection to its master, made again whenever it breaks.

    idle         no master is known
    connecting   ClientService tries, with growing pauses
    connected    a SlaveLink decides what is appended and reported

A connection that ends before its first good frame counts as a failed attempt, so a master whose log
does not fit, or a log that takes nothing because its disk is full, is not tried ten times a second;
the reason is logged once and kept for whoever asks.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from twisted.application.internet import ClientService
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.broker.ha.errors import ReplicationError
from ledgermq.broker.ha.greetings import NO_SECRET, HaAdmission, SlaveGreeting
from ledgermq.broker.ha.replicated_log import ReplicatedLog
from ledgermq.broker.ha.settings import HaSettings
from ledgermq.broker.ha.slave_link import SlaveLink
from ledgermq.commitlog import CommitLogError
from ledgermq.dledger.errors import LedgerError
from ledgermq.protocol.tcp_times import CLIENT_TIMES, set_tcp_times
from ledgermq.protocol.tls.engine import TlsEngine
from ledgermq.protocol.tls.files import ClientTls
from ledgermq.protocol.transport.client import default_back_off
from ledgermq.protocol.transport.refusals import Refusals
from ledgermq.protocol.transport.tls_link import TlsLink

_CONNECT_S_MAX: Final = 3.0
_PORT: Final = re.compile(r"[0-9]{1,5}")
_PORT_MAX: Final = 65_535
# Attempts in a row that reach nobody before it is told: a master may just be on its way.
_FAILURES_TOLD: Final = 3

_log = Logger()


class MasterConnection(Protocol):
    """One connection to the master."""

    # Twisted's interface knows no end at once.
    transport: Any

    def __init__(self, client: "HaClient") -> None:
        self._client = client
        self._link: SlaveLink | None = None
        # Until it is done nothing is reported or appended; None where nobody is asked.
        self.greeting: SlaveGreeting | None = None
        self._reason: str | None = None
        # Closed, or about to be: nothing is appended any more.
        self._is_over = False

    @property
    def link(self) -> SlaveLink:
        """What is known of the master."""
        assert self._link is not None, "a connection that was not made is asked"
        return self._link

    def connectionMade(self) -> None:
        self._link = self._client.new_link()
        if isinstance(self.transport, TlsLink):
            self.transport.set_tcp_times(CLIENT_TIMES)
        elif isinstance(self.transport, Connection):
            # A report is 8 bytes that senders of the master wait for.
            self.transport.setTcpNoDelay(True)
            set_tcp_times(self.transport.getHandle(), CLIENT_TIMES)
        self.greeting = self._client.new_greeting(self._binding)
        self._client.connection_made(self)
        if self.greeting is not None:
            self.transport.write(self.greeting.opening)
        self.send_report()

    def _binding(self) -> str:
        return self.transport.binding if isinstance(self.transport, TlsLink) else ""

    # Called by TlsLink.

    @property
    def peer(self) -> str:
        """The master, for the log."""
        return self._client.master or "the master"

    def use(self, transport: Any) -> None:
        """A client's end does not go on in plain."""
        raise AssertionError("TLS was begun by this end")

    def close(self, reason: str) -> None:
        """TLS ended, or cannot go on."""
        self.abort(reason)

    def dataReceived(self, data: bytes) -> None:
        greeting = self.greeting
        if greeting is not None:
            try:
                answer, data = greeting.feed(data)
            except ReplicationError as error:
                self._client.doubted(self, str(error), is_refused=True)
                self.abort(str(error))
                return
            if not greeting.is_done:
                return
            self.greeting = None
            self.transport.write(answer)
            self._client.doubted(self, greeting.doubt)
            self.send_report()
        self._append(lambda: self.link.receive(data, self._client.now_ms()))

    def _append(self, append: Callable[[], None]) -> None:
        """Has frames appended; while they wait for a file nothing more is read."""
        try:
            append()
        except (ReplicationError, CommitLogError, LedgerError, OSError) as error:
            self.abort(str(error))
            # A log that was cut is wiped, whether the master comes back or not.
            self._client.make_room().addErrback(lambda _: None)
            return
        self._client.received(self)
        self.send_report()
        if self.link.is_waiting:
            self.transport.pauseProducing()
            made: Deferred[Any] = self._client.make_room()
            made.addCallbacks(lambda _: self._go_on(), lambda failure: self._no_room(failure))

    def _go_on(self) -> None:
        if self._is_over:
            return
        self._append(self.link.go_on)
        if not self.link.is_waiting and not self._is_over:
            self.transport.resumeProducing()

    def _no_room(self, failure: Failure) -> None:
        if not self._is_over:
            self.abort(failure.getErrorMessage())

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._is_over = True
        self._client.connection_lost(self, self._reason or reason.getErrorMessage())

    def send_report(self) -> None:
        """Reports the end of the log when that is due."""
        if self._reason is None and self.greeting is None:
            report = self.link.take_report(self._client.now_ms())
            if report is not None:
                self.transport.write(report)

    def abort(self, reason: str) -> None:
        """Closes the connection at once; the first reason is the one that is told."""
        if self._reason is None:
            self._reason = reason
            self._is_over = True
            self.transport.abortConnection()


class _MasterFactory(Factory):
    noisy = False

    def __init__(self, client: "HaClient") -> None:
        self._client = client

    def buildProtocol(self, addr: IAddress | None) -> MasterConnection | TlsLink:
        return self._client.new_connection()


class HaClient:
    """The way of one slave to its master.

    Attributes:
        master: "host:port" that is connected to, None while none is known.
        last_failure: why there is no connection, or why the last one ended; None once a frame was
            taken on the next one.
    """

    def __init__(
        self,
        reactor: Any,
        log: ReplicatedLog,
        settings: HaSettings,
        make_room: Callable[[], Deferred[None]],
        *,
        back_off: Callable[[int], float] = default_back_off,
        admission: HaAdmission | None = None,
        refusals: Refusals | None = None,
        tls: ClientTls | None = None,
        may_be_plain: bool = False,
    ) -> None:
        """Opens nothing before `follow`.

        Args:
            reactor: gives TCP and time.
            log: where the master's bytes go.
            settings: times.
            make_room: has files made that the log lacks, and what was cut off it wiped; fires when
                that is done.
            back_off: seconds to wait after so many fruitless attempts in a row.
            admission: what the master has to prove; None: nothing.
            refusals: told of a master that does not; None for one of its own.
            tls: how it connects; None: without TLS.
            may_be_plain: whether a master is connected to without TLS when it does not speak it.
        """
        self._tls = tls
        # With a greeting, by TLS: what may be tried with a master, the safest first.
        has_key = admission is not None and admission.key is not None
        is_open = admission is None or not admission.is_closed
        self._ways = [
            (greets, encrypts)
            for greets in ((True, False) if has_key and is_open else (has_key,))
            for encrypts in ((True, False) if tls and may_be_plain else (tls is not None,))
        ]
        # Which of them is next: where no proof, or no TLS, is required yet, one that brought
        # nothing is followed by the others.
        self._way = 0
        self._admission = admission
        self._refusals = refusals or Refusals("slave", reactor.seconds)
        self._reactor = reactor
        self._replicated_log = log
        self._settings = settings
        self.make_room = make_room
        self._back_off = back_off
        self._service: ClientService | None = None
        self._connection: MasterConnection | None = None
        # Connections in a row that ended without a good frame.
        self._fruitless_count = 0
        self._logged_reason = ""
        self._is_stopped = False
        self.master: str | None = None
        self.last_failure: str | None = None

    @property
    def is_copying(self) -> bool:
        """True once the connection of the moment brought a good frame."""
        return self._connection is not None and self._connection.link.frame_count > 0

    def follow(self, master: str | None) -> Deferred[Any]:
        """Connects to a master, leaving the one before; None only leaves.

        Returns: a Deferred that fires when the former connection is gone.
        """
        if self._is_stopped or master == self.master:
            return succeed(None)
        left = self._leave()
        self.master = master
        self._fruitless_count = 0
        if master is None:
            return left
        place = _place_of(master)
        if place is None:
            self._note_failure("its address is none: host:port, the port from 1 to 65535")
            return left
        host, port = place
        endpoint_class: Any = TCP6ClientEndpoint if ":" in host else TCP4ClientEndpoint
        endpoint = endpoint_class(self._reactor, host, port, timeout=_CONNECT_S_MAX)
        # Twisted's interfaces are unknown to the type checker.
        factory: Any = _MasterFactory(self)
        service = ClientService(endpoint, factory, retryPolicy=self._pause, clock=self._reactor)
        self._service = service
        # The old connection is gone first: two would append to one log.
        left.addBoth(lambda _: self._begin(service))
        return left

    def _begin(self, service: ClientService) -> None:
        if self._service is service:
            service.startService()

    def check(self) -> None:
        """Sends a report that is due and ends a silent connection; called several times in each
        heart beat.
        """
        connection = self._connection
        if connection is None:
            return
        greeting = connection.greeting
        if greeting is not None and self.now_ms() >= greeting.end_ms:
            connection.abort("the master does not answer the greeting")
        elif connection.link.is_silent(self.now_ms()):
            limit = self._settings.silence_ms_max
            connection.abort(
                f"the master has said nothing for more than {limit} ms (key haHousekeepingInterval)"
            )
        else:
            connection.send_report()

    def stop(self) -> Deferred[Any]:
        """Leaves the master for good; fires when nothing is left."""
        left = self._leave()
        self._is_stopped = True
        return left

    def _leave(self) -> Deferred[Any]:
        service, self._service = self._service, None
        self.master = None
        if self._connection is not None:
            self._connection.abort("this slave leaves its master")
        if service is None or not service.running:
            return succeed(None)
        return maybeDeferred(service.stopService)

    # For the connection and the service.

    def _pause(self, failed_count: int) -> float:
        if failed_count >= _FAILURES_TOLD:
            self._note_failure(
                "nobody answers; is it up, and without a ledger (enableDLegerCommitLog=false)?"
            )
        return self._back_off(max(failed_count, self._fruitless_count))

    def new_link(self) -> SlaveLink:
        """Returns the state of a new connection."""
        return SlaveLink(
            self._replicated_log,
            heart_beat_ms=self._settings.heart_beat_ms,
            silence_ms_max=self._settings.silence_ms_max,
            now_ms=self.now_ms(),
        )

    def new_connection(self) -> MasterConnection | TlsLink:
        """Returns the protocol for an attempt that succeeded."""
        connection = MasterConnection(self)
        if self._tls is None or not self._ways[self._way][1]:
            return connection
        host = (self.master or "").rpartition(":")[0].strip("[]")
        engine = TlsEngine(self._tls.context, is_server=False, server_name=host)
        return TlsLink(connection, engine=engine)

    def new_greeting(self, binding: Callable[[], str]) -> SlaveGreeting | None:
        """Returns how a connection begins; None when that is the report."""
        admission = self._admission
        if admission is None or not self._ways[self._way][0]:
            return None
        return SlaveGreeting(admission, self.now_ms(), binding)

    def doubted(
        self, connection: MasterConnection, doubt: str | None, *, is_refused: bool = False
    ) -> None:
        """Notes why a master did not prove itself; None when it did."""
        host = str(getattr(connection.transport.getPeer(), "host", "?"))
        if doubt is None:
            self._refusals.forget("the master", host)
        else:
            reason = doubt if is_refused else f"copied all the same: {doubt}"
            self._refusals.note("the master", host, reason)

    def connection_made(self, connection: MasterConnection) -> None:
        """Takes a new connection."""
        self._connection = connection
        if self._admission and self._admission.key and not self._ways[self._way][0]:
            self.doubted(connection, NO_SECRET)

    def received(self, connection: MasterConnection) -> None:
        """Notes that the master sends what fits."""
        if connection.link.frame_count:
            self._fruitless_count = 0
            self.last_failure, self._logged_reason = None, ""

    def connection_lost(self, connection: MasterConnection, reason: str) -> None:
        """Takes the end of a connection."""
        if self._connection is connection:
            self._connection = None
        self._way = 0
        if connection.link.frame_count == 0:
            self._fruitless_count += 1
            self._way = self._fruitless_count % len(self._ways)
        self._note_failure(reason)

    def _note_failure(self, reason: str) -> None:
        self.last_failure = reason
        if reason != self._logged_reason and self.master is not None:
            self._logged_reason = reason
            _log.warn(
                "no connection to the master at {master}, it is tried again: {reason}",
                master=self.master,
                reason=reason,
            )

    def now_ms(self) -> float:
        """Returns monotonic time."""
        seconds: float = self._reactor.seconds()
        return seconds * 1000.0


def _place_of(address: str) -> tuple[str, int] | None:
    """Returns host and port of an address as name servers tell it; None when it is none."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not _PORT.fullmatch(port) or not 0 < int(port) <= _PORT_MAX:
        return None
    return host, int(port)
