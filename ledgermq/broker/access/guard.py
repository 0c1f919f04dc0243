"""Guard: lets a request pass to its processor, or says why not.

In upstream's order: global white addresses, account, its own white addresses, signature, admin,
resources. Upstream lets whoever names an account from its white address do everything; here that
stands for the signature, and not for the rights. With access control off there is no guard, and
nothing of this is on the way of a request. Source: `PlainPermissionManager.validate`.
"""

from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ledgermq.broker.access.codes import CODES, needs_of, no_row
from ledgermq.broker.access.needs import Surroundings
from ledgermq.broker.access.quick_guard import QuickGuard
from ledgermq.broker.access.quotas import Quotas
from ledgermq.broker.access.rights import NAME_CHARS_SHOWN, AccountSight, find_refusal
from ledgermq.broker.access.rules import Account
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.dispatch import Answer, Processor
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.signature import ACCESS_KEY
from ledgermq.protocol.signature_check import SignatureCheck
from ledgermq.protocol.signed_for import IsOwn
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import AccessDeniedError

# Told of a refusal: the address that it came from, the request, and why.
OnRefused = Callable[[str, RemotingCommand, AccessDeniedError], None]


class Guard:
    """Stands before every processor."""

    def __init__(
        self,
        table: RulesTable,
        around: Surroundings,
        quotas: Quotas | None = None,
        on_refused: OnRefused | None = None,
        signatures: SignatureCheck | None = None,
        is_own: IsOwn | None = None,
    ) -> None:
        """Binds the parts.

        Args:
            table: the rules in force.
            around: what is known of things that requests only name.
            quotas: of the accounts; None: there are none.
            on_refused: told of each request that is refused; None: nobody is.
            signatures: which forms count; None: any.
            is_own: whether a request was signed for this broker; None: nobody looks.
        """
        self._is_own = is_own
        self._signatures = signatures or SignatureCheck()
        self._on_refused = on_refused
        self._table = table
        self._quotas = quotas
        self._around = around
        # Requests that were refused since the start.
        self.refused_count = 0

    def protect(self, processors: Mapping[int, Processor]) -> dict[int, Processor]:
        """Returns the table of processors, each behind this guard.

        One whose code has no row in `codes.py` is reached by nobody.
        """
        return {
            code: self._protected(processor) if code in CODES else self._closed
            for code, processor in processors.items()
        }

    def of_quick_road(self) -> QuickGuard:
        """Returns the guard of frames that do not become commands."""
        return QuickGuard(self._table, self._quotas, self._around.reply_topic)

    def _closed(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        error = no_row(command.code)
        self._refused(connection.peer_host, command, error)
        raise error

    def _protected(self, processor: Processor) -> Processor:
        replies = self._around.reply_topic

        def checked(connection: CommandProtocol, command: RemotingCommand) -> Answer:
            # Other requests of the connection may be signed by others.
            account = self.check(connection.peer_host, command, connection.own_host)
            connection.account = None if account is None else account.access_key
            connection.sight = (
                None if account is None or account.is_unlimited else AccountSight(account, replies)
            )
            connection.is_trusted = True
            if account is not None and self._quotas is not None:
                self._quotas.charge(connection, account.access_key, account.quota, command)
            # Some look at what only they know: whose client id, or half message, it is.
            try:
                answer = processor(connection, command)
            except AccessDeniedError as error:
                self._refused(connection.peer_host, command, error)
                raise
            if isinstance(answer, Deferred):
                answer.addErrback(self._refused_later, connection.peer_host, command)
            return answer

        return checked

    def admits_large(self, connection: CommandProtocol, command: RemotingCommand) -> bool:
        """Tells whether a large request may come whose signature cannot be looked at before it is
        there: it names an account, or its address needs none.
        """
        rules, host = self._table.rules, connection.peer_host
        access_key = (command.ext_fields or {}).get(ACCESS_KEY)
        return access_key in rules.accounts or any(
            pattern.matches(host) for pattern in rules.white_addresses
        )

    def check(self, host: str, command: RemotingCommand, own_host: str = "") -> Account | None:
        """Lets a request pass.

        Args:
            host: the address that it came from.
            command: as it was received.
            own_host: the address that it came to.

        Returns:
            The account that signed it; None where no signature is looked at.

        Raises:
            AccessDeniedError: it may not; says why.
            IllegalMessageError: it is a send that breaks a limit.
            RemoteProtocolError: the request does not say what it touches.
        """
        rules = self._table.rules
        if any(pattern.matches(host) for pattern in rules.white_addresses):
            return None
        try:
            account = self._account_of(host, command, own_host)
            self._check_needs(account, command)
            return account
        except AccessDeniedError as error:
            self._refused(host, command, error)
            raise

    def _refused(self, host: str, command: RemotingCommand, error: AccessDeniedError) -> None:
        self.refused_count += 1
        if self._on_refused is not None:
            self._on_refused(host, command, error)

    def _refused_later(self, failure: Failure, host: str, command: RemotingCommand) -> Failure:
        if isinstance(failure.value, AccessDeniedError):
            self._refused(host, command, failure.value)
        return failure

    def _account_of(self, host: str, command: RemotingCommand, own_host: str) -> Account:
        """The account that signed, or that is named from its white address."""
        fields = command.ext_fields or {}
        access_key = fields.get(ACCESS_KEY)
        if not access_key:
            raise AccessDeniedError("No accessKey is configured (access control is on)")
        account = self._table.rules.accounts.get(access_key)
        if account is None:
            raise AccessDeniedError(f"No acl config for {access_key[:NAME_CHARS_SHOWN]}")
        if account.white_remote_address.matches(host):
            return account
        is_own = self._is_own
        reason = self._signatures.find_refusal(
            command.code,
            fields,
            command.body,
            account.access_key,
            account.secret_key,
            None if is_own is None else lambda named: is_own(named, own_host),
        )
        if reason is not None:
            raise AccessDeniedError(reason)
        return account

    def _check_needs(self, account: Account, command: RemotingCommand) -> None:
        if account.is_unlimited:
            return
        needs = needs_of(command, self._around)
        if needs is None:
            if not account.is_admin:
                raise AccessDeniedError(
                    f"Need admin permission for request code={command.code},"
                    f" but accessKey={account.access_key} is not"
                )
            return
        need = None
        for need in needs:
            reason = find_refusal(account, need, self._around.reply_topic)
            if reason is not None:
                raise AccessDeniedError(reason)
        if need is None and not account.has_rights:
            raise AccessDeniedError(
                f"accessKey={account.access_key} has no right to any topic or group, which is"
                f" needed for request code={command.code}"
            )
