"""Rules of access control by hand: accounts (50, 51), white addresses (53), lists (52, 54).

Tools ask every broker of a cluster; the leader changes its rules and answers when the change is
committed, a follower agrees, because it gets them from the leader. Source:
`AdminBrokerProcessor.java`.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from ledgermq.protocol.signature import SIGNED_FORM, STRONG_FORM
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import AccessRulesError

_UPDATE_FAILED: Final = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
_DELETE_FAILED: Final = ResponseCode.DELETE_ACL_CONFIG_FAILED
_ADDRESSES_FAILED: Final = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED

_log = Logger()


class AccessProcessor:
    """Changes and lists the rules."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        table: RulesTable,
        address: str,
    ) -> None:
        """Binds the parts.

        Args:
            address: where clients find this broker.
        """
        self._config = config
        self._leadership = leadership
        self._table = table
        self._address = address

    def put_account(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """UPDATE_AND_CREATE_ACL_CONFIG (50): what is not told stays, lists are replaced."""
        header = command.header(CreateAccessConfigRequestHeader)
        told: dict[str, Any] = {
            "accessKey": header.access_key,
            "secretKey": header.secret_key,
            "whiteRemoteAddress": header.white_remote_address,
            # Only what says so makes an account an admin, or one no more.
            "admin": header.admin if "admin" in (command.ext_fields or {}) else None,
            "defaultTopicPerm": header.default_topic_perm,
            "defaultGroupPerm": header.default_group_perm,
            "topicPerms": _parts(header.topic_perms),
            "groupPerms": _parts(header.group_perms),
        }
        change = {name: value for name, value in told.items() if value is not None}
        table, access_key = self._table, header.access_key
        return self._change(
            connection,
            command,
            _UPDATE_FAILED,
            lambda: table.change_account(access_key, lambda rules: rules.with_account(change)),
        )

    def delete_account(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """DELETE_ACL_CONFIG (51)."""
        access_key = command.header(DeleteAccessConfigRequestHeader).access_key
        return self._change(
            connection, command, _DELETE_FAILED, lambda: self._table.delete_account(access_key)
        )

    def put_addresses(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53): replaces those of one file."""
        header = command.header(UpdateGlobalWhiteAddrsConfigRequestHeader)
        texts = [part for part in header.global_white_addrs.split(",") if part.strip()]
        table, path = self._table, header.acl_file_full_path
        return self._change(
            connection,
            command,
            _ADDRESSES_FAILED,
            lambda: table.change(lambda rules: rules.with_white_addresses(texts), path),
        )

    def _change(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        failure_code: ResponseCode,
        change: Callable[[], Deferred[None]],
    ) -> Answer:
        leadership = self._leadership
        if leadership.leader_id is not None and not leadership.is_leader:
            return command.response(
                ResponseCode.SUCCESS, f"changed here when the leader {leadership.leader_id} does it"
            )
        leadership.check_serving()
        changed: Deferred[Any] = change()
        return changed.addCallbacks(
            lambda _: self._changed(connection, command),
            lambda failure: _refused(command, failure_code, failure),
        )

    def _changed(self, connection: CommandProtocol, command: RemotingCommand) -> RemotingCommand:
        """The rules are committed, and in force here."""
        _log.info(
            "{peer} changes the rules of access control (code {code})",
            peer=connection.peer,
            code=command.code,
        )
        return command.response(ResponseCode.SUCCESS)

    def show_version(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_BROKER_CLUSTER_ACL_INFO (52)."""
        versions = {path: one.to_json() for path, one in self._table.versions.items()}
        header = GetBrokerAclConfigResponseHeader(
            version=lenient_json.write(self._table.version.to_json()).decode(),
            all_acl_file_version=lenient_json.write(versions).decode(),
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.cluster_name,
        )
        return command.response(ResponseCode.SUCCESS, self._table.alarm, header)

    def list_accounts(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_BROKER_CLUSTER_ACL_CONFIG (54): all rules, for an admin.

        Secrets that are left out stay when a tool writes an account back (50).
        """
        document = self._table.rules.to_document()
        accounts = document["accounts"]
        if not self._shows_secrets(connection, command):
            for account in accounts:
                del account["secretKey"]
        body = {
            "globalWhiteAddrs": document["globalWhiteRemoteAddresses"],
            "plainAccessConfigs": accounts,
        }
        return command.response(ResponseCode.SUCCESS, body=lenient_json.write(body))

    def _shows_secrets(self, connection: CommandProtocol, command: RemotingCommand) -> bool:
        """Whether who asks for the accounts gets their secrets, too.

        With a stock signature a request without fields, which tools send to every broker that they
        hear of, is this one, too, for whoever saw it: it proves no admin at the other end. A strong
        one does. On the broker's own machine tools get what upstream's broker tells them.
        """
        shown = self._config.secret_keys_shown
        if shown != "local":
            return shown == "always"
        is_strong = (command.ext_fields or {}).get(SIGNED_FORM) == STRONG_FORM
        return is_strong or connection.peer_host == connection.own_host


def _refused(command: RemotingCommand, code: ResponseCode, failure: Failure) -> RemotingCommand:
    """Answers why nothing was changed."""
    failure.trap(AccessRulesError)
    return command.response(code, failure.getErrorMessage())


def _parts(text: str | None) -> list[str] | None:
    """A list joined by commas."""
    if text is None:
        return None
    return [part.strip() for part in text.split(",") if part.strip()]
