"""NameServer: the way of this broker to one name server, and what is owed to it.

    tell ──> what it lacks ──> answered: the next slice, or settled until something changes
                   ^              │ no answer, no connection: all, on a new connection, at once
                   └──────────────┘ refused: all, after a second, two, four, up to 30

One registration is under way at a time, since a name server may serve what comes together in any
order; only a new role of this broker goes out beside another one, and then all is told once more.

From time to time a leader asks a name server that is settled whether it has the version still (322,
a sign of life) and whether its routes lead here (105); if not, it is told all.

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
from ledgermq.broker.registration.addresses import split_address
from ledgermq.broker.registration.announcements import (
    NOTHING,
    Announcement,
    Announcements,
    Gathered,
    Identity,
    Known,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ConnectionClosedError, RemoteProtocolError, RequestTimeoutError
from ledgermq.protocol.properties_file import parse_properties
from ledgermq.protocol.signature import Credentials, ends_of
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
# A name server of 5.1.4 and later that has this set drops all topics that a registration lacks.
_DROPS_KEY: Final = "deleteTopicWithBrokerRegistration"
# One that leaves the question unanswered so often is taken for one that does not know it.
_SETTINGS_ATTEMPTS_MAX: Final = 2

_log = Logger()

# Takes an answer; returns whether something is to be told at once.
_Take = Callable[[RemotingCommand], bool]


class _Asked(NamedTuple):
    """A request that waits for its answer."""

    identity: Identity
    take: _Take


class NameServer:
    """One name server as this broker sees it."""

    def __init__(
        self,
        reactor: Any,
        address: str,
        announcements: Announcements,
        *,
        answer_timeout_ms: int,
        output: TurnOutput,
        tls: ClientTls | None = None,
        account: Credentials | None = None,
        on_word: Callable[[], None] = lambda: None,
        chance: Callable[[], float] = random,
    ) -> None:
        """Opens nothing yet.

        Args:
            reactor: gives TCP and time.
            address: "host:port".
            announcements: makes what is told.
            answer_timeout_ms: longest wait for an answer.
            output: shared with the broker's other connections.
            tls: for connections with TLS; None for plain ones.
            account: signs all that is told; None where name servers need none.
            on_word: called when it has answered, or will not.
            chance: draws from [0, 1), so that brokers that lost it do not come back in step.
        """
        self._reactor = reactor
        self._announcements = announcements
        self._account, self._on_word = account, on_word
        self._chance = chance
        self._patience_min_ms = min(_PATIENCE_MIN_MS, answer_timeout_ms)
        self._patience_max_ms = answer_timeout_ms
        self._patience_ms = self._patience_min_ms
        self._refused_count = 0
        self._again_call: Any = None
        self._is_stopped = False
        # What it knows, on this connection; None for nothing.
        self._known: Known | None = None
        self._asked: _Asked | None = None
        # Requests on this connection that are not answered; more than one where a new role crossed.
        self._unanswered_count = 0
        # Something was to be told while an answer was waited for.
        self._is_due = False
        # Whether topics that a registration lacks are dropped; None before it was asked.
        self._drops_missing: bool | None = None
        # Its settings can say so, and may change.
        self._can_drop_missing = False
        # So many times in a row it did not tell them.
        self._silence_count = 0
        self._gathered: Gathered | None = None
        # "host:port" as configured.
        self.address = address
        self.client = CommandClient(
            reactor,
            *split_address(address),
            connect_timeout_ms=_CONNECT_TIMEOUT_MS,
            back_off=self._back_off_s,
            on_connected=self._begin,
            limits=_LIMITS,
            output=output,
            tls=tls,
        )
        # Whether it accepted all topics under the present role; None before it is known.
        self.is_registered: bool | None = None
        # Broker id of the last registration that was accepted.
        self.registered_id = NO_BROKER_ID
        # "ip:port" of the master, as it told with its last answer; None when it knew none.
        self.master: str | None = None
        # "ip:port" where slaves of that master copy its log.
        self.ha_master: str | None = None

    @property
    def known_number(self) -> int:
        """The last change of the topic table that it knows, NOTHING before the first."""
        return NOTHING if self._known is None else self._known.number

    def tell(self) -> None:
        """Tells what it does not know, now or as soon as it is reached."""
        connection = self.client.connection
        if connection is not None:
            self._tell(connection)

    def register(self) -> None:
        """Tells what it does not know; one that should know all is asked whether it does, or, by a
        slave, told once more.
        """
        connection = self.client.connection
        if self._can_drop_missing:
            self._drops_missing = None
        if connection is None or self._tell(connection) or self._known is None:
            return
        question = self._announcements.version_question(self._known)
        if question is None:
            self._known = None
            self._tell(connection)
        else:
            self._ask(connection, question, self._known.identity, self._version_told)

    def sign(self, request: RemotingCommand, connection: CommandProtocol) -> None:
        """Adds the signature of this broker's account, if it has one."""
        if self._account is not None:
            reached = connection.peer_host, connection.peer.rpartition(":")[2]
            request.ext_fields = self._account.signed(
                request.ext_fields, request.body, request.code, ends_of(self.address, reached)
            )

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

    def _begin(self, connection: CommandProtocol) -> None:
        self._known = self._asked = self._gathered = None
        self._unanswered_count, self._is_due = 0, False
        self._drops_missing = None
        if self._silence_count >= _SETTINGS_ATTEMPTS_MAX and not self._can_drop_missing:
            self._drops_missing, self._silence_count = False, 0
        self._tell(connection)

    # Questions and answers, one at a time.

    def _tell(self, connection: CommandProtocol) -> bool:
        """Tells the next that it lacks; returns False when it lacks nothing."""
        identity = None if self._is_stopped else self._announcements.identity()
        if identity is None:
            return True
        if self._asked is not None and self._asked.identity == identity:
            self._is_due = True
            return True
        self._cancel_again()
        self._is_due = False
        # A new role does not wait for the answer to what is under way.
        if self._asked is not None:
            self._known = None
        announcement = self._announcements.next(identity, self._known)
        if announcement is None:
            return False
        if announcement.is_partial and self._drops_missing is None:
            question = RemotingCommand.request(RequestCode.GET_NAMESRV_CONFIG)
            self._ask(connection, question, identity, self._settings_told)
            return True
        if announcement.is_partial and self._drops_missing:
            announcement = self._gather(identity)
        if announcement is not None:
            self._announce(connection, announcement)
        return True

    def _gather(self, identity: Identity) -> Announcement | None:
        """Puts a registration with all topics together, a slice each turn."""
        if self._gathered is None or self._gathered.identity != identity:
            self._gathered = Gathered(identity)
        told = None if self._known is None else self._known.version
        announcement = self._announcements.gather(self._gathered, told)
        if announcement is None:
            self._again_call = self._reactor.callLater(0, self._tell_again)
        else:
            self._gathered = None
        return announcement

    def _announce(self, connection: CommandProtocol, announcement: Announcement) -> None:
        has_crossed = self._unanswered_count > 0

        def take(answer: RemotingCommand) -> bool:
            return self._registered(answer, announcement, has_crossed)

        self._ask(connection, announcement.request, announcement.known.identity, take)

    def _ask(
        self,
        connection: CommandProtocol,
        request: RemotingCommand,
        identity: Identity,
        take: _Take,
    ) -> None:
        asked = self._asked = _Asked(identity, take)
        self._unanswered_count += 1
        self.sign(request, connection)
        connection.request(request, self._patience_ms).addCallbacks(
            self._answered,
            self._not_answered,
            callbackArgs=(asked, connection),
            errbackArgs=(asked, connection),
        )

    def _answered(
        self, answer: RemotingCommand, asked: _Asked, connection: CommandProtocol
    ) -> None:
        self._patience_ms = self._patience_min_ms
        self._unanswered_count -= 1
        if asked is not self._asked:
            return
        self._asked = None
        if asked.take(answer) or (self._is_due and self._again_call is None):
            self._tell(connection)
        self._on_word()

    def _not_answered(self, failure: Failure, asked: _Asked, connection: CommandProtocol) -> None:
        self._unanswered_count -= 1
        if failure.check(RequestTimeoutError):
            self._patience_ms = min(2 * self._patience_ms, self._patience_max_ms)
            self._silence_count += asked.take == self._settings_told
            connection.abort("a registration was not answered")
        if asked is not self._asked:
            return
        self._asked = self._known = None
        self._not_registered(failure.getErrorMessage())
        if not failure.check(RequestTimeoutError, ConnectionClosedError):
            self._tell_later()
        self._on_word()

    def _registered(
        self, answer: RemotingCommand, announcement: Announcement, has_crossed: bool
    ) -> bool:
        if answer.code != ResponseCode.SUCCESS:
            self._known = None
            self._not_registered(f"code {answer.code}: {answer.remark}")
            self._tell_later()
            return False
        self._refused_count = 0
        known = announcement.known
        # What crossed another registration may have come before it.
        self._known = None if has_crossed else known
        broker_id = known.identity.broker_id
        if announcement.is_all:
            if self.is_registered is not True or self.registered_id != broker_id:
                _log.info(
                    "registered with name server {address} as broker id {broker_id}",
                    address=self.address,
                    broker_id=broker_id,
                )
            self.is_registered = True
        elif self.registered_id != broker_id:
            self.is_registered = None
        self.registered_id = broker_id
        told = answer.ext_fields or {}
        self.master = told.get("masterAddr") or None
        self.ha_master = told.get("haServerAddr") or None
        return has_crossed or not announcement.is_last

    def _settings_told(self, answer: RemotingCommand) -> bool:
        """The answer to 319; a name server that does not tell its settings has none of 5.x."""
        self._drops_missing, self._silence_count = False, 0
        if answer.code == ResponseCode.SUCCESS:
            try:
                settings = parse_properties(answer.body.decode())
            except ValueError:
                settings = {}
            self._can_drop_missing = _DROPS_KEY in settings
            self._drops_missing = settings.get(_DROPS_KEY, "").lower() == "true"
        return True

    def _version_told(self, answer: RemotingCommand) -> bool:
        """The answer to 322: one that has another version, or none, is told all."""
        fields = answer.ext_fields or {}
        if answer.code != ResponseCode.SUCCESS or fields.get("changed") != "false":
            self._known = None
            return True
        question, connection = self._announcements.route_question(), self.client.connection
        if question is not None and connection is not None and self._known is not None:
            self._ask(connection, question, self._known.identity, self._route_told)
        return False

    def _route_told(self, answer: RemotingCommand) -> bool:
        """The answer to 105: one whose routes do not lead here is told all.

        Upstream's forgets a leader when the address that had its id before leaves late.
        """
        known = self._known
        if known is None or answer.code not in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST):
            return False
        try:
            is_known = answer.code == ResponseCode.SUCCESS and self._announcements.is_in_route(
                answer.body, known.identity
            )
        except RemoteProtocolError as error:
            _log.warn("{address} gives no route: {error}", address=self.address, error=error)
            return False
        if not is_known:
            self._known = known._replace(number=NOTHING)
        return not is_known

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
        self.tell()

    def _cancel_again(self) -> None:
        if self._again_call is not None:
            self._again_call.cancel()
            self._again_call = None
