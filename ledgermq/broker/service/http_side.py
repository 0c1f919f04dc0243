"""HttpSide: the HTTP port of a broker, and the facts that its views are given.

Loaded only where a port is configured: it is the one way to twisted.web.
"""

from collections.abc import Callable, Iterator
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.service.ground import Ground
from ledgermq.broker.service.http_pulse import Pulse
from ledgermq.broker.service.metric_sources import MetricSources
from ledgermq.broker.service.serving import Serving
from ledgermq.broker.watching.health import Facts, Member
from ledgermq.broker.watching.health_views import add_health
from ledgermq.broker.watching.page import (
    OPEN_METRICS,
    TEXT_FORMAT,
    wants_open_metrics,
    write_page,
)
from ledgermq.broker.watching.page_places import PagePlaces
from ledgermq.broker.watching.progress import HealthWatch
from ledgermq.dledger.messages import PeerDialect
from ledgermq.dledger.replica.driver import Replica
from ledgermq.dledger.store.opening_progress import OpeningStep
from ledgermq.http.application import Application
from ledgermq.http.hosts import HostGuard
from ledgermq.http.limits import Limits
from ledgermq.http.port import HttpPort
from ledgermq.http.replies import Reply, RequestError
from ledgermq.http.requests import Request
from ledgermq.http.routes import Routes
from ledgermq.protocol.networks import network_of
from ledgermq.protocol.private_file import PrivateFileError, read_private_file
from ledgermq.protocol.tls.files import TlsFiles
from ledgermq.protocol.transport import LOOK_INTERVAL_MS, CertificateWatch
from ledgermq.state.errors import ConfigError

_LOOK_MS: Final = 1000
_TOKEN_BYTES_MAX: Final = 1024
# Nobody sends a body, and few come.
_LIMITS: Final = Limits(connections_max=64, body_bytes_max=4096)


