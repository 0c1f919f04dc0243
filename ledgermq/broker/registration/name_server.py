"""NameServer: the way of this broker to one name server, and what is owed to it.

    register ──> owed ──asked──> answered: settled until something changes
                   ^                 │ no answer, no connection: on a new connection, at once
                   └─────────────────┘ refused: after a second, two, four, up to the usual period

A new leader is of no use to clients that are not told of it. So a name server that was away learns
of it about a second after it is back: attempts to connect follow each other at most a second apart,
each new connection begins with the registration, and one on which it is not answered is left for a
new one. Each name server has a way of its own; none waits for another.
"""

from collections.abc import Callable
from random import random
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.broker.leadership import NO_BROKER_ID
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ConnectionClosedError, RequestTimeoutError
from ledgermq.protocol.tcp_times import REGISTRATION_TIMES
from ledgermq.protocol.tls.files import ClientTls
from ledgermq.protocol.transport import (
    CommandClient,
    CommandProtocol,
    ConnectionLimits,
    TurnOutput,
)

# An attempt to connect is over before TCP would repeat a first packet that was lost.
_CONNECT_TIMEOUT_MS: Final = 1000
# Between the beginnings of two attempts, doubled up to the second one.
_FIRST_DELAY_S: Final = 0.1
_DELAY_S_MAX: Final = 1.0
# A registration that is not answered in this time is made anew on another connection; a name server
# that is slow gets twice as long each time, up to what the configuration allows.
_PATIENCE_MIN_MS: Final = 2000
# Wait after a refusal, doubled up to the second one.
_REFUSED_DELAY_S: Final = 1.0
_REFUSED_DELAY_S_MAX: Final = 30.0
_LIMITS: Final = ConnectionLimits(first_frame_timeout_s=0, tcp_times=REGISTRATION_TIMES)

_log = Logger()


class Announcement(NamedTuple):
    """A registration as it is at the moment."""

    broker_id: int
    request: RemotingCommand


class NameServer:
    """One name server as this broker sees it."""

    def __init__(
        self,
        reactor: Any,
        address: str,
        announce: Callable[[], Announcement | None],
        *,
        answer_timeout_ms: int,
        output: TurnOutput,
        tls: ClientTls | None = None,
        chance: Callable[[], float] = random,
    ) -> None:
        """Opens nothing yet.

        Args:
            reactor: gives TCP and time.
            address: "host:port".
            announce: makes the registration of the moment; None while there is none to make.
            answer_timeout_ms: longest wait for its answer.
            output: shared with the broker's other connections.
            tls: for connections with TLS; None for plain ones.
            chance: draws from [0, 1), so that brokers that lost it do not come back in step.
        """
        self._reactor = reactor
        self._announce = announce
        self._chance = chance
        self._patience_min_ms = min(_PATIENCE_MIN_MS, answer_timeout_ms)
        self._patience_max_ms = answer_timeout_ms
        self._patience_ms = self._patience_min_ms
        self._refused_count = 0
        self._again_call: Any = None
        self._is_stopped = False
        # "host:port" as configured.
        self.address = address
        self.client = CommandClient(
            reactor,
            *split_address(address),
            connect_timeout_ms=_CONNECT_TIMEOUT_MS,
            back_off=self._back_off_s,
            on_connected=self._tell,
            limits=_LIMITS,
            output=output,
            tls=tls,
        )
        # Whether the last registration was accepted; None before the first answer.
        self.is_registered: bool | None = None
        # Broker id of the last registration that was accepted.
        self.registered_id = NO_BROKER_ID
        # "ip:port" of the master, as it told with its last answer; None when it knew none.
        self.master: str | None = None
        # "ip:port" where slaves of that master copy its log.
        self.ha_master: str | None = None

    def register(self) -> None:
        """Tells it now, or as soon as it is reached."""
        connection = self.client.connection
        if connection is not None:
            self._tell(connection)

    def leave(self) -> None:
        """Tells it nothing more."""
        self._is_stopped = True
        self._cancel_again()

    def stop(self) -> Deferred[None]:
        """Closes the connection; fires when it is gone."""
        self.leave()
        return self.client.stop()

    def _back_off_s(self, attempts_count: int) -> float:
        delay_s = min(_FIRST_DELAY_S * 2.0 ** min(attempts_count - 1, 10), _DELAY_S_MAX)
        return delay_s * (1 + self._chance()) / 2

    def _tell(self, connection: CommandProtocol) -> None:
        announcement = None if self._is_stopped else self._announce()
        if announcement is None:
            return
        self._cancel_again()
        connection.request(announcement.request, self._patience_ms).addCallbacks(
            self._answered,
            self._not_answered,
            callbackArgs=(announcement.broker_id,),
            errbackArgs=(connection,),
        )

    def _answered(self, answer: RemotingCommand, broker_id: int) -> None:
        self._patience_ms = self._patience_min_ms
        if answer.code != ResponseCode.SUCCESS:
            self._not_registered(f"code {answer.code}: {answer.remark}")
            self._tell_later()
            return
        self._refused_count = 0
        if self.is_registered is not True or self.registered_id != broker_id:
            _log.info(
                "registered with name server {address} as broker id {broker_id}",
                address=self.address,
                broker_id=broker_id,
            )
        self.is_registered = True
        self.registered_id = broker_id
        told = answer.ext_fields or {}
        self.master = told.get("masterAddr") or None
        self.ha_master = told.get("haServerAddr") or None

    def _not_answered(self, failure: Failure, connection: CommandProtocol) -> None:
        self._not_registered(failure.getErrorMessage())
        if failure.check(RequestTimeoutError):
            self._patience_ms = min(2 * self._patience_ms, self._patience_max_ms)
            connection.abort("a registration was not answered")
        elif not failure.check(ConnectionClosedError):
            self._tell_later()

    def _not_registered(self, reason: str) -> None:
        if self.is_registered is not False and not self._is_stopped:
            _log.warn(
                "not registered with name server {address}: {reason}",
                address=self.address,
                reason=reason,
            )
        self.is_registered = False

    def _tell_later(self) -> None:
        if self._is_stopped or self._again_call is not None:
            return
        delay_s = min(_REFUSED_DELAY_S * 2.0 ** min(self._refused_count, 10), _REFUSED_DELAY_S_MAX)
        self._refused_count += 1
        self._again_call = self._reactor.callLater(delay_s, self._tell_again)

    def _tell_again(self) -> None:
        self._again_call = None
        self.register()

    def _cancel_again(self) -> None:
        if self._again_call is not None:
            self._again_call.cancel()
            self._again_call = None


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of "host:port"; raises ValueError when there is no port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
