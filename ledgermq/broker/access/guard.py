"""Guard: lets a request pass to its processor, or says why not.

In upstream's order: global white addresses, account, its own white addresses, signature, admin,
resources. With access control off there is no guard, and nothing of this is on the way of a
request. Source: `PlainPermissionManager.validate`.
"""

from collections.abc import Mapping

from ledgermq.broker.access.needs import Need, Surroundings, needs_of
from ledgermq.broker.access.rules import Account, Permission, allows
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.dispatch import Answer, Processor
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.signature import ACCESS_KEY, is_signed_by
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state import names
from ledgermq.state.errors import AccessDeniedError

# Longer ones are cut in the answer.
_NAME_CHARS_SHOWN = 128


class Guard:
    """Stands before every processor."""

    def __init__(self, table: RulesTable, around: Surroundings) -> None:
        """Binds the parts.

        Args:
            table: the rules in force.
            around: what is known of things that requests only name.
        """
        self._table = table
        self._around = around
        # Requests that were refused since the start.
        self.refused_count = 0

    def protect(self, processors: Mapping[int, Processor]) -> dict[int, Processor]:
        """Returns the table of processors, each behind this guard."""
        return {code: self._protected(processor) for code, processor in processors.items()}

    def _protected(self, processor: Processor) -> Processor:
        def checked(connection: CommandProtocol, command: RemotingCommand) -> Answer:
            # Other requests of the connection may be signed by others.
            connection.account = self.check(connection.peer_host, command)
            return processor(connection, command)

        return checked

    def check(self, host: str, command: RemotingCommand) -> str | None:
        """Lets a request pass.

        Args:
            host: the address that it came from.
            command: as it was received.

        Returns:
            The access key of the account that signed it; None where no signature is looked at.

        Raises:
            AccessDeniedError: it may not; says why.
            RemoteProtocolError: the request does not say what it touches.
        """
        rules = self._table.rules
        if any(pattern.matches(host) for pattern in rules.white_addresses):
            return None
        try:
            account = self._account_of(host, command)
            if account is None:
                return None
            self._check_needs(account, command)
            return account.access_key
        except AccessDeniedError:
            self.refused_count += 1
            raise

    def _account_of(self, host: str, command: RemotingCommand) -> Account | None:
        """The account that signed; None when its white address makes all else needless."""
        fields = command.ext_fields or {}
        access_key = fields.get(ACCESS_KEY)
        if not access_key:
            raise AccessDeniedError("No accessKey is configured (access control is on)")
        account = self._table.rules.accounts.get(access_key)
        if account is None:
            raise AccessDeniedError(f"No acl config for {access_key[:_NAME_CHARS_SHOWN]}")
        if account.white_remote_address.matches(host):
            return None
        if not is_signed_by(fields, command.body, account.secret_key):
            raise AccessDeniedError(f"Check signature failed for accessKey={account.access_key}")
        return account

    def _check_needs(self, account: Account, command: RemotingCommand) -> None:
        if account.is_admin and not account.has_lists:
            return
        needs = needs_of(command, self._around)
        if needs is None:
            if not account.is_admin:
                raise AccessDeniedError(
                    f"Need admin permission for request code={command.code},"
                    f" but accessKey={account.access_key} is not"
                )
            return
        if not needs and not account.has_rights:
            raise AccessDeniedError(
                f"accessKey={account.access_key} has no right to any topic or group, which is"
                f" needed for request code={command.code}"
            )
        for need in needs:
            _check_need(account, need)


def _check_need(account: Account, need: Need) -> None:
    if need.is_group:
        kind, named = "group", account.group_permissions
        default = account.default_group_permission
    else:
        kind, named = "topic", account.topic_permissions
        default = account.default_topic_permission
        if names.is_closed_for_sends(need.name):
            # Messages of all topics stand there: whoever may read them is named.
            default = Permission.DENY
    owned = named.get(need.name)
    if allows(default if owned is None else owned, need.permission):
        return
    source = "No default permission" if owned is None else "No permission"
    wanted = "PUB or SUB" if need.permission is Permission.ANY else need.permission.name
    raise AccessDeniedError(
        f"{source} for {kind}:{need.name[:_NAME_CHARS_SHOWN]}:"
        f" accessKey={account.access_key} needs {wanted}"
    )