class HttpSide:
    """The port and its views; for composition only.

    Attributes:
        sources: of metrics.
    """

    def __init__(
        self, ground: Ground, serving: Callable[[], Serving | None], step: Callable[[], str]
    ) -> None:
        """Opens nothing yet.

        Args:
            serving: the parts that need the broker's port; None before there are any.
            step: what the broker is doing: "started" while it serves, else a step of start or stop.

        Raises:
            ConfigError: the token cannot be used.
            TlsSettingsError: the certificate cannot be used.
        """
        config = ground.config
        self._ground, self._serving, self._step = ground, serving, step
        self._watch = HealthWatch(ground.storage.keeper)
        self._token = find_token(config)
        self._tls = TlsFiles(config.http_tls_file, "enforcing" if config.http_tls_file else "")
        self._pages = PagePlaces()
        routes = Routes()
        add_health(routes, self.facts)
        self._pulse = Pulse(ground.reactor)
        self.sources = MetricSources(ground, serving, self._pulse)
        routes.add("GET", "/metrics", self._metrics)
        routes.add("GET", "/metrics/exporter", self._exporter_metrics)
        names = (config.address_host, *config.http_host_names)
        self._port = HttpPort(
            ground.reactor,
            Application(routes, [HostGuard(names)]),
            host=config.http_bind_host,
            port=config.http_port,
            limits=_LIMITS,
            tls=self._tls.server,
        )

    def start(self) -> None:
        """Listens.

        Raises:
            ConfigError: the port is taken.
        """
        try:
            self._port.start()
        except CannotListenError as error:
            port = str(self._ground.config.http_port)
            raise ConfigError("httpPort", port, f"a port that is free: {error}") from error

    def watch(self) -> None:
        """Begins to look at what only shows over time; the schedule ends it."""
        self._ground.schedule.every(_LOOK_MS, self._look)
        if self._tls.is_in_use:
            self._ground.schedule.every(LOOK_INTERVAL_MS, CertificateWatch(self._tls).look)
        self._pulse.start()

    def stop(self) -> "Deferred[Any]":
        """Ends all connections."""
        self._pulse.stop()
        return self._port.stop()

    def _metrics(self, request: Request) -> Reply:
        sources = self.sources
        return self._page(
            request,
            lambda is_open: write_page(sources.groups(), sources.common, is_open=is_open),
        )

    def _exporter_metrics(self, request: Request) -> Reply:
        sources = self.sources
        return self._page(
            request,
            lambda is_open: write_page(
                sources.exporter.groups(), sources.common, lambda name: (), is_open=is_open
            ),
        )

    def _page(self, request: Request, write: Callable[[bool], Iterator[bytes]]) -> Reply:
        """
        Raises:
            RequestError: the token is another, the files are not open yet, or too many pages are
                being written.
        """
        self.check_token(request)
        if not self._ground.storage.is_open:
            # Another thread may be filling what would be counted.
            raise RequestError(503, f"nothing is counted yet: the broker {self.facts().step}")
        is_open = wants_open_metrics(request.headers.get("accept", ""))
        return Reply(
            body=self._pages.written(network_of(request.peer_host), write(is_open)),
            content_type=OPEN_METRICS if is_open else TEXT_FORMAT,
        )

    def check_token(self, request: Request) -> None:
        """
        Raises:
            RequestError: a token is needed, and the request names another or none.
        """
        if self._token is None:
            return
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not compare_digest(token.strip().encode(), self._token):
            message = "metrics are read with the token of httpTokenFile (Authorization: Bearer)"
            headers = (("WWW-Authenticate", "Bearer"),)
            raise RequestError(401, message, field="Authorization", headers=headers)

    def _member(self) -> Replica | None:
        serving = self._serving()
        member = None if serving is None else serving.member
        return member if isinstance(member, Replica) else None

    def _look(self) -> None:
        member = self._member()
        view = None if member is None else member.view()
        told_index = -1 if view is None else view.told_index
        self._watch.look(self._ground.clock_ms() / 1000, told_index)

    def facts(self) -> Facts:
        """Returns what health is judged by at this moment."""
        leadership, now_s = self._ground.leadership, self._ground.clock_ms() / 1000
        step, member = self._step(), self._member()
        # A stop may come before the start is over.
        is_started = step == "started" or (step == "stopping" and self._serving() is not None)
        opening = OpeningStep("", 0, 0, "")
        if not self._ground.storage.is_open and not is_started:
            opening = self._ground.storage.opening.now
            step = f"{step}: {opening.name}" if opening.name else step
        view = None if member is None else member.view()
        applied_index = -1 if member is None else member.applied_index
        behind_s = self._watch.behind_seconds(now_s, applied_index)
        return Facts(
            self_id=self._ground.config.ledger_self_id,
            step=step,
            done=opening.done,
            total=opening.total,
            unit=opening.unit,
            is_started=is_started,
            is_stopping=leadership.is_stopping,
            role=leadership.role,
            leader_id=leadership.leader_id,
            is_serving=leadership.is_serving,
            is_group=self._ground.config.is_group_member,
            failure=leadership.failure,
            repair=leadership.repair,
            is_recovering=view is not None and view.is_recovering,
            behind_entries=0 if view is None else max(view.told_index - applied_index, 0),
            behind_seconds=behind_s,
            leader_silent_s=0.0 if view is None else (view.leader_silent_ms or 0.0) / 1000,
            disk_seconds=self._watch.disk_seconds(now_s),
            members=() if member is None else members_of(member),
            quorum_count=1 if view is None else view.quorum_count,
        )


def members_of(member: Replica) -> tuple[Member, ...]:
    """Returns the other members: a leader knows them well, the rest whether they are connected."""
    view = member.view()
    if view is not None and view.followers:
        return tuple(
            Member(one.peer_id, one.is_live, one.counts, view.last_index - one.match_index)
            for one in view.followers
        )
    return tuple(
        Member(peer_id, member.dialect_of(peer_id) is not PeerDialect.UNKNOWN, True, 0)
        for peer_id in member.peer_ids
    )


def find_token(config: BrokerConfig) -> bytes | None:
    """Reads the file of httpTokenFile; returns None where none is named.

    Raises:
        ConfigError: it holds no token.
    """
    path = config.http_token_file
    if not path:
        return None
    try:
        token = read_private_file(Path(path).expanduser(), "the file", _TOKEN_BYTES_MAX).strip()
    except PrivateFileError as error:
        raise ConfigError("httpTokenFile", path, str(error)) from error
    if not token:
        raise ConfigError("httpTokenFile", path, "a file that is not empty")
    return token
