"""Guard: says whose a request is, and whether it may pass.

Each request code needs something (`Need`), which is said beside its processor. Without accounts
everybody may do everything, as upstream. The right to the broker names of a request is judged by
its processor, on the very header that it uses (`Caller.check_broker_name`).
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol

from twisted.logger import Logger

from ledgermq.namesrv.accounts import NameAccount, NameAccounts
from ledgermq.namesrv.errors import NamesrvError, NotAllowedError
from ledgermq.namesrv.registrations import Registrant
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.networks import network_of
from ledgermq.protocol.signature_check import ANY, SignatureCheck
from ledgermq.protocol.signed_for import IsOwn

# Kinds of refusals that are told one by one until all are forgotten.
_TOLD_MAX: Final = 1000
# Least time between two sums of what was refused, after which each kind is told again.
_SUM_MS: Final = 600_000

_log = Logger()


class Need(Enum):
    """What a request needs where there are accounts."""

    # Any account, where routeNeedsAccount asks for one.
    READ = "read"
    # An account that may register brokers, or administrate.
    REGISTER = "register"
    # An account with admin: true.
    ADMIN = "admin"


class Peer(Protocol):
    """What is asked of a connection; it is the owner of what is registered on it."""

    # Set when a request on it was an account's: large ones may come.
    is_trusted: bool

    # The address that it came to.
    own_host: str

    # None: the name server asks its accounts by itself.
    account: str | None

    # Address of the other end.
    peer_host: str

    @property
    def is_open(self) -> bool:
        """Whether it is there."""
        ...

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Names in its verified certificate."""
        ...


class Caller(NamedTuple):
    """Whose a request is."""

    connection: Peer
    # None where there are no accounts, and of readers that nobody asked for one.
    account: NameAccount | None
    # False: everybody may do everything.
    has_accounts: bool

    @property
    def registrant(self) -> Registrant:
        """As the route table knows it."""
        account, host = self.account, self.connection.peer_host
        if account is None:
            return Registrant(key=f"address {network_of(host)}")
        if not account.access_key:
            return Registrant(key=f"address {host}", account="", is_free=True)
        key = f"account {account.access_key}"
        return Registrant(key=key, account=account.access_key, is_free=account.is_admin)

    def check_broker_name(self, broker_name: str) -> None:
        """Lets brokers of a name be registered.

        Raises:
            NotAllowedError: the account may not.
        """
        if not self.has_accounts:
            return
        account = self.account
        if account is None or not account.may_register(broker_name):
            key = "" if account is None else account.access_key
            raise NotAllowedError(
                f"account {key!a} may not register brokers named {broker_name[:128]!a}:"
                " brokerNames of its account at this name server do not have it"
            )


class Guard:
    """Stands before every processor."""

    def __init__(
        self,
        accounts: Callable[[], NameAccounts] | None,
        *,
        route_needs_account: bool,
        signature_wanted: str = ANY,
        is_own: IsOwn | None = None,
    ) -> None:
        """Binds the accounts.

        Args:
            accounts: those in force; None where everybody may do everything.
            route_needs_account: whether reading needs an account, too.
            signature_wanted: ANY or STRONG.
            is_own: whether a request was signed for this name server; None: nobody looks.
        """
        self._is_own = is_own
        self._accounts = accounts
        self._route_needs_account = route_needs_account
        self._signatures = SignatureCheck(signature_wanted)

    def admit(self, need: Need, command: RemotingCommand, peer: Peer) -> Caller:
        """Lets a request pass.

        Raises:
            NotAllowedError: it may not; says why, and what would help.
        """
        if self._accounts is None:
            return Caller(peer, None, has_accounts=False)
        if need is Need.READ and not self._route_needs_account:
            return Caller(peer, None, has_accounts=True)

        account = self._accounts().find(
            peer.peer_host,
            peer.certificate_names,
            command.ext_fields or {},
            partial(self._find_wrong, command, peer),
        )
        if account is None:
            raise NotAllowedError(
                f"request {command.code} needs an account at this name server (aclEnable=true):"
                " a signature (a broker's namesrvAccessKey and namesrvSecretKeyFile), or a client"
                f" certificate or an address that its aclFile names; {peer.peer_host} is none"
            )
        peer.is_trusted = True
        if need is Need.ADMIN and not account.is_admin:
            raise NotAllowedError(
                f"request {command.code} needs an account with admin: true;"
                f" {account.access_key!a} is none"
            )
        if need is Need.REGISTER and not account.is_registrant:
            raise NotAllowedError(f"account {account.access_key!a} has no brokerNames to register")
        return Caller(peer, account, has_accounts=True)

    def _find_wrong(
        self, command: RemotingCommand, peer: Peer, access_key: str, secret_key: str
    ) -> str | None:
        is_own = self._is_own
        return self._signatures.find_refusal(
            command.code,
            command.ext_fields or {},
            command.body,
            access_key,
            secret_key,
            None if is_own is None else lambda named: is_own(named, peer.own_host),
        )

    def admits_large(self, peer: Peer, command: RemotingCommand) -> bool:
        """Tells whether a large request may come whose signature cannot be looked at before it is
        there: it names an account, or its connection is one's.
        """
        return self._accounts is None or self._accounts().may_be_one(
            peer.peer_host, peer.certificate_names, command.ext_fields or {}
        )


class Refusals:
    """Counts what was refused, and tells each kind once."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        """Nothing was refused yet; `clock_ms` is monotonic."""
        self._clock_ms = clock_ms
        self._told: set[tuple[str, int, type[Exception]]] = set()
        self._summed_count = 0
        self._summed_ms = clock_ms()
        # Since the start.
        self.count = 0

    def note(self, code: int, peer: Peer, error: NamesrvError | RemoteProtocolError) -> None:
        """Counts a refusal; the first one of a kind from an address, or network, is told."""
        self.count += 1
        kind = (network_of(peer.peer_host), code, type(error))
        if kind not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(kind)
            _log.warn(
                "refused request {code} of {host}: {reason}",
                code=code,
                host=peer.peer_host,
                reason=ascii(str(error)),
            )

    def sum_up(self) -> None:
        """Tells from time to time how many were refused; then each kind is told again."""
        now_ms = self._clock_ms()
        if now_ms - self._summed_ms < _SUM_MS:
            return
        news = self.count - self._summed_count
        if news:
            _log.warn("{news} requests were refused, {count} in all", news=news, count=self.count)
        self._summed_ms, self._summed_count = now_ms, self.count
        self._told.clear()
