"""ConsoleServer: the program of `ledgermq console`, on asyncio's reactor.

It serves the API, and the page where the package holds one: the files of `static/` at `/`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError

from ledgermq.client.config import ClientConfig
from ledgermq.client.endless import keep_going
from ledgermq.console.audit import Audit
from ledgermq.console.call import Terms
from ledgermq.console.desk import Desk, read_query
from ledgermq.console.prover import Signature
from ledgermq.console.sessions import Sessions
from ledgermq.console.stream import TabStreams
from ledgermq.http.application import Application
from ledgermq.http.hosts import HostGuard
from ledgermq.http.limits import Limits
from ledgermq.http.port import HttpPort
from ledgermq.http.replies import Reply
from ledgermq.http.requests import Request
from ledgermq.http.routes import Routes
from ledgermq.http.static_files import StaticFiles
from ledgermq.protocol.tls.files import TlsFiles
from ledgermq.protocol.transport import LOOK_INTERVAL_MS, CertificateWatch

STATIC: Final = Path(__file__).with_name("static")
# The script of the page, with all that it imports in it.
PAGE_SCRIPT: Final = "js/main.js"
_LOOK_S: Final = 10.0
_NEXT_PORTS: Final = 100
# A message of 1 MiB as JSON, each of its characters escaped.
_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
# The parts of a page that are sent at once: lists of 200 rows among them.
_UNSENT_BYTES_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """What a console is started with."""

    # Sets of name servers, each host:port;host:port.
    name_servers: list[str]
    host: str
    port: int
    # A tls.properties with the certificate of this port; empty: no TLS.
    tls_file: str
    # TLS, and the credentials of the console's own looks.
    client: ClientConfig
    # Nothing is shown without an account.
    must_sign_in: bool
    read_only: bool
    readers: frozenset[str]
    # Forms of signatures in which an account is shown to brokers.
    signature: Signature
    # Further names under which the console may be asked.
    host_names: tuple[str, ...]
    # Browsers come by TLS, through a proxy.
    behind_proxy: bool
    audit_file: Path | None
    # Where the port is taken, the next one that is free.
    next_port: bool
    terms: Terms


class BehindProxy(Application):
    """Takes requests from a proxy that ends TLS: it says in X-Forwarded-For who asks."""

    def answer(self, request: Request) -> Reply | Awaitable[Reply]:
        told = request.headers.get("x-forwarded-for", "")
        # The last one is what the proxy saw itself; those before it anybody may have written.
        peer = told.rpartition(",")[2].strip() or request.peer_host
        return super().answer(replace(request, is_secure=True, peer_host=peer))


class ConsoleServer:
    """Starts and stops with the program; all runs in the reactor's one thread."""

    exit_code = 0

    def __init__(
        self, config: ConsoleConfig, reactor: Any, on_listening: Callable[[str, int], None]
    ) -> None:
        """Opens nothing yet.

        Args:
            config: as the command line says.
            reactor: asyncio's.
            on_listening: told host and port once requests are taken.

        Raises:
            ConfigError: an address is wrong.
            TlsSettingsError: the certificate cannot be used.
            OSError: the audit file cannot be used.
        """
        self._config, self._reactor, self._on_listening = config, reactor, on_listening
        self._audit = Audit(config.audit_file)
        self._sessions = Sessions(
            config.name_servers,
            config.client,
            _now_ms,
            must_sign_in=config.must_sign_in,
            read_only=config.read_only,
            readers=config.readers,
            judges=config.terms.judges,
            signature=config.signature,
        )
        self._streams = TabStreams(read_query)
        self._desk = Desk(self._sessions, self._audit, config.terms, self._streams, _now_ms)
        routes = Routes()
        self._desk.add_to(routes)
        if STATIC.is_dir():
            files = StaticFiles(STATIC, PAGE_SCRIPT)
            routes.add("GET", "/", lambda request: files.find("index.html", request))
            routes.add("GET", "/{path*}", files.fresh)
        self._tls = TlsFiles(config.tls_file, "enforcing" if config.tls_file else "")
        self._watch = CertificateWatch(self._tls)
        kind = BehindProxy if config.behind_proxy else Application
        application = kind(routes, [HostGuard(config.host_names)])
        self._port = HttpPort(
            reactor,
            application,
            host=config.host,
            port=config.port,
            limits=Limits(body_bytes_max=_BODY_BYTES_MAX, unsent_bytes_max=_UNSENT_BYTES_MAX),
            run=run_in_loop,
            tls=self._tls.server,
        )
        # What is done from time to time.
        self._loops: list[asyncio.Task[None]] = []

    def start(self) -> "Deferred[None]":
        """Listens.

        Raises:
            CannotListenError: the port is taken.
        """
        self._listen()
        self._on_listening(self._config.host, self._port.port)
        started: Deferred[None] = Deferred()
        # The reactor starts its services before asyncio's loop runs.
        self._reactor.callLater(0, self._begin, started)
        return started

    def _listen(self) -> None:
        last = self._config.port + (_NEXT_PORTS if self._config.next_port else 0)
        while True:
            try:
                self._port.start()
                return
            except CannotListenError:
                if not 0 < self._port.port < last:
                    raise
                self._port.port += 1

    def _begin(self, started: "Deferred[None]") -> None:
        loop = asyncio.get_running_loop()
        self._loops.append(loop.create_task(keep_going("looking for clusters", self._look)))
        looking = keep_going("looking at sessions", self._look_at_sessions)
        self._loops.append(loop.create_task(looking))
        if self._tls.is_in_use:
            watching = keep_going("looking at certificates", self._look_at_certificates)
            self._loops.append(loop.create_task(watching))
        started.callback(None)

    async def _look(self) -> None:
        """Figures begin before somebody looks at them, and previews end when nobody does."""
        self._desk.changes.forget_old()
        if not await self._sessions.needs_account():
            await self._sessions.open_session().identity.look_at_all()
        await asyncio.sleep(_LOOK_S)

    async def _look_at_sessions(self) -> None:
        await asyncio.sleep(_LOOK_S)
        await self._sessions.end_old()

    async def _look_at_certificates(self) -> None:
        await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
        self._watch.look()

    def stop(self) -> "Deferred[Any]":
        """Ends all."""
        return Deferred.fromFuture(asyncio.ensure_future(self._stop()))

    async def _stop(self) -> None:
        for loop in self._loops:
            loop.cancel()
        self._streams.close()
        self._desk.changes.stop_all()
        self._desk.searches.stop_all()
        await self._port.stop().asFuture(asyncio.get_running_loop())
        await self._sessions.close()


def run_in_loop(reply: Awaitable[Reply]) -> "Deferred[Reply]":
    """Runs a view as a task: it waits for what asyncio's loop brings."""
    return Deferred.fromFuture(asyncio.ensure_future(reply))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
